"""Code that raises whatever it is given is wrong, at its line; code that may want another input is not callable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.check.faults import FAULTS
from mhsa_cli.check.sentences import WAYS_OUT
from mhsa_cli.records.check import Grade
from tests.check.grading import described, grade_text, names_of

BLOCK = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, d_model, n_heads{more}):
        {before}
        self.h, self.table = n_heads, None
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def set_up(self):
        self.ready = True

    @torch.no_grad()
    def forward(self, x{inputs}):
        {first}
        B, T, D = x.shape
        q, k, v = (f(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        {between}
        s = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
        {last}
"""
RETURN = "return self.o((s @ v).transpose(1, 2).flatten(2))"


def graded(folder: Path, **parts: str) -> Grade:
    usual: dict[str, Any] = {"more": "", "inputs": "", "before": "super().__init__()", "first": "pass"}
    return grade_text(BLOCK.format(**{**usual, "between": "pass", "last": RETURN, **parts}), "Attention", folder)


def line_of(folder: Path, part: str) -> int:
    lines = (folder / "block.py").read_text().split("\n")
    return next(number for number, line in enumerate(lines, 1) if part in line)


@pytest.mark.parametrize(("fault", "where", "raised", "error"), [
    ("forward_raises", "between", "s = q / math.sqrt(6)", "NameError"),
    ("forward_raises", "between", "q = q.sofmax(-1)", "AttributeError"),
    ("forward_raises", "between", "q = self.queries(x)", "AttributeError"),
    ("forward_raises", "between", "q = torch.cat(q, k, -1)", "TypeError"),
    ("forward_raises", "between", "return self.forward(x)", "RecursionError"),
    ("forward_raises", "first", "raise NotImplementedError", "NotImplementedError"),
    ("forward_raises", "last", "return self.o(s @ v)", "RuntimeError"),  # heads were not merged
    ("forward_raises", "last", "return self.o((s @ v).transpose(1, 2).view(B, T, D))", "RuntimeError"),
    ("forward_raises", "between", "q = q.masked_fill(torch.ones(D, D).triu(1) == 1, 0)", "RuntimeError"),
    ("constructor_raises", "before", "pass", "AttributeError"),
    ("constructor_raises", "before", "super().__init__(); self.out = nn.Linear(d_model)", "TypeError"),
    ("constructor_raises", "before", "super().__init__(); self.d = d_model / heads", "NameError"),
    ("constructor_raises", "before", "super().__init__(); self.d = nn.Linear(d_model, d_model / n_heads)", "TypeError"),
    ("forward_raises", "between", "q = torch.cat([one for one in range(D / self.h)])", "TypeError"),
    ("returns_nothing", "last", "self.o((s @ v).transpose(1, 2).flatten(2))", "CallError"),
])  # fmt: skip
def test_what_raises_whatever_it_is_given_is_wrong(
    tmp_path: Path, fault: str, where: str, raised: str, error: str
) -> None:
    result = graded(tmp_path, **{where: raised})
    assert result.verdict == "wrong" and names_of(result) == {fault}, described(result)
    [named] = result.faults
    # Without super().__init__() the first layer cannot be set.
    part = "for _ in range(4)" if raised == "pass" else "def forward" if fault == "returns_nothing" else raised
    line = line_of(tmp_path, part)
    assert (named.line, named.place) == (line, f"line {line}") and named.facts["error"] == error
    assert (named.instead == WAYS_OUT["view"]) is ("view" in raised)
    assert named.instead and FAULTS[fault].title == named.title


@pytest.mark.parametrize("parts", [
    {"first": "B, C, H, W = x.shape"},  # images
    {"first": "x = x.tokens"},
    {"inputs": ", keys", "between": "q = q.squeeze(1) + self.k(keys).view(B, D)"},  # a query of one token
    {"more": ", inner=96", "between": "v = x @ torch.zeros(96, D, dtype=x.dtype)"},  # of a context of another width
    {"between": "raise NotImplementedError if x.is_cuda else RuntimeError"},
    {"between": "q = q.cuda()"},
    {"more": ", heads", "before": "super().__init__(); self.list = nn.ModuleList(heads)"},
    {"more": ", heads", "before": "super().__init__(); self.width = heads.width"},
    {"more": ", heads", "between": "q = self.h(q)"},
    {"first": "x = x['tokens']"},
    {"between": "raise ValueError('another input is wanted')"},
    {"between": "assert T == 3 * 4"},
    {"between": "q = q * self.ready"},  # after set_up
    {"between": "q = q * self.table[0]"},
    {"between": "q = q.view(B, 1, D) + math.pi if T == 1 else q.view(B, 1, D)"},  # a token at a time
    {"inputs": ", graph", "between": "q = q * graph.nodes"},
    {"inputs": ", mask", "between": "q = q.masked_fill(mask.lengths, 0)"},
    {"inputs": ", graph", "between": "q = q * gamma"},
    {"more": ", gain", "between": "q = q * self.gain / gain"},
    {"more": ", gain", "before": "super().__init__(); self.fast = math.sqrt(gain)"},
    {"more": ", cfg", "before": "super().__init__(); self.fast = cfg.fastness; unknown"},
    {"before": "super().__init__(); assert d_model % 7 == 0"},
    {"before": "super().__init__(); from no_such_package import fast"},
    {"between": "q = turn(q)"},  # of a package that is not here
])  # fmt: skip
def test_what_may_want_another_input_is_not_called_wrong(tmp_path: Path, parts: dict[str, str]) -> None:
    block = BLOCK.replace("import torch\n", "import torch\nfrom no_such_package import turn\n", 1)
    text = (block if "turn" in parts.get("between", "") else BLOCK).format(
        **{"more": "", "inputs": "", "before": "super().__init__()", "first": "pass", "between": "pass", "last": RETURN,
           **parts}
    )  # fmt: skip
    result = grade_text(text, "Attention", tmp_path)
    assert result.verdict == "uncallable" and not result.faults, described(result)
    assert 1 <= len(result.tried) <= 5


def test_the_line_is_that_of_any_file(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "heads.py").write_text(
        "def split(t, h):\n    return t.unflatten(-1, (h, -1)).transpose(1, 2).Tt\n"
    )
    text = BLOCK.format(
        more="", inputs="", before="super().__init__()", first="pass", between="q = split(x, 4)", last=""
    )
    result = grade_text(
        text.replace("import torch\n", "import torch\nfrom lib.heads import split\n", 1), "Attention", tmp_path
    )
    assert [(fault.id, fault.line) for fault in result.faults] == [("forward_raises", 2)], described(result)
    assert result.faults[0].place == "lib/heads.py, line 2"
    assert result.faults[0].facts["message"].startswith("AttributeError")


def test_a_mask_argument_that_raises_shows_its_line(tmp_path: Path) -> None:
    hide = "q = q if mask is None else q + 0\n        s = 1 if mask is None else q.mask_fill(mask, 0)"
    result = graded(tmp_path, inputs=", mask=None", between=hide)
    [named] = [fault for fault in result.faults if fault.id == "mask_argument_raises"]
    assert named.line == line_of(tmp_path, "mask_fill"), described(result)
    assert named.facts["error"] == "AttributeError" and "mask_fill" in named.facts["message"]


def test_the_attempt_that_comes_furthest_is_listed_first(tmp_path: Path) -> None:
    result = graded(tmp_path, between="q = q[:, :, :, :6]; assert q.size(2) == 3 * 4")
    assert result.verdict == "uncallable" and "AssertionError" in result.tried[0].text, described(result)


def test_a_length_that_only_tensors_show_is_tried(tmp_path: Path) -> None:
    before = "super().__init__(); self.bias = nn.Parameter(torch.zeros(5 * 5, 1))"
    between = "q = q.reshape(B, self.h, 5, 5, -1).flatten(2, 3) + self.bias"
    text = BLOCK.format(more="", inputs="", before=before, first="pass", between=between, last=RETURN)
    result = grade_text(text, "Attention", tmp_path, d_model=24)
    assert result.verdict == "uncallable" and not result.faults, described(result)
