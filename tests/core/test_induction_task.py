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
    batch = task.sample(400, stream_generator(1, "test", 0))
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


def test_the_source_is_the_nearest_place_that_says_the_answer() -> None:
    """By search in the row itself: the last earlier place of the query's symbol, plus one."""
    task = TASKS["induction"](vocab_size=12, seq_len=14, min_period=2, max_period=9)
    batch = task.sample(200, stream_generator(2, "test", 0))
    source = task.source(batch.inputs)
    assert source is not None
    for inputs, targets, keys in zip(batch.inputs.tolist(), batch.targets.tolist(), source.tolist(), strict=True):
        for q, key in enumerate(keys):
            earlier = [j + 1 for j in range(q) if inputs[j] == inputs[q]]
            assert key == (earlier[-1] if earlier else -1)
            assert targets[q] == (inputs[key] if earlier else IGNORE)


def test_a_row_without_a_repeat_has_no_source() -> None:
    task = TASKS["induction"](vocab_size=12, seq_len=5, min_period=2, max_period=3)
    assert task.source(torch.tensor([[4, 7, 2, 1, 9], [4, 7, 4, 7, 4]])).tolist() == [[-1] * 5, [-1, -1, 1, 2, 3]]


def test_every_period_is_as_likely() -> None:
    task = TASKS["induction"](vocab_size=9, seq_len=8, min_period=2, max_period=5)
    inputs = task.sample(8000, stream_generator(3, "test", 0)).inputs
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
