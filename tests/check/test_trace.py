"""What a trace of the user's code shows: the branches that ran, in every file of the user's, and nothing else."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from mhsa_cli.check.locate.anatomy import Anatomy
from mhsa_cli.check.locate.evidence import has_mask, has_rotation
from mhsa_cli.check.locate.executed import Runs, executed_flow
from mhsa_cli.check.locate.flow import Flow
from mhsa_cli.check.source.load import load
from mhsa_cli.check.source.trace import Trace, tracing
from tests.check.grading import grade_text, names_of


@pytest.fixture(autouse=True)
def path_of_imports() -> Iterator[None]:
    before, known = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = before
    if "parts" not in known:
        sys.modules.pop("parts", None)


def flow_of_call(folder: Path, files: dict[str, str], *args: Any) -> Flow:
    """Run `f` of main.py and list what ran."""
    for name, text in files.items():
        (folder / name).write_text(text)
    source = load(f"{folder / 'main.py'}:f")
    with tracing() as call:
        source.attention(*args)
    return executed_flow(Runs(str(source.path), "f", type(source.attention), source.loading, Trace(), call))


def texts(nodes: list[ast.AST], kind: type[ast.AST] = ast.Call) -> list[str]:
    return [ast.unparse(node) for node in nodes if isinstance(node, kind)]


@pytest.mark.parametrize(
    ("flag", "ran", "skipped"),
    [(True, ["a()", "c()", "d()"], ["b()", "print()"]), (False, ["b()", "print()"], ["a()", "c()", "d()"])],
)
def test_only_the_branch_that_ran_is_listed(flag: bool, ran: list[str], skipped: list[str], tmp_path: Path) -> None:
    text = (
        "def f(on):\n    x = a() if on else b()\n    if on: c()\n    else:\n        print()\n    return on and d()\n"
        "a = b = c = d = lambda: 1\n"
    )
    found = flow_of_call(tmp_path, {"main.py": text}, flag)
    assert sorted(texts(found.call)) == ran
    assert sorted(call for node in found.skipped for call in texts(list(ast.walk(node)))) == skipped


def test_calls_are_followed_through_objects_into_other_files(tmp_path: Path) -> None:
    files = {
        "main.py": "from parts import TABLE, helper\n\ndef f(x):\n    return [TABLE['turn'](y) for y in helper(x)]\n",
        "parts.py": "def turn(x):\n    return x.cos()\n\n@staticmethod\ndef helper(x):\n    return [x.sin()]\n"
        "TABLE = {'turn': turn}\n\ndef unused(x):\n    return x.tan()\n",
    }
    found = flow_of_call(tmp_path, files, torch.ones(3))
    assert [call for call in texts(found.call) if call.startswith("x.")] == ["x.sin()", "x.cos()"]
    names = {Path(found.file[node]).name for node in found.call if isinstance(node, ast.Return)}
    assert names == {"main.py", "parts.py"}


def test_a_global_belongs_to_the_construction_once_it_is_used(tmp_path: Path) -> None:
    text = "import math\nROOT = math.sqrt(5)\nOTHER = math.sqrt(7)\n\ndef f(x, y=OTHER):\n    return x / ROOT\n"
    found = flow_of_call(tmp_path, {"main.py": text}, 3)
    assert texts(found.construction) == ["math.sqrt(5)"]


HEAD = """
import torch
from torch import nn

{extra}
class Block(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))
        {made}

    def angles(self, x):
        return x.cos(), x.triu()

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (f(x).view(B, T, self.h, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        s = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
        {call}
        return self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D))
"""
MASK = "torch.ones(16, 16).tril()"


@pytest.mark.parametrize(
    ("made", "call", "faults"),
    [
        ("pass", "pass", set()),
        (f"self.mask = {MASK}", "pass", {"mask_no_effect"}),  # made, and not touched
        (f"self.mask = {MASK} if n_heads > 9 else None", "if self.mask is not None: s = s * self.mask", set()),
        (f"self.on, self.mask = False, {MASK}", "if self.on: s = s.masked_fill(self.mask == 0, -9e9)", set()),
        ("n = torch.arange(7)", "s.masked_fill(torch.arange(T)[:, None] < torch.arange(T), -9e9)", {"mask_no_effect"}),
        ("self.rope = torch.arange(6.0).cos()", "pass", {"rope_ignored"}),
        ("self.on, self.rope = 0, torch.arange(6.0).cos()", "if self.on: s = s * self.rope.sum()", set()),
        ("self.pos = torch.zeros(9, 6); self.pos[:, 0::2] = torch.ones(9, 3).sin()", "pass", set()),  # to be added
        ("self.rope = torch.zeros(6); self.rope[0::2] = torch.ones(3).sin()", "pass", {"rope_ignored"}),
    ],
)
def test_what_a_block_has_and_does_not_touch_is_a_fault(made: str, call: str, faults: set[str], tmp_path: Path) -> None:
    found = grade_text(HEAD.format(extra="", made=made, call=call), "Block", tmp_path)
    assert names_of(found) - {"mask_not_a_buffer"} == faults


def test_equal_code_in_two_files_is_told_apart(tmp_path: Path) -> None:
    text = "def g(x):\n    return x.tril()\n"
    main = "def f(x):\n    return g(x) + parts.g(x)\nimport parts\n"
    found = flow_of_call(tmp_path, {"parts.py": text, "main.py": f"{text}{main}"}, torch.ones(3, 5))
    assert texts(found.call).count("x.tril()") == 2 and not found.skipped


def test_what_follows_a_long_loop_is_listed(tmp_path: Path) -> None:
    text = "def f(x):\n    for n in range(9000):\n        if n == 8999:\n            x = x.tril()\n    return x.sin()\n"
    found = flow_of_call(tmp_path, {"main.py": text}, torch.ones(3, 5))
    assert [call for call in texts(found.call) if call.startswith("x.")] == ["x.tril()", "x.sin()"]


TABLE = """R = torch.zeros(16, 6, 6, dtype=torch.float64)
        for n in range(16):
            for i in range(0, 6, 2):
                angle = torch.tensor(n * 10000 ** (-i / 6), dtype=torch.float64)
                R[n, i, i], R[n, i + 1, i + 1] = angle.cos(), angle.cos()
                R[n, i, i + 1], R[n, i + 1, i] = -angle.sin(), angle.sin()
        self.register_buffer("R", R)"""


def test_a_rotation_by_a_table_without_a_name_is_tried(tmp_path: Path) -> None:
    turned = "q, k = (torch.einsum('tij,bhtj->bhti', self.R[:T].to(q.dtype), t) for t in (q, k))"
    call = f"{turned}; s = q @ k.transpose(-2, -1) / 6 ** 0.5"
    found = grade_text(HEAD.format(extra="", made=TABLE, call=call), "Block", tmp_path)
    assert found.verdict == "right" and found.codes["positions"] == "rope"


def test_compiled_code_is_followed_as_well(tmp_path: Path) -> None:
    extra = "@torch.jit.script\ndef low(s):\n    s.masked_fill(torch.ones_like(s).triu(1) > 0, -9e9)\n    return s\n"
    text = HEAD.format(extra=extra, made="pass", call="s = low(s)").replace("class", "@torch.compile(mode='x')\nclass")
    found = grade_text(text, "Block", tmp_path)
    assert [(fault.id, fault.line) for fault in found.faults] == [("mask_no_effect", 7)]


def test_evidence_is_of_this_instance(tmp_path: Path) -> None:
    text = "def f(x, on):\n    y = x.tril() if on else x\n    return y.sin() if on else y\n"
    for on in (True, False):
        found = Anatomy(flow_of_call(tmp_path, {"main.py": text}, torch.ones(3, 5), on))
        assert (has_mask(found, hides=False), has_rotation(found)) == (on, on)
