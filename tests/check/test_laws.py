"""Each law fails on a block that breaks it, and on no other: breakers are written into one right source."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.check.faults import FAULTS
from mhsa_cli.check.laws import LAWS
from mhsa_cli.check.match import search
from tests.check.grading import grade_text

RIGHT = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Block(nn.Module):
    def __init__(self, d_model, n_heads, max_seq_len, dropout=0.0):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("d_model must be divisible by n_heads")
        self.h, self.longest = n_heads, max_seq_len
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("keep", torch.ones(max_seq_len, max_seq_len, dtype=torch.bool).tril())
        # more

    def forward(self, x, return_weights=False):
        B, T, D = x.shape
        # first
        q, k, v = (t.view(B, T, self.h, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(D // self.h)
        scores = scores.masked_fill(~self.keep[:T, :T], float("-inf"))
        weights = F.softmax(scores, dim=-1)
        shown = weights
        y = self.out((self.drop(weights) @ v).transpose(1, 2).reshape(B, T, D))
        # last
        return (y, shown) if return_weights else y
"""
# Law -> what is written in another way. Other laws that a breaker breaks are not listed.
BREAKERS = {
    "shape": ("# last", "y = y.transpose(1, 2)"),
    "equal_to_reference": ("math.sqrt(D // self.h)", "math.sqrt(D)"),
    "causal": (".tril()", ".tril(1)"),
    "rows_sum_to_one": ("F.softmax(scores, dim=-1)", "torch.sigmoid(scores)"),
    "one_token": ("# last", "y = y * (T > 1)"),
    "several_sizes": ("# first", "assert T == 7"),
    "batch_rows_independent": ("# last", "y = y - x.mean(0)"),
    "heads_separate": ("F.softmax(scores, dim=-1)", "F.softmax(scores, dim=1)"),
    "order_of_heads": (
        "/ math.sqrt(D // self.h)",
        "* torch.linspace(1, 2, self.h).view(-1, 1, 1) / math.sqrt(D // self.h)",
    ),
    "parameters_used": ("# more", "self.gate = nn.Linear(d_model, 5)"),
    "parameters_registered": (
        "self.out = nn.Linear(d_model, d_model)",
        "self.outs = [nn.Linear(d_model, d_model)]",
    ),
    "same_answer_twice": ("# last", "y = y + 0.01 * torch.randn_like(y)"),
    "dropout_only_in_training": ("self.drop(weights)", "F.dropout(weights, 0.3)"),
    "no_memory": ("# first", "x = x + 0.01 * (getattr(self, 'last', T) - T); self.last = T"),
    "weights_returned": ("shown = weights", "shown = weights.roll(1, dims=1)"),
    "weights_before_dropout": ("shown = weights", "shown = self.drop(weights)"),
    "saved_and_loaded": ("# more", "self.gain = torch.rand(1)"),
    "mask_moves": ('self.register_buffer("keep", ', "self.keep = ("),
    "gradients_finite": ("# last", "y = y.detach()"),
    "input_left_alone": ("# last", "x.mul_(2)"),
    "heads_must_divide": ("raise ValueError(", "str("),
    "too_long": ("~self.keep[:T, :T]", "F.pad(~self.keep, (0, max(0, T - self.longest)) * 2)[:T, :T]"),
    "second_step": ("# last", "y = y + 0 * getattr(self, 'past', 0.0); self.past = y.sum()"),
    "nan_stays_in_its_row": ("# last", "y = y + 0 * x.sum()"),
    "extreme_scores": ('float("-inf")', "-1e4"),
    "half_precision": ('float("-inf")', "-1e9"),
}
ALSO = {  # what else a breaker needs
    "parameters_registered": [("self.out((", "self.outs[0]((")],
    "saved_and_loaded": [("# last", "y = y * self.gain")],
    "heads_must_divide": [
        ("nn.Linear(d_model, 3 * d_model)", "nn.Linear(d_model, 3 * (d_model // n_heads * n_heads))"),
        ("nn.Linear(d_model, d_model)", "nn.Linear(d_model // n_heads * n_heads, d_model // n_heads * n_heads)"),
        ("reshape(B, T, D)", "reshape(B, T, -1)"),
    ],
}


def test_the_right_one_breaks_none_and_is_asked_all(tmp_path: Path) -> None:
    found = grade_text(RIGHT, "Block", tmp_path)
    assert found.verdict == "right" and not found.faults
    assert [law.id for law in found.laws if law.passed is not True] == []
    assert [law.id for law in found.laws] == list(LAWS)


def test_every_law_has_its_breaker_and_its_words() -> None:
    assert set(BREAKERS) == set(LAWS)
    for entry in LAWS.values():
        assert set(entry.shows) <= set(entry.says) and set(entry.shows.values()) <= set(FAULTS)


def broken(name: str) -> str:
    """Write the right source with what breaks a law."""
    source = RIGHT
    for old, new in [BREAKERS[name], *ALSO.get(name, [])]:
        assert source.count(old) == 1
        source = source.replace(old, new)
    return source


@pytest.mark.parametrize("name", LAWS)
def test_a_law_sees_what_breaks_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.2)  # most breakers are no variant; which they are is not asked here
    found = grade_text(broken(name), "Block", tmp_path)
    law = next(law for law in found.laws if law.id == name)
    assert law.passed is False and law.finding, f"{law}; {found.tried}"
    assert found.verdict == ("right" if LAWS[name].edge else "wrong")


@pytest.mark.parametrize("n_heads", [2, 3, 6])
def test_a_width_that_the_heads_do_not_divide_is_found_for_any_number_of_them(n_heads: int, tmp_path: Path) -> None:
    found = grade_text(broken("heads_must_divide"), "Block", tmp_path, d_model=12, n_heads=n_heads)
    law = next(law for law in found.laws if law.id == "heads_must_divide")
    assert law.code == "narrower" and law.facts["D"] % n_heads != 0
