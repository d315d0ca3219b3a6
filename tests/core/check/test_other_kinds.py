"""Attention of other kinds, and right attention with habits of its own: neither may be called wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.core.check import search
from mhsa_cli.records.check import Grade, Law
from tests.core.check.grading import grade_text, names_of, told

HEAD = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Block(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        self.h, self.d = n_heads, d_model // n_heads
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, d_model)
"""
FUSED = """
        self.qkv = nn.Linear(d_model, 3 * d_model)
        # made

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        # flat
        q, k, v = (t.view(B, T, self.h, -1).transpose(1, 2) for t in (q, k, v))
        # split
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        # scores
        s = s.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
        w = torch.softmax(s, -1)
        # weights
        w = self.drop(w)
        y = self.out((w @ v).transpose(1, 2).reshape(B, T, D))
        return y
"""
GROUPED = """
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, 2 * self.d, bias=False)
        self.value = nn.Linear(d_model, 2 * self.d, bias=False)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (f(x).view(B, T, -1, self.d).transpose(1, 2) for f in (self.query, self.key, self.value))
        # split
        k, v = (t.repeat_interleave(self.h // 2, 1) for t in (k, v))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        s = s.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
        # scores
        return self.out((self.drop(torch.softmax(s, -1)) @ v).transpose(1, 2).reshape(B, T, D))
"""
PAIRED = """
        self.to_q = nn.Linear(d_model, d_model, bias=False)
        self.to_kv = nn.Linear(d_model, 2 * d_model, bias=False)

    def forward(self, x):
        B, T, D = x.shape
        q, (k, v) = self.to_q(x), self.to_kv(x).chunk(2, -1)
        # flat
        q, k, v = (t.view(B, T, self.h, -1).transpose(1, 2) for t in (q, k, v))
        # split
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        # scores
        s = s.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
        return self.out((self.drop(torch.softmax(s, -1)) @ v).transpose(1, 2).reshape(B, T, D))
"""
NORMED = ("# split", "q, k = F.normalize(q, dim=-1) * 3, F.normalize(k, dim=-1)")
SLOPES = "2.0 ** -torch.arange(1, self.h + 1, dtype=x.dtype).view(-1, 1, 1)"
APART = "(torch.arange(T)[:, None] - torch.arange(T)).abs()"
ALIBI = ("# scores", f"s = s - {SLOPES} * {APART}")
WINDOW = ("# scores", f"s = s.masked_fill({APART} > 2, -math.inf)")
AHEAD = ("# scores", f"s = s.masked_fill({APART} > 1 + torch.arange(self.h).view(-1, 1, 1), -math.inf)")

OTHERS = {
    "grouped, normed": (GROUPED, NORMED),
    "grouped, window": (GROUPED, WINDOW),
    "grouped, ALiBi": (GROUPED, ALIBI),
    "q and kv, normed": (PAIRED, NORMED),
    "q and kv, window": (PAIRED, WINDOW),
    "q and kv, ALiBi": (PAIRED, ALIBI),
    "fused, normed": (FUSED, NORMED),
    "fused, window": (FUSED, WINDOW),
    "fused, ALiBi": (FUSED, ALIBI),
    "a window for each head": (FUSED, AHEAD),
    "normed over all heads": (FUSED, ("# flat", "q, k = F.normalize(q, dim=-1) * 3, F.normalize(k, dim=-1)")),
    "keys normed by a layer": (FUSED, ("# made", "self.kn = nn.LayerNorm(self.d)"), ("# split", "k = self.kn(k)")),
    "keys moved": (FUSED, ("# made", "self.shift = nn.Parameter(torch.ones(self.d))"),
                   ("# split", "k = F.normalize(k, dim=-1) + self.shift")),
    "normed over all heads by a layer": (FUSED, ("# made", "self.qn = nn.RMSNorm(d_model)"),
                                         ("# flat", "q = self.qn(q)")),
    "a temperature for each head": (FUSED, ("# made", "self.t = nn.Parameter(torch.ones(n_heads, 1, 1))"),
                                    ("# scores", "s = s * self.t")),
    "a fixed temperature for each head": (
        FUSED, ("# made", "self.register_buffer('rate', torch.linspace(1, 2, n_heads).view(-1, 1, 1))"),
        ("# scores", "s = s * self.rate")),
    "heads that talk": (FUSED, ("# made", "self.talk = nn.Parameter(torch.eye(n_heads))"),
                        ("# scores", "s = torch.einsum('bhij,hg->bgij', s, self.talk)")),
    "a sink for each head": (
        FUSED, ("# made", "self.sink = nn.Parameter(torch.zeros(n_heads))"),
        ("torch.softmax(s, -1)",
         "torch.softmax(torch.cat([s, self.sink.view(-1, 1, 1).expand(B, self.h, T, 1)], -1), -1)[..., :-1]")),
}  # fmt: skip


def written(body: str, *changes: tuple[str, str]) -> str:
    """Write a block with changes, each of which must have its one place."""
    source = HEAD + body
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def law(grade: Grade, name: str) -> Law:
    return next(law for law in grade.laws if law.name == name)


def broken(grade: Grade) -> set[str]:
    return {law.name for law in grade.laws if law.passed is False}


@pytest.mark.parametrize("kind", OTHERS)
def test_another_kind_of_attention_is_not_clear(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.2)
    body, *changes = OTHERS[kind]
    found = grade_text(written(body, *changes), "Block", tmp_path)
    assert found.verdict == "unclear" and broken(found) == {"equal to the reference"}, told(found)


@pytest.mark.parametrize("body", [FUSED, GROUPED, PAIRED])
def test_the_same_blocks_without_it_are_right(body: str, tmp_path: Path) -> None:
    found = grade_text(written(body), "Block", tmp_path)
    assert found.verdict == "right", told(found)


@pytest.mark.parametrize("change", [
    ("w = self.drop(w)", "w = self.drop(w).roll(1, 1)"),
    ("# split", "v = v.roll(1, 1)"),
    ("# scores", "s = s + s.mean(1, keepdim=True)"),
])  # fmt: skip
def test_heads_that_mix_are_wrong(change: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.2)
    found = grade_text(written(FUSED, change), "Block", tmp_path)
    assert found.verdict == "wrong" and "heads are separate" in broken(found), told(found)


def test_an_output_in_another_order_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.2)
    change = ("y = self.out((w @ v).transpose(1, 2).reshape(B, T, D))",
              "y = self.out(1.1 * self.out((w @ v).transpose(1, 2).reshape(B, T, D)))")  # fmt: skip
    found = grade_text(written(FUSED, change), "Block", tmp_path)
    assert found.verdict == "wrong" and "order of heads" in broken(found), told(found)


def test_a_law_of_heads_that_is_not_asked_says_what_the_reading_leaves_out(tmp_path: Path) -> None:
    body, *changes = OTHERS["a temperature for each head"]
    found = grade_text(written(body, *changes), "Block", tmp_path)
    assert law(found, "order of heads").passed is None and "leaves out t" in law(found, "order of heads").seen


def test_queries_and_keys_swapped_are_named_beside_one_matrix_for_keys_and_values(tmp_path: Path) -> None:
    found = grade_text(written(PAIRED, ("q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)")), "Block", tmp_path)
    assert names_of(found) == {"names_q_k_swapped"}, told(found)
    turned = written(PAIRED, ("(k, v) = ", "(v, k) = "), ("q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)"))
    assert names_of(found := grade_text(turned, "Block", tmp_path)) == {"names_q_k_swapped"}, told(found)
    found = grade_text(written(PAIRED, ("(k, v) = ", "(v, k) = ")), "Block", tmp_path)
    assert found.verdict == "right", told(found)


@pytest.mark.parametrize("change", [
    ("# scores", "s = s + 0 * self.idle.sum()"),
    ("# scores", "s = s"),
])  # fmt: skip
def test_a_parameter_without_influence_is_unused(change: tuple[str, str], tmp_path: Path) -> None:
    made = ("# made", "self.idle = nn.Parameter(torch.ones(5, 3))")
    found = grade_text(written(FUSED, made, change), "Block", tmp_path)
    assert names_of(found) == {"parameter_unused"}, told(found)


def test_a_block_without_parameters_is_told_so(tmp_path: Path) -> None:
    source = "from torch import nn\n\nclass Attention(nn.Module):\n    def forward(self, x):\n        return x\n"
    found = grade_text(source, "Attention", tmp_path)
    assert law(found, "every parameter is used").seen == "it has no parameters"
    assert found.verdict != "right"


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
    assert found.verdict == "right" and broken(found) == {"a NaN stays in its row", "extreme scores"}, told(found)
    found = grade_text(source.replace("FILL", "-12"), "attention", tmp_path)
    assert found.verdict == "wrong" and "causal" in broken(found), told(found)


RETURNS = ("return y", "return y, shown")


@pytest.mark.parametrize(("place", "shown"), [
    ("# scores", "shown = s"),
    ("# weights", "shown = s.detach()"),
    ("# split", "shown = q @ k.transpose(-2, -1)"),
])  # fmt: skip
def test_scores_that_are_returned_are_no_weights(place: str, shown: str, tmp_path: Path) -> None:
    found = grade_text(written(FUSED, (place, shown), RETURNS), "Block", tmp_path)
    assert found.verdict == "right" and not names_of(found), told(found)
    assert law(found, "weights returned are those used").seen == "it returns its scores, not its weights"
    assert law(found, "rows of weights sum to one").passed is True


def test_other_weights_than_those_used_are_no_scores(tmp_path: Path) -> None:
    found = grade_text(written(FUSED, ("# weights", "shown = w.roll(1, 1)"), RETURNS), "Block", tmp_path)
    assert names_of(found) == {"weights_not_used"}, told(found)


def test_weights_after_dropout_are_named_and_make_nothing_wrong(tmp_path: Path) -> None:
    dropped = ("w = self.drop(w)", "w = shown = self.drop(w)")
    found = grade_text(written(FUSED, dropped, RETURNS), "Block", tmp_path)
    assert found.verdict == "right" and names_of(found) == {"weights_after_dropout"}, told(found)
    assert law(found, "weights returned in training").edge
    found = grade_text(written(FUSED, dropped, RETURNS, ("self.d)", "D)")), "Block", tmp_path)
    assert found.verdict == "wrong" and "scale_d_model" in names_of(found), told(found)


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
    assert found.verdict == "right" and not names_of(found), told(found)
    assert law(found, "weights returned in training").passed is False


def test_a_graph_that_is_kept_is_told_as_what_it_is(tmp_path: Path) -> None:
    keeps = ("# split", "k = k + 0 * getattr(self, 'past', torch.zeros(())); self.past = k.mean()")
    found = grade_text(written(FUSED, keeps), "Block", tmp_path)
    assert found.verdict == "right" and broken(found) == {"a second step of training"}, told(found)
    assert "with their graph" in law(found, "a second step of training").seen


@pytest.mark.parametrize(("fill", "says"), [("-math.inf", "not finite"), ("-1e9", "a later token")])
def test_dropout_on_scores_is_wrong(fill: str, says: str, tmp_path: Path) -> None:
    changes = [("torch.softmax(s, -1)", "torch.softmax(self.drop(s), -1)"), ("w = self.drop(w)", "")]
    found = grade_text(written(FUSED, *changes).replace("-math.inf", fill), "Block", tmp_path)
    assert found.verdict == "wrong" and "dropout_in_eval" not in names_of(found), told(found)
    assert says in law(found, "dropout only in training").seen


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
    monkeypatch.setattr(search, "SECONDS", 0.2)
    found = grade_text(written(FUSED, ("        # split", STATES[state].lstrip("\n"))), "Block", tmp_path)
    assert names_of(found) == {"state_between_calls"}, told(found)


def test_a_length_that_is_taken_and_not_used_is_no_fault_of_a_wrong_block(tmp_path: Path) -> None:
    takes = ("n_heads, dropout=0.0", "n_heads, max_len=16, dropout=0.0")
    found = grade_text(written(FUSED, takes), "Block", tmp_path)
    assert found.verdict == "right" and law(found, "rows that are too long").passed is True, told(found)
    for wrong in [("triu(1)", "triu(2)"), ("torch.softmax(s, -1)", "torch.softmax(s, -2)")]:
        found = grade_text(written(FUSED, takes, wrong), "Block", tmp_path)
        assert found.verdict == "wrong" and law(found, "rows that are too long").passed is None, told(found)
