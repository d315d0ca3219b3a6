"""Right attention with habits of its own is not called wrong; habits that are faults are."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.check.match import search
from tests.check.grading import described, grade_text, names_of
from tests.check.kinds import FUSED, broken, law, written


def test_a_softmax_over_the_largest_of_all_scores_is_right(tmp_path: Path) -> None:
    source = """
import numpy as np

def softmax(s):
    e = np.exp(s - s.max())
    return e / e.sum(-1, keepdims=True)

def attention(x, W_q, W_k, W_v, W_o, n_heads):
    B, T, D = x.shape
    q, k, v = ((x @ w).reshape(B, T, n_heads, -1).transpose(0, 2, 1, 3) for w in (W_q, W_k, W_v))
    s = q @ k.transpose(0, 1, 3, 2) / np.sqrt(D // n_heads)
    s = np.where(np.tril(np.ones((T, T), dtype=bool)), s, FILL)
    return (softmax(s) @ v).transpose(0, 2, 1, 3).reshape(B, T, D) @ W_o
"""
    found = grade_text(source.replace("FILL", "-np.inf"), "attention", tmp_path)
    assert found.verdict == "right" and broken(found) == {"nan_stays_in_its_row", "extreme_scores"}, described(found)
    found = grade_text(source.replace("FILL", "-12"), "attention", tmp_path)
    assert found.verdict == "wrong" and "causal" in broken(found), described(found)


RETURNS = ("return y", "return y, shown")


@pytest.mark.parametrize(("place", "shown"), [
    ("# scores", "shown = s"),
    ("# weights", "shown = s.detach()"),
    ("# split", "shown = q @ k.transpose(-2, -1)"),
])  # fmt: skip
def test_scores_that_are_returned_are_no_weights(place: str, shown: str, tmp_path: Path) -> None:
    found = grade_text(written(FUSED, (place, shown), RETURNS), "Block", tmp_path)
    assert found.verdict == "right" and not names_of(found), described(found)
    assert law(found, "weights_returned").code == "scores"
    assert law(found, "rows_sum_to_one").passed is True


def test_other_weights_than_those_used_are_no_scores(tmp_path: Path) -> None:
    found = grade_text(written(FUSED, ("# weights", "shown = w.roll(1, 1)"), RETURNS), "Block", tmp_path)
    assert names_of(found) == {"weights_not_used"}, described(found)


def test_weights_after_dropout_are_named_and_make_nothing_wrong(tmp_path: Path) -> None:
    dropped = ("w = self.drop(w)", "w = shown = self.drop(w)")
    found = grade_text(written(FUSED, dropped, RETURNS), "Block", tmp_path)
    assert found.verdict == "right" and names_of(found) == {"weights_after_dropout"}, described(found)
    assert law(found, "weights_before_dropout").edge
    found = grade_text(written(FUSED, dropped, RETURNS, ("self.d)", "D)")), "Block", tmp_path)
    assert found.verdict == "wrong" and "scale_d_model" in names_of(found), described(found)


def test_torchs_own_returns_them_after_dropout_and_nothing_is_named(tmp_path: Path) -> None:
    source = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        self.mha = nn.MultiheadAttention(d_model, n_heads, dropout=dropout, batch_first=True)

    def forward(self, x):
        mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
        return self.mha(x, x, x, attn_mask=mask, average_attn_weights=False)
"""
    found = grade_text(source, "Attention", tmp_path)
    assert found.verdict == "right" and not names_of(found), described(found)
    assert law(found, "weights_before_dropout").passed is False


def test_a_kept_graph_is_reported_as_such(tmp_path: Path) -> None:
    keeps = ("# split", "k = k + 0 * getattr(self, 'past', torch.zeros(())); self.past = k.mean()")
    found = grade_text(written(FUSED, keeps), "Block", tmp_path)
    assert found.verdict == "right" and broken(found) == {"second_step"}, described(found)
    assert law(found, "second_step").code == "kept_graph"


@pytest.mark.parametrize(("fill", "code"), [("-math.inf", "not_finite"), ("-1e9", "leaks")])
def test_dropout_on_scores_is_wrong(fill: str, code: str, tmp_path: Path) -> None:
    changes = [("torch.softmax(s, -1)", "torch.softmax(self.drop(s), -1)"), ("w = self.drop(w)", "")]
    found = grade_text(written(FUSED, *changes).replace("-math.inf", fill), "Block", tmp_path)
    assert found.verdict == "wrong" and "dropout_in_eval" not in names_of(found), described(found)
    assert law(found, "dropout_only_in_training").code == code


STATES = {
    "the last one of the same number of rows": """
        if getattr(self, "past", None) is not None and self.past.size(0) == B:
            k = torch.cat([self.past, k], 2)[:, :, :T]
        self.past = k.detach()""",
    "keys by their shape": """
        self.kept = getattr(self, "kept", {})
        k = self.kept.setdefault(x.shape, k.detach())""",
    "a mean of what was seen": """
        self.mean = 0.9 * getattr(self, "mean", 0.0) + 0.1 * x.mean().detach()
        k = k + self.mean""",
}


@pytest.mark.parametrize("state", STATES)
def test_what_is_kept_between_calls_is_named(state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TRIES", 500)
    found = grade_text(written(FUSED, ("        # split", STATES[state].lstrip("\n"))), "Block", tmp_path)
    assert names_of(found) == {"state_between_calls"}, described(found)


def test_a_length_that_is_taken_and_not_used_is_no_fault_of_a_wrong_block(tmp_path: Path) -> None:
    takes = ("n_heads, dropout=0.0", "n_heads, max_len=16, dropout=0.0")
    found = grade_text(written(FUSED, takes), "Block", tmp_path)
    assert found.verdict == "right" and law(found, "too_long").passed is True, described(found)
    for wrong in [("triu(1)", "triu(2)"), ("torch.softmax(s, -1)", "torch.softmax(s, -2)")]:
        found = grade_text(written(FUSED, takes, wrong), "Block", tmp_path)
        assert found.verdict == "wrong" and law(found, "too_long").passed is None, described(found)
