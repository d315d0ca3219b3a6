"""What a grade tells, of many blocks: what is seen in the right words, once, with figures that differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.check.laws import LAWS
from mhsa_cli.check.locate.axes import BATCH, TIME
from mhsa_cli.check.sentences import differing_figures, list_names
from mhsa_cli.records.check import Grade, Law
from mhsa_cli.renderers.pictures import check_words
from tests.check.grading import described, grade_text, names_of
from tests.check.kinds import law

BLOCK = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        self.n = n_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(dropout)
        # made

    def forward(self, x):
        # first
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.n, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        s = q @ k.mT / q.size(-1) ** 0.5
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        # later
        w = s.masked_fill(later, float("-inf")).softmax(-1)
        # weights
        y = (self.drop(w) @ v).transpose(1, 2).flatten(2)
        return self.out(y)
"""


def graded(folder: Path, *changes: tuple[str, str]) -> Grade:
    """Grade the block with lines changed."""
    text = BLOCK
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return grade_text(text, "Block", folder)


def line_with(*changes: tuple[str, str], marked: str) -> int:
    text = BLOCK
    for old, new in changes:
        text = text.replace(old, new)
    return next(number for number, line in enumerate(text.splitlines(), 1) if marked in line)


def test_the_block_is_right(tmp_path: Path) -> None:
    found = graded(tmp_path)
    assert found.verdict == "right" and not names_of(found), described(found)


@pytest.mark.parametrize(
    ("old", "new", "cut", "line"),
    [
        ("# weights", "w = w.detach()", ["query.weight", "query.bias", "key.weight"], "detach"),
        ("# weights", "with torch.no_grad():\n            v = v * 1.0", ["value.weight", "value.bias"], "no_grad"),
        ("# weights", "w = torch.tensor(w.tolist(), dtype=x.dtype)", ["query.weight"], "tolist"),
        ("    def forward", "    @torch.no_grad()\n    def forward", ["query.weight", "query.bias"], "no_grad"),
        ("# weights", "v = v.data", ["value.weight", "value.bias"], ".data"),
    ],
)
def test_what_moves_the_output_without_a_gradient_is_detached(
    old: str, new: str, cut: list[str], line: str, tmp_path: Path
) -> None:
    found = graded(tmp_path, (old, new))
    (fault,) = found.faults
    assert fault.id == "gradient_cut" and fault.facts["names"][: len(cut)] == cut
    assert fault.line == line_with((old, new), marked=line)


def test_what_does_not_move_it_is_unused_beside_what_is_cut(tmp_path: Path) -> None:
    found = graded(tmp_path, ("# made", "self.gate = nn.Linear(d_model, 1)"), ("# weights", "w = w.detach()"))
    assert names_of(found) == {"gradient_cut", "parameter_unused"}
    unused = next(fault for fault in found.faults if fault.id == "parameter_unused")
    assert unused.facts == {"names": ["gate.weight", "gate.bias"]} and unused.line == 14


def test_a_frozen_table_is_none_that_never_trains(tmp_path: Path) -> None:
    table = "self.table = nn.Parameter(torch.ones(3), requires_grad=False)"
    assert graded(tmp_path, ("# made", table)).verdict == "right"


def test_a_mask_that_hides_the_nearest_only_has_a_hole(tmp_path: Path) -> None:
    change = ("# later", "later = later.triu(1).tril(2)")
    found = graded(tmp_path, change)
    assert names_of(found) == {"mask_with_a_hole"} and found.verdict == "wrong", described(found)
    assert found.faults[0].facts == {"token": 0, "near": 1, "far": 3}
    assert found.codes["mask"] == "some_later"
    instance = (
        "later = torch.ones(t, t, dtype=torch.bool).triu(1)",
        "later = torch.zeros(t, t, dtype=torch.bool)\n        for i in range(t):\n"
        "            later[i, i + 1 : i + 3] = True",
    )
    assert graded(tmp_path, instance).faults[0].line == line_with(instance, marked="later[i, ")


@pytest.mark.parametrize(
    ("change", "hidden"),
    [
        ("later = later.triu(3)", "some_later"),
        ("later = later.clone(); later[:3, :3] = False", "prefix"),
        ("later = later.triu(3) | later.triu(3).T", "sliding_window"),
    ],
)
def test_looking_ahead_a_prefix_and_a_window_have_none(change: str, hidden: str, tmp_path: Path) -> None:
    found = graded(tmp_path, ("# later", change))
    assert "mask_with_a_hole" not in names_of(found)
    assert found.codes["mask"] == hidden


def test_the_law_that_says_most_leads(tmp_path: Path) -> None:
    found = graded(tmp_path, ("# weights", "v = v[:, :1].expand_as(v)"))
    assert "parameters_used" not in {law.id for law in found.laws if law.passed is False}


def test_rows_that_are_too_long_never_lead() -> None:
    names = ("too_long", "equal_to_reference", "order_of_heads", "parameters_used")
    laws = [Law("", False, None, "", id=name, rank=LAWS[name].rank) for name in names]
    for kept in range(2, 5):
        leading = check_words.leading(Grade("a", "wrong", {}, laws[:kept], [], []), "fails")
        assert leading and leading.id == names[kept - 1]


def test_a_block_that_is_the_reference_matches_a_variant(tmp_path: Path) -> None:
    found = graded(tmp_path, ("# weights", "w = w if t > 1 else 0.5 * w"))
    leading = check_words.leading(found, "fails")
    assert leading and leading.id == "one_token" and law(found, "equal_to_reference").passed, described(found)


def test_two_figures_that_differ_do_not_print_alike() -> None:
    assert differing_figures(1.5, 2.5) == "1.5, wanted 2.5"
    assert differing_figures(1.14701, 1.14702) == "1.14701, wanted 1.14702"
    assert differing_figures(1.147, 1.147 + 3e-12) == "1.147, 3e-12 off"


def test_of_many_names_the_first_are_listed() -> None:
    assert list_names(["a", "b", "c"]) == "a, b, c"
    assert list_names([str(i) for i in range(24)]) == "0, 1 and 22 more"


HEADS = """
from torch import nn
class Head(nn.Module):
    def __init__(self, d_model, d_head):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(d_model, d_head) for _ in range(3))
    def forward(self, x):
        w = self.query(x) @ self.key(x).mT / self.key(x).size(-1) ** 0.5
        return w.masked_fill(torch.ones(w.shape[-2:]).triu(1).bool(), -torch.inf).softmax(-1) @ self.value(x)
class Heads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = [Head(d_model, d_model // n_heads) for _ in range(n_heads)]
        self.proj = nn.Linear(d_model, d_model)
    def forward(self, x):
        return self.proj(torch.cat([head(x) for head in self.heads], -1))
"""


def test_what_is_seen_is_said_once(tmp_path: Path) -> None:
    found = grade_text("import torch\n" + HEADS, "Heads", tmp_path)
    (fault,) = found.faults
    assert fault.id == "parameters_not_registered" and fault.explanation.count("parameters()") == 1
    assert len(fault.facts["names"]) == 24 and len(fault.explanation) < 250
    assert law(found, "parameters_registered").facts == fault.facts
    shown = graded(
        tmp_path,
        ("        y = (self.drop(w) @ v)", "        w = self.drop(w)\n        y = (w @ v)"),
        ("return self.out(y)", "return self.out(y), w"),
    )
    assert [f.explanation.count("rows do not sum to one") for f in shown.faults] == [1]
    changed = graded(tmp_path, ("# first", "x.mul_(2)"))
    assert "(" not in changed.faults[0].explanation


def test_what_is_kept_between_calls_is_no_dropout(tmp_path: Path) -> None:
    kept = ("# weights", "v = self.kept.setdefault(x.shape, v.detach())")
    found = graded(tmp_path, ("# made", "self.kept = {}"), kept)
    assert names_of(found) == {"state_between_calls"}, described(found)


TIME_FIRST = """
from torch import nn
class Wrapped(nn.Module):
    {docs}
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_heads)
    def forward(self, x{note}):
        {unpacked}
        return self.attention(x, x, x)[0]
"""


@pytest.mark.parametrize(
    ("said", "called"),
    [
        ({"unpacked": "# x is (B, T, D)"}, "B"),
        ({"docs": '"""Attention of (batch, seq_len, width)."""'}, "batch"),
        ({"unpacked": "bsz, length, _ = x.size()"}, "bsz"),
        ({"note": ": 'batch tokens d_model'"}, "batch"),
        ({"unpacked": "T, B, D = x.shape  # (B, T, D) elsewhere"}, ""),
        ({"docs": '"""(T, B, D)"""'}, ""),
        ({"unpacked": "n, m = x.shape[:2]"}, ""),
        ({}, ""),
    ],
)
def test_a_block_that_takes_time_first_and_says_otherwise_is_right_only_then(
    said: dict[str, str], called: str, tmp_path: Path
) -> None:
    parts = {"docs": "", "note": "", "unpacked": ""} | said
    found = grade_text(TIME_FIRST.format(**parts), "Wrapped", tmp_path)
    assert found.verdict == "right" and "time_first" in {note.kind for note in found.notes}
    sentence, row = check_words.verdict_sentence(found), "; ".join(check_words.remarks(found))
    warned = f"only if x is (T, B, D): your code calls its first axis {called}"
    assert (warned in sentence) == (warned in row) == bool(called), sentence


def test_names_of_axes() -> None:
    assert all(map(BATCH.fullmatch, ("B", "bsz", "batch_size"))) and all(
        map(TIME.fullmatch, ("T", "seq_len", "tokens"))
    )
    assert not BATCH.fullmatch("T") and not TIME.fullmatch("B")
