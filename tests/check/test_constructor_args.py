"""Arguments of a constructor, a config or a call: inferred from usual names, else reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.check.sentences import make_note
from mhsa_cli.records.check import Grade
from tests.check.grading import described, grade_text, names_of

BLOCK = """
import torch
from torch import nn
from dataclasses import dataclass

@dataclass
class Config:
    n_embd: int = 768
    n_head: int = 12

class Attention(nn.Module):
    def __init__(self, {arguments}):
        super().__init__()
        {first}
        self.h = {heads}
        self.q, self.k, self.v, self.o = (nn.Linear({width}, {width}) for _ in range(4))

    def forward(self, x{more}):
        {between}
        q, k, v = (f(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        s = (q @ k.mT / q.size(-1) ** 0.5).masked_fill(torch.ones(x.size(1), x.size(1)).triu(1) == 1, float('-inf'))
        return self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


def graded(folder: Path, arguments: str, *given: str, **parts: str) -> Grade:
    usual: dict[str, Any] = {"first": "pass", "more": "", "between": "pass", "width": "d_model", "heads": "n_heads"}
    return grade_text(BLOCK.format(**{**usual, **parts, "arguments": arguments}), "Attention", folder, arguments=given)


CONFIG = {"width": "cfg.n_embd", "heads": "cfg.n_head"}


@pytest.mark.parametrize(
    "setting",
    ["init_range", "initializer_range", "layer_norm_eps", "attn_pdrop", "resid_pdrop", "use_bias", "debug", "device",
     "dtype", "use_cache", "_attn_implementation", "qk_norm", "n_kv_heads"],
)  # fmt: skip
def test_a_config_has_what_is_usual(tmp_path: Path, setting: str) -> None:
    result = graded(tmp_path, "cfg", first=f"self.of = cfg.{setting}; cfg['{setting}']", **CONFIG)
    assert result.verdict == "right", described(result)


@pytest.mark.parametrize("way", ["cfg.hardness", "cfg['hardness']"])
@pytest.mark.parametrize("where", ["first", "between"])
def test_what_a_config_lacks_is_named_and_can_be_given(tmp_path: Path, way: str, where: str) -> None:
    parts = {"first": "self.cfg = cfg", where: "self.cfg = cfg; " * (where == "first") + "cfg = self.cfg; " + way}
    result = graded(tmp_path, "cfg", **{**CONFIG, **parts})
    assert result.verdict == "uncallable"
    assert (result.tried[0].kind, result.tried[0].facts) == ("unknown_setting", {"name": "hardness"})
    result = graded(tmp_path, "cfg", "hardness=3", **{**CONFIG, **parts})
    assert result.verdict == "right" and not result.notes, described(result)


@pytest.mark.parametrize("names", ["n_state, n_head", "n_embed, n_heads", "d_out_kq, nhead", "dim, heads"])
def test_a_constructor_is_read_by_usual_names(tmp_path: Path, names: str) -> None:
    width, heads = names.split(", ")
    result = graded(tmp_path, f"{names}, n_ctx, d_head, init_range", width=width, heads=heads)
    assert result.verdict == "right", described(result)


WRAPPER = """
import torch
from torch import nn

class Head(nn.Module):
    def __init__(self, d_in, d_out_kq, d_out_v):
        super().__init__()
        self.d_out_kq = d_out_kq
        self.query, self.key = (nn.Parameter(torch.rand(d_in, d_out_kq)) for _ in range(2))
        self.value = nn.Parameter(torch.rand(d_in, d_out_v))

    def forward(self, x):
        scores = (x @ self.query) @ (x @ self.key).transpose(-2, -1) / self.d_out_kq**0.5
        return scores.softmax(-1) @ (x @ self.value)

class Wrapper(nn.Module):
    def __init__(self, d_in, d_out_kq, d_out_v, num_heads):
        super().__init__()
        self.heads = nn.ModuleList([Head(d_in, d_out_kq, d_out_v) for _ in range(num_heads)])
        self.out = nn.Linear(num_heads * d_out_v, d_in)

    def forward(self, x):
        return self.out(torch.cat([head(x) for head in self.heads], dim=-1))
"""


@pytest.mark.parametrize(("name", "width"), [("Wrapper", "d_out_v=6"), ("Head", "d_out_v=24")])
def test_a_width_beside_a_number_of_heads_is_that_of_one(tmp_path: Path, name: str, width: str) -> None:
    result = grade_text(WRAPPER, name, tmp_path)
    assert result.verdict == "right" and width in result.detected["built"], described(result)


def test_a_class_called_head_is_no_number_of_heads(tmp_path: Path) -> None:
    for arguments, width in (("width, size", "width"), ("size", "24")):
        text = WRAPPER[: WRAPPER.index("class Wrapper")].replace("d_in, d_out_kq, d_out_v", arguments)
        text = text.replace("(d_in, d_out_kq)", f"({width}, size)").replace("(d_in, d_out_v)", f"({width}, size)")
        result = grade_text(text.replace("d_out_kq", "d").replace("= d\n", "= size\n"), "Head", tmp_path)
        assert result.verdict == "right" and not names_of(result), described(result)


def test_what_is_given_reaches_the_call(tmp_path: Path) -> None:
    odd = {"more": ", temper", "between": "assert temper == 3"}
    assert graded(tmp_path, "d_model, n_heads", **odd).verdict == "uncallable"
    result = graded(tmp_path, "d_model, n_heads", "temper=3", **odd)
    assert result.verdict == "right" and not result.notes, described(result)
    both = graded(tmp_path, "d_model, n_heads, temper", "temper=3", first="assert temper == 3", **odd)
    assert both.verdict == "right", described(both)


@pytest.mark.parametrize(
    ("arguments", "parts", "there_are"),
    [
        ("d_model, n_heads", {}, "d_model, n_heads, x"),
        ("cfg", CONFIG, "n_head, n_embd, x"),
        ("cfg: Config", CONFIG, "n_embd, n_head, x"),
    ],
)
def test_an_argument_that_nothing_takes_is_reported(
    tmp_path: Path, arguments: str, parts: dict[str, str], there_are: str
) -> None:
    result = graded(tmp_path, arguments, "nonsense=3", **parts)
    said = make_note("unused_argument", name="nonsense", names=there_are.split(", "))
    assert result.verdict == "right" and said in result.notes, result
    failing = graded(tmp_path, arguments, "nonsense=3", **{**parts, "between": "raise ValueError"})
    assert failing.verdict == "uncallable" and said in failing.notes, failing


def test_what_takes_anything_is_given_it(tmp_path: Path) -> None:
    result = graded(tmp_path, "d_model, n_heads, **others", "sense=3", first="assert others == {'sense': 3}")
    assert result.verdict == "right" and not result.notes, described(result)


def test_an_argument_that_a_function_does_not_take_is_reported(tmp_path: Path) -> None:
    text = "import torch\n\ndef attention(q, k, v, gain=1):\n    s = gain * q @ k.mT / q.size(-1) ** 0.5\n"
    text += "    return s.softmax(-1) @ v\n"
    result = grade_text(text, "attention", tmp_path, arguments=("nonsense=3", "gain=1"))
    assert result.verdict == "right" and [note.kind for note in result.notes].count("unused_argument") == 1, result


ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("corpus")
parser.add_argument("--data", required=True)
group = parser.add_argument_group("model")
group.add_argument("--d_model", type=int, default=128)
group.add_argument("--n_heads", type=int, required=True)
parser.set_defaults(odd=3)
print("this line is not needed")
args = parser.parse_args()
"""


def test_a_parsed_command_line_has_its_defaults(tmp_path: Path) -> None:
    block = BLOCK.format(
        arguments="", first="pass", more="", between="pass", width="args.d_model", heads="args.n_heads"
    )
    result = grade_text(ARGPARSE + block.replace("(self, )", "(self)"), "Attention", tmp_path)
    assert result.verdict == "right", described(result)
    assert result.notes == [make_note("skipped", where="line 10 runs", name="Attention")]


@pytest.mark.parametrize("config", ["dict(n_embd=768, n_head=12)", "types.SimpleNamespace(n_embd=768, n_head=12)"])
def test_a_config_of_the_file_has_our_sizes(tmp_path: Path, config: str) -> None:
    held = {"width": "{}n_embd{}", "heads": "{}n_head{}"}
    ends = ("MY_CONFIG['", "']") if config.startswith("dict") else ("MY_CONFIG.", "")
    parts = {name: text.format(*ends) for name, text in held.items()}
    block = BLOCK.format(arguments="", first="pass", more="", between="pass", **parts).replace("(self, )", "(self)")
    result = grade_text(f"import types\nMY_CONFIG = {config}\n{block}", "Attention", tmp_path)
    assert result.verdict == "right", described(result)


@pytest.mark.parametrize("annotation", ["", ": int"])
@pytest.mark.parametrize("uses", [
    "assert wide % many == 0",  # what divides what
    "self.part = wide // many",
    "self.heads = [1 for _ in range(many)]",
    "self.reach = reach; self.register_buffer('tri', torch.ones(reach, reach).tril())",  # what sizes a table
    "pass",
])  # fmt: skip
def test_a_role_is_inferred_by_use(tmp_path: Path, uses: str, annotation: str) -> None:
    names = ", ".join(name + annotation for name in ("many", "wide", *["reach"] * ("reach" in uses)))
    between = "assert x.size(1) <= self.reach" if "reach" in uses else "pass"  # what is compared with the length
    result = graded(tmp_path, names, first=uses, between=between, width="wide", heads="many")
    assert result.verdict == "right" and result.detected["built"].startswith("Attention(many=4, wide=24"), described(
        result
    )


def test_a_setting_is_inferred_by_use(tmp_path: Path) -> None:
    first = "self.cfg = cfg; assert cfg['breadth'] % self.cfg.pieces == 0"
    result = graded(tmp_path, "cfg", first=first, width="cfg.breadth", heads="self.cfg.pieces")
    assert result.verdict == "right", described(result)


def test_a_number_that_scales_is_not_guessed(tmp_path: Path) -> None:
    result = graded(tmp_path, "d_model, n_heads, sharp: int", first="self.s = sharp", between="x = x * self.s")
    assert result.verdict == "uncallable" and result.tried[0].facts == {"name": "sharp"}, described(result)
    result = graded(tmp_path, "d_model, n_heads, sharp: int", first="self.s = sharp", between="x.reshape(-1, self.s)")
    assert result.verdict == "right", described(result)


@pytest.mark.parametrize("returned", ["", ", s.softmax(-1)"])
@pytest.mark.parametrize(("width", "heads"), [("d_k", "d_head"), ("head_dim", "d_k"), ("part", "d_v")])
def test_heads_are_counted_where_names_mislead(tmp_path: Path, width: str, heads: str, returned: str) -> None:
    block = BLOCK.replace("flatten(2))", f"flatten(2)){returned}")
    parts = {"first": "pass", "more": "", "between": "pass", "width": width, "heads": heads}
    result = grade_text(block.format(arguments=f"{width}, {heads}", **parts), "Attention", tmp_path)
    assert result.verdict == "right" and f"{heads}=4" in result.detected["built"], described(result)


MULTIPLE = "assert d_model // n_heads % {0} == 0"


@pytest.mark.parametrize(("parts", "width"), [
    ({"first": MULTIPLE.format(4)}, 32),
    ({"first": MULTIPLE.format(16)}, 64),
    ({"between": "x.view(*x.shape[:2], self.h, 2, 4, -1)"}, 32),
    ({"between": "x.view(*x.shape[:2], self.h, 8)"}, 0),  # made for one width
    ({"first": "assert n_heads == 3"}, 0),
])  # fmt: skip
def test_other_sizes_are_tried_where_the_usual_ones_fail(tmp_path: Path, parts: dict[str, str], width: int) -> None:
    result = graded(tmp_path, "d_model, n_heads", **parts)
    sizes = [note.facts for note in result.notes if note.kind == "other_sizes"]
    assert sizes == [{"d_model": width, "d_head": width // 4}] * bool(width), described(result)
    assert (result.verdict == "right") is bool(width), described(result)
    stated = grade_text((tmp_path / "block.py").read_text(), "Attention", tmp_path, d_model=24)
    assert stated.verdict != "right", described(stated)


@pytest.mark.parametrize(("arguments", "width", "heads", "first"), [
    ("", "30", "5", "pass"), ("dropout=0.1", "2 * 16", "2", "pass"), ("", "18", "n", "n = self.parts = 6"),
])  # fmt: skip
def test_sizes_may_be_those_of_the_code(tmp_path: Path, arguments: str, width: str, heads: str, first: str) -> None:
    result = graded(tmp_path, arguments, width=width, heads=heads, first=first)
    assert result.verdict == "right" and result.codes["weights"] == "read", described(result)


def test_a_length_may_be_that_of_the_code(tmp_path: Path) -> None:
    result = graded(tmp_path, "d_model, n_heads", first="self.n = 10", between="x = x + torch.zeros(10, 1)")
    assert result.verdict == "right", described(result)
    [law] = [law for law in result.laws if law.id == "shorter_sequences"]
    assert law.passed is False and law.edge, law
