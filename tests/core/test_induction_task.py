"""Induction: blocks of hidden length that repeat; the answer stands where the query's symbol was last followed."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from mhsa_cli.core.tasks import IGNORE, TASKS
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.core.tasks.induction import distinct


def test_a_row_is_one_block_of_different_symbols_repeated() -> None:
    task = TASKS["induction"](vocab_size=13, seq_len=11, min_period=3, max_period=7)
    batch = task.sample(stream_generator(1, "test", 0), 400)
    periods = set()
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        period = inputs.index(inputs[0], 1)
        block = inputs[:period]
        periods.add(period)
        assert len(set(block)) == period
        row = [block[t % period] for t in range(12)]
        assert inputs == row[:11]
        assert targets == [IGNORE] * period + row[period + 1 :]
    assert periods == {3, 4, 5, 6, 7}


def test_the_source_is_every_place_that_says_the_answer() -> None:
    """By search in the row itself: all places of the symbol that followed the query's symbol before."""
    task = TASKS["induction"](vocab_size=12, seq_len=14, min_period=2, max_period=9)
    batch = task.sample(stream_generator(2, "test", 0), 200)
    source = task.source(batch.inputs)
    assert source is not None
    for inputs, targets, rows in zip(batch.inputs.tolist(), batch.targets.tolist(), source, strict=True):
        for q, keys in enumerate(rows):
            after = {inputs[j + 1] for j in range(q) if inputs[j] == inputs[q]}
            assert after == (set() if targets[q] == IGNORE else {targets[q]})
            assert keys.nonzero().flatten().tolist() == [k for k, symbol in enumerate(inputs) if symbol in after]


def test_with_equal_symbols_the_source_is_one_period_back() -> None:
    """Not after the last occurrence. By hand, and by a road of its own: the shortest period that a row has."""
    task = TASKS["induction"](vocab_size=9, seq_len=7, min_period=3, max_period=4, distinct=False)
    rows = torch.tensor([[4, 4, 2, 4, 4, 2, 4], [4, 2, 4, 7, 4, 2, 4], [1, 2, 3, 4, 5, 6, 7], [8] * 7])
    found = task.source(rows)
    assert found is not None
    keys = [[row.nonzero().flatten().tolist() for row in one] for one in found.tril()]  # a causal model sees these
    assert keys[0] == [[], [], [], [0, 1, 3], [2], [0, 1, 3, 4], [0, 1, 3, 4, 6]]
    assert keys[1] == [[], [], [], [], [1], [0, 2, 4], [3]]
    assert not any(keys[2]) and keys[3] == [[], [], [], *([*range(t + 1)] for t in range(3, 7))]
    task = TASKS["induction"](vocab_size=4, seq_len=17, min_period=3, max_period=8, distinct=False)
    batch = task.held_out(stream_generator(2, "test", 0), 500)
    source = task.source(batch.inputs)
    assert source is not None
    shorter = 0
    for inputs, targets, keys_of in zip(batch.inputs.tolist(), batch.targets.tolist(), source, strict=True):
        drawn = targets.count(IGNORE)
        period = next(p for p in range(3, 17) if inputs[p:] == inputs[:-p])
        shorter += period < drawn
        assert keys_of.any(-1).int().argmax() == period <= drawn
        assert all(keys_of[t, t + 1 - period] for t in range(period, 17))
        for t in range(drawn, 16):  # the last answer is no input: of a shorter period it may be another
            assert {inputs[k] for k in keys_of[t].nonzero().flatten().tolist()} == {targets[t]}
    assert 0 < shorter < 25


def test_equal_symbols_are_drawn_one_by_one() -> None:
    task = TASKS["induction"](vocab_size=5, seq_len=14, min_period=7, max_period=7, distinct=False)
    batch = task.draw(4000, stream_generator(3, "test", 0))
    assert torch.equal(batch.inputs[:, 7:], batch.inputs[:, :7])
    pairs = batch.inputs[:, 0] * 5 + batch.inputs[:, 1]
    counts = torch.bincount(pairs, minlength=25).double()
    assert float(((counts - 160) ** 2 / 160).sum()) < 60  # chi-square, 24 degrees of freedom: p < 1e-4


def test_a_row_without_a_repeat_has_no_source() -> None:
    task = TASKS["induction"](vocab_size=12, seq_len=5, min_period=2, max_period=3)
    found = task.source(torch.tensor([[4, 7, 2, 1, 9], [4, 7, 4, 7, 4], [4, 7, 4, 2, 4]]))
    assert found is not None and not found[0].any()
    assert [row.nonzero().flatten().tolist() for row in found[1].tril()] == [[], [], [1], [0, 2], [1, 3]]
    assert [row.nonzero().flatten().tolist() for row in found[2].tril()] == [[], [], [1], [], [3]]  # it followed last


def test_every_period_is_as_likely() -> None:
    task = TASKS["induction"](vocab_size=9, seq_len=8, min_period=2, max_period=5)
    inputs = task.sample(stream_generator(3, "test", 0), 8000).inputs
    periods = ((inputs == inputs[:, :1]) & (torch.arange(8) > 0)).int().argmax(1)
    assert (torch.bincount(periods).double()[2:] / 8000).tolist() == pytest.approx([0.25] * 4, abs=0.02)


def test_periods_left_out_are_a_quarter_and_a_half_of_the_row() -> None:
    task = TASKS["induction"](vocab_size=30, seq_len=22)
    assert list(task.gaps) == list(range(5, 12)) and task.chance_loss == pytest.approx(math.log(30))


@pytest.mark.parametrize(("k", "vocab_size"), [(3, 4), (4, 4)])
def test_distinct_symbols_come_in_every_order_alike(k: int, vocab_size: int) -> None:
    drawn = distinct(24_000, k, vocab_size, stream_generator(5, "test", 0))
    orders = list(itertools.permutations(range(vocab_size), k))
    counts = torch.stack([(drawn == torch.tensor(order)).all(1).sum() for order in orders])
    assert int(counts.sum()) == 24_000  # nothing but permutations
    expected = 24_000 / len(orders)
    assert float(((counts - expected) ** 2 / expected).sum()) < 60  # chi-square, 23 degrees of freedom: p < 1e-4


def test_no_cost_grows_with_the_vocabulary() -> None:
    rows = distinct(5, 6, 2**40, stream_generator(6, "test", 0))
    assert rows.shape == (5, 6) and all(len(set(row)) == 6 for row in rows.tolist())


def test_a_corrupted_row_hides_what_one_query_needs() -> None:
    """Before the query its symbol is another one, which the row does not have; only that query is scored."""
    task = TASKS["induction"](vocab_size=11, seq_len=14, min_period=2, max_period=6)
    batch = task.draw(200, stream_generator(4, "test", 0))
    found = task.corrupt(batch, stream_generator(1, "corrupt", 0))
    asked = []
    for clean, row, own, targets in zip(*(t.tolist() for t in (batch.inputs, found.inputs, batch.targets, found.targets)), strict=True):  # fmt: skip # noqa: E501
        (query,) = (t for t, answer in enumerate(targets) if answer != IGNORE)
        assert targets[query] == own[query]
        changed = [t for t in range(14) if clean[t] != row[t]]
        assert changed == [t for t in range(query) if clean[t] == clean[query]] != []
        (symbol,) = {row[t] for t in changed}
        assert symbol not in clean and row[changed[-1] + 1] == targets[query]  # the token before the answer
        asked.append((query, symbol))
    assert len({query for query, _ in asked}) > 5 and len({symbol for _, symbol in asked}) > 5
    equal = TASKS["induction"](vocab_size=30, seq_len=14, min_period=2, max_period=6, distinct=False)
    batch = equal.draw(200, stream_generator(4, "test", 0))
    found = equal.corrupt(batch, stream_generator(1, "corrupt", 0))
    scored = found.targets != IGNORE
    assert scored.sum(1).max() == 1 and scored.sum() > 180
    held = equal.source(batch.inputs)
    assert held is not None  # the keys that hold the answer are as before
    same = (held & (found.inputs != batch.inputs).unsqueeze(1)).any(-1)
    assert not same[scored].any()
    full = TASKS["induction"](vocab_size=5, seq_len=12, min_period=5, max_period=5)
    batch = full.draw(9, stream_generator(4, "test", 0))
    found = full.corrupt(batch, stream_generator(1, "corrupt", 0))
    assert torch.equal(found.inputs, batch.inputs) and (found.targets == IGNORE).all()  # no symbol is left
