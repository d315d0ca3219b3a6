"""Weights whose names and shapes say nothing: what each number moves says which role it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.check.call.block import adapt
from mhsa_cli.check.grade import GRADE_SIZES
from mhsa_cli.check.match.context import SEED, CallContext
from mhsa_cli.check.match.measured_layout import measured_layouts
from mhsa_cli.check.source.load import load
from tests.check.grading import described, grade_text, names_of

BLOCK = """import torch
from torch import nn


def drawn(*sizes):
    return nn.Parameter(torch.randn(*sizes))


class Block(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        D, H, d = d_model, n_heads, d_model // n_heads
        G = max(1, H // 2)
        self.count = H
        {made}

    def forward(self, x):
        B, T, D = x.shape
        H, d = self.count, D // self.count
        G = max(1, H // 2)

        def split(t):
            return t.view(B, T, -1, d).transpose(1, 2)

        {project}
        k, v = (t.repeat_interleave(H // t.size(1), 1) for t in (k, v))
        scores = q @ k.transpose(-2, -1) / d**0.5
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf"))
        y = scores.softmax(-1) @ v
        y = y.transpose(1, 2).reshape(B, T, D)
        return {out}
"""
# Name -> the lines of the constructor, what gives q, k and v, and the output.
LAYOUTS = {
    "names that say nothing": (
        ("self.alpha, self.beta, self.gamma, self.delta = (nn.Linear(D, D) for _ in range(4))",),
        "q, k, v = (split(f(x)) for f in (self.gamma, self.alpha, self.delta))",
        "self.beta(y)",
    ),
    "matrices, the output first": (
        ("self.M1, self.M2, self.M3, self.M4 = (drawn(D, D) for _ in range(4))",),
        "v, k, q = (split(x @ w) for w in (self.M2, self.M3, self.M4))",
        "y @ self.M1.T",
    ),
    "a list of all four": (
        ("self.steps = nn.ModuleList(nn.Linear(D, D, bias=False) for _ in range(4))",),
        "q, k, v = (split(self.steps[i](x)) for i in (3, 0, 2))",
        "self.steps[1](y)",
    ),
    "one fused matrix for each head": (
        ("self.cells = nn.ParameterList(drawn(D, 3 * d) for _ in range(H))", "self.last = nn.Linear(D, D)"),
        "k, q, v = torch.stack([x @ w for w in self.cells], 1).chunk(3, -1)",
        "self.last(y)",
    ),
    "one tensor of five axes, innermost what": (
        ("self.T1 = drawn(D, H, d, 3)", "self.T2 = drawn(D, D)"),
        "q, v, k = torch.einsum('btm,mhdn->nbhtd', x, self.T1)",
        "y @ self.T2",
    ),
    "queries beside a fused matrix of fewer keys and values": (
        ("self.one = nn.Linear(D, D)", "self.two = nn.Linear(D, 2 * G * d)", "self.three = nn.Linear(D, D)"),
        "q, (v, k) = split(self.one(x)), (split(t) for t in self.two(x).chunk(2, -1))",
        "self.three(y)",
    ),
    "lists in a list, a bias by head without a name": (
        ("self.parts = nn.ModuleList(nn.ModuleList(nn.Linear(D, d, False) for _ in range(3)) for _ in range(H))",
         "self.shift = drawn(H, 1, d)", "self.mix = nn.Linear(D, D)"),
        "q, k, v = (torch.stack([one[i](x) for one in self.parts], 1) for i in range(3)); v = v + self.shift",
        "self.mix(y)",
    ),
}  # fmt: skip
FAULTS = {
    "scale_d_model": (("/ d**0.5", "/ D**0.5"),),
    "softmax_over_queries": (("softmax(-1)", "softmax(-2)"),),
    "softmax_over_heads": (("softmax(-1)", "softmax(1)"), ('float("-inf")', "-1e9")),
    "mask_inverted": ((".triu(1)", ".tril()"),),
}


def source_of(name: str) -> str:
    """Source of a block with one of the layouts."""
    made, project, out = LAYOUTS[name]
    return BLOCK.format(made="\n        ".join(made), project=project, out=out)


@pytest.mark.parametrize("name", LAYOUTS)
def test_right_weights_are_read_and_a_fault_beside_them_is_named(name: str, tmp_path: Path) -> None:
    right = grade_text(source_of(name), "Block", tmp_path)
    assert right.verdict == "right" and not names_of(right), described(right)
    fault, changes = list(FAULTS.items())[list(LAYOUTS).index(name) % len(FAULTS)]
    source = source_of(name)
    for change in changes:
        source = source.replace(*change)
    wrong = grade_text(source, "Block", tmp_path)
    assert names_of(wrong) == {fault}, described(wrong)


def context_of(source: str, folder: Path) -> CallContext:
    """Build a block from its source, with wide weights."""
    path = folder / "block.py"
    path.write_text(source)
    block, instance = adapt(load(f"{path}:Block"), GRADE_SIZES)
    return CallContext(block, instance, block.call_form, GRADE_SIZES.n_heads, instance.draw(SEED))


def test_the_numbers_of_each_role_are_found(tmp_path: Path) -> None:
    c = context_of(source_of("matrices, the output first"), tmp_path)
    roles = measured_layouts(c)[0].roles
    for role, name in (("q", "M4"), ("k", "M3"), ("v", "M2")):
        assert getattr(roles, role).flatten(0, 1).T.equal(c.numbers[name]), role
    assert roles.out is not None and roles.out.equal(c.numbers["M1"])
    assert all(slot.read().equal(c.numbers[slot.path]) for slot in c.slots)  # the block is as it was


# Each computes attention, with numbers that are shared or lie otherwise than in every other weight: a fault, no layout.
SHARED = {
    "values from keys": ("softmax(-1) @ v", "softmax(-1) @ k"),
    "keys from queries": ("q @ k.", "q @ q."),
    "one matrix for all heads": (".view(B, T, -1, d)", ".view(B, T, -1, d)[:, :, :1].expand(-1, -1, H, -1)"),
    "heads merged by view": ("y.transpose(1, 2).reshape", "y.reshape"),
    "features merged first": ("y.transpose(1, 2).reshape", "y.permute(0, 2, 3, 1).reshape"),
    "features of the keys split first": ("q @ k.", "q @ k.transpose(1, 2).reshape(B, T, d, H).permute(0, 3, 1, 2)."),
}  # fmt: skip


@pytest.mark.parametrize("what", SHARED)
def test_no_layout_excuses_a_fault(what: str, tmp_path: Path) -> None:
    right, (old, new) = source_of("matrices, the output first"), SHARED[what]
    assert old in right and measured_layouts(context_of(right, tmp_path))
    assert not measured_layouts(context_of(right.replace(old, new), tmp_path))


def test_a_name_that_says_another_role_is_a_fault(tmp_path: Path) -> None:
    numbered = "nn.ModuleList(nn.Linear(D, d, False) for _ in range(3))"
    named = "nn.ModuleDict({n: nn.Linear(D, d, False) for n in 'qkv'})"
    source = source_of("lists in a list, a bias by head without a name").replace(numbered, named)
    right, wrong = (source.replace("one[i](x)", f"one[{names}[i]](x)") for names in ("'qkv'", "'qvk'"))
    assert measured_layouts(context_of(right, tmp_path)) and not measured_layouts(context_of(wrong, tmp_path))
