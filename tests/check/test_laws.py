"""Each law fails on a block that breaks it, and on no other: breakers are written into one right source."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.check.faults import FAULTS
from mhsa_cli.check.laws import LAWS
from mhsa_cli.check.match import search
from tests.check.grading import grade_text, names_of

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

    def forward(self, query, key, value, return_weights=False, past=None, use_cache=False, key_padding_mask=None):
        x = query
        B, T, D = x.shape
        # first
        three = zip((x, key, value), self.qkv.weight.chunk(3), self.qkv.bias.chunk(3))
        q, k, v = (F.linear(*one).view(B, T, self.h, -1).transpose(1, 2) for one in three)
        P = 0 if past is None else past[0].size(2)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(D // self.h)
        scores = scores.masked_fill(~self.keep[P : P + T, : P + T], float("-inf"))
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None], -torch.inf)
        weights = F.softmax(scores, dim=-1)
        shown = weights
        y = self.out((self.drop(weights) @ v).transpose(1, 2).reshape(B, T, D))
        # last
        return (y, shown) if return_weights else (y, (k, v)) if use_cache else y
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
    "order_of_heads": (".transpose(1, 2).reshape(B, T, D)", ".reshape(B, T, D)"),
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
    "shorter_sequences": ("# first", "assert T == self.longest"),
    "given_masks": ("scores = scores.masked_fill(key_p", "scores.masked_fill(key_p"),
    "cached_steps": ("self.keep[P : P + T, : P + T]", "self.keep[:T, : P + T]"),
    "inputs_used": ("(x, key, value)", "(x, key, key)"),
    "too_long": ("~self.keep[P :", "F.pad(~self.keep, (0, max(0, T - self.longest)) * 2)[P :"),
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
    assert found.verdict == "right" and not names_of(found)
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
    monkeypatch.setattr(search, "TRIES", 500)  # most breakers are no variant; which they are is not asked here
    found = grade_text(broken(name), "Block", tmp_path)
    law = next(law for law in found.laws if law.id == name)
    assert law.passed is False and law.finding, f"{law}; {found.tried}"
    assert found.verdict == ("right" if LAWS[name].edge else "wrong")


@pytest.mark.parametrize("n_heads", [2, 3, 6])
def test_a_width_that_the_heads_do_not_divide_is_found_for_any_number_of_them(n_heads: int, tmp_path: Path) -> None:
    found = grade_text(broken("heads_must_divide"), "Block", tmp_path, d_model=12, n_heads=n_heads)
    law = next(law for law in found.laws if law.id == "heads_must_divide")
    assert law.code == "narrower" and law.facts["D"] % n_heads != 0


NO_CACHE = {  # what a call takes and returns, and what it does with it
    "another sequence": (
        "memory",
        "k, v = (t.view(B, -1, self.h, D // self.h).transpose(1, 2) for t in self.qkv(memory).chunk(3, -1)[1:])",
        "x",
    ),
    "nothing": ("state", "pass", "(k, v)"),
}


@pytest.mark.parametrize("kind", NO_CACHE)
def test_what_does_not_grow_is_no_cache_that_hides(kind: str, tmp_path: Path) -> None:
    name, use, returned = NO_CACHE[kind]
    source = RIGHT.replace("past=None, use_cache=False", f"{name}=None").replace("if past is not", f"if {name} is not")
    source = source.replace("k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)", use)
    source = source.replace("0 if past is None else past[0].size(2)", "0").replace(": P + T]", ": k.size(2)]")
    source = source.replace("(y, (k, v)) if use_cache else y", f"(y, {returned})")
    found = grade_text(source, "Block", tmp_path)
    assert found.verdict == "right", found.faults


def test_a_step_need_not_see_what_a_window_hides(tmp_path: Path) -> None:
    source = RIGHT.replace(".tril())", ".tril().triu(-2))")
    source = source.replace("# first", "x = x + (T == 1 and past is not None)")  # the step differs
    found = grade_text(source, "Block", tmp_path)
    law = next(law for law in found.laws if law.id == "cached_steps")
    assert law.code == "differs" and law.passed is None


USES = (  # of optional arguments that are no dropout
    "scores if self.mask is None else scores + self.mask",
    "scores.masked_fill(~self.keep[:T, :T], self.fill) if self.fill else scores",
)


@pytest.mark.parametrize("use", USES)
def test_a_rate_of_dropout_is_tried_only_where_it_is_one(use: str, tmp_path: Path) -> None:
    source = RIGHT.replace("dropout=0.0)", "dropout=0.0, mask=None, fill=0.0)")
    source = source.replace("# more", "self.mask, self.fill = mask, fill")
    source = source.replace('scores.masked_fill(~self.keep[P : P + T, : P + T], float("-inf"))', use)
    found = grade_text(source, "Block", tmp_path, causal=False)
    assert found.verdict == "right", (found.faults, found.switched)
    assert not found.switched
