"""A block that has no causal mask: a remark by itself, a fault where one is required."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.renderers.pictures.check_csv import grades_csv
from tests.check.grading import described, grade_text, names_of
from tests.check.planted import STYLES

SOURCE = """
import math, torch
from torch import nn
from torch.nn import functional as F

class Attn(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.causal = n_heads, False
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.n_heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        HOW
        return self.out(y.transpose(1, 2).reshape(B, T, D))
"""
PLAIN = "y = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1) @ v"
FILLED = "s = q @ k.mT / math.sqrt(q.size(-1)); MASKED; y = s.softmax(-1) @ v"
TRIANGLE = "torch.ones(T, T, dtype=torch.bool).triu(1)"
MASKS = {  # how scores become an output -> the line of a mask, or None
    "none": (PLAIN, None),
    "filled in part": (FILLED.replace("MASKED", "z = torch.zeros(B); z[0] += 1; s = torch.where(s > 9e9, s, s)"), None),
    "not run": (FILLED.replace("MASKED", f"s = s.masked_fill({TRIANGLE}, -9e9) if self.causal else s"), None),
    "kernel": ("y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)", 15),
}


@pytest.mark.parametrize("how", MASKS)
def test_without_a_mask_a_block_is_right_with_a_remark(tmp_path: Path, how: str) -> None:
    source = SOURCE.replace("HOW", MASKS[how][0])
    found = grade_text(source, "Attn", tmp_path)
    (remark,) = found.faults
    assert found.passed and (remark.id, remark.edge, remark.line) == ("mask_missing", True, None), described(found)
    assert grades_csv([found]).splitlines()[1].split(",")[2:5] == ["", "", remark.title]


@pytest.mark.parametrize("how", MASKS)
def test_where_a_mask_is_required_its_absence_has_no_line_but_that_of_a_mask(tmp_path: Path, how: str) -> None:
    text, line = MASKS[how]
    found = grade_text(SOURCE.replace("HOW", text), "Attn", tmp_path, causal=True)
    (fault,) = found.faults
    assert found.verdict == "wrong" and (fault.id, fault.edge) == ("mask_missing", False), described(found)
    assert (fault.line, fault.departs) == (line, "")


def test_a_mask_that_is_lost_is_no_missing_one(tmp_path: Path) -> None:
    source = SOURCE.replace("HOW", FILLED.replace("MASKED", f"s.masked_fill({TRIANGLE}, -9e9)"))
    assert names_of(grade_text(source, "Attn", tmp_path, causal=True)) == {"mask_no_effect"}


def test_a_mask_that_cannot_be_passed_is_no_missing_one(tmp_path: Path) -> None:
    how = FILLED.replace("MASKED", "s = s.masked_fill(mask == 0, -9e9) if mask else s")
    source = SOURCE.replace("HOW", how).replace("forward(self, x)", "forward(self, x, mask=None)")
    assert names_of(grade_text(source, "Attn", tmp_path)) == {"mask_argument_raises"}


def test_a_missing_mask_is_named_beside_another_fault(tmp_path: Path) -> None:
    source = SOURCE.replace("HOW", PLAIN.replace("q.size(-1)", "D"))
    for causal, edge in ((None, True), (True, False)):
        found = grade_text(source, "Attn", tmp_path / str(causal), causal=causal)
        assert {fault.id: fault.edge for fault in found.faults} == {"scale_d_model": False, "mask_missing": edge}


def test_a_masked_block_has_no_remark(tmp_path: Path) -> None:
    style = STYLES["fused"]
    assert not grade_text(style.right(), style.entry, tmp_path).faults
