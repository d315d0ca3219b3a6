"""Lifts by the distance between repeats: rows, distances and reasons by hand, and each figure computed another way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from mhsa_cli.config.schema import ModelConfig
from mhsa_cli.core.heads import gaps
from mhsa_cli.core.heads.capture import run_with_activations
from mhsa_cli.core.heads.gaps import (
    Alphabet,
    alphabet_of,
    evenly_spaced,
    gap_lifts,
    gaps_to_test,
    mixed_rows,
    repeated_blocks,
)
from mhsa_cli.core.heads.scores import by_head, concat_heads
from mhsa_cli.core.heads.targets import duplicates, followers, mass_on, target_keys
from mhsa_cli.core.model.attention import causal_window
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Batch, Task
from mhsa_cli.core.tasks.text import Text
from mhsa_cli.records.heads import GapLimit
from tests.core.handmade import Attended, Period, T, V, handmade, induction
from tests.core.reference import redraw


def model_of(vocab_size: int, length: int) -> TransformerLM:
    """Two layers of three heads with wide weights, for rows of a length."""
    config = ModelConfig(d_model=12, n_heads=3, n_layers=2, residual=True)
    model = TransformerLM(config, vocab_size=vocab_size, max_seq_len=length)
    redraw(model, 0)
    return model.eval()


PLAIN = Alphabet(torch.arange(V), None)


class Started(Period):
    """Rows of period 6 after token 2; symbol 12 is a separator."""

    separator = 12

    def rows(self, n: int, generator: Generator) -> Tensor:
        return torch.cat([torch.full((n, 1), 2), super().rows(n, generator)[:, 1:]], 1)


def test_distances_to_try_are_not_those_trained_nor_what_divides_them() -> None:
    assert gaps_to_test([6], range(2, 13)) == ([6], [4, 7, 10, 12])  # 2 and 3 divide 6; 5, 8, 9 and 11 lie between
    assert gaps_to_test([], range(2, 13)) == ([], [2, 5, 9, 12])
    assert gaps_to_test(range(5, 9), range(2, 8)) == ([5, 6, 7], [])  # 2, 3 and 4 divide 6 or 8
    assert evenly_spaced([1, 2, 3]) == [1, 2, 3] and evenly_spaced(range(10)) == [0, 3, 6, 9]


def test_rows_keep_the_start_of_the_task_and_hold_no_special_token() -> None:
    assert alphabet_of(Period(6), 1).start is None and alphabet_of(Period(6), 1).symbols.tolist() == list(range(V))
    found = alphabet_of(Started(6), 1)
    assert found.start == 2 and found.symbols.tolist() == [0, 1, *range(3, 12)]
    for rows in (repeated_blocks(found, 5, T, seed=1), mixed_rows(found, T, 1, 20)[0]):
        assert rows.size(1) == T and (rows[:, 0] == 2).all()
        assert not {2, 12} & set(rows[:, 1:].flatten().tolist())


def test_blocks_hold_distinct_symbols_again_and_again() -> None:
    rows = repeated_blocks(PLAIN, 7, T, seed=1, rows=5)
    assert rows.shape == (5, T) and torch.equal(rows[:, 7:], rows[:, :-7]) and int(rows.max()) < V
    assert all(len(set(row)) == 7 for row in rows[:, :7].tolist())
    assert len({tuple(row) for row in rows.tolist()}) == 5
    after = repeated_blocks(Alphabet(torch.arange(4), 9), 3, 9, seed=1)
    assert torch.equal(after[:, 4:], after[:, 1:-3]) and (after[:, 0] == 9).all()


def test_the_distance_of_a_query_is_that_of_the_last_repeat() -> None:
    rows, back = mixed_rows(Alphabet(torch.tensor([3, 5, 8]), 1), 9, 1, 30)
    for row, distances in zip(rows.tolist(), back.tolist(), strict=True):
        for q, distance in enumerate(distances):
            assert distance == next((d for d in range(1, q + 1) if row[q - d] == row[q]), 0)


@pytest.mark.parametrize("room", [gaps.MAX_WEIGHTS, 1])
@pytest.mark.parametrize("task", [Period(6), Started(6)], ids=["plain", "started"])
def test_distances_scored_together_are_those_scored_one_by_one(
    task: Task, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other computation: one pass and one target per distance, in every row."""
    monkeypatch.setattr(gaps, "MAX_WEIGHTS", room)
    model, length = model_of(V, 13), 13
    found, visible = gap_lifts(model, task, seed=1), causal_window(length, length)
    assert len(found.trained) == 1 and len(found.unseen) == len(found.duplicate) == 4 and found.limit is None
    for target, part in ((followers, {**found.trained, **found.unseen}), (duplicates, found.duplicate)):
        for gap, lift in part.items():
            ids = repeated_blocks(alphabet_of(task, 1), gap, length, seed=1)
            keys = target_keys(target(ids), visible)
            weights = by_head(concat_heads(run_with_activations(model, ids).weights))
            assert keys is not None and len(lift) == 6
            wanted = (mass_on(weights, keys) - keys.uniform) / (1 - keys.uniform)
            assert float((lift - wanted).abs().max()) < 1e-6


def test_with_few_symbols_distances_are_mixed_within_a_row() -> None:
    """Of three symbols a block has no distance but 2 and 3; in random rows there are more. By plain loops."""
    model, task = model_of(3, 13), Attended("self", vocab_size=3)
    found = gap_lifts(model, task, seed=1)
    assert found.limit is None and len(found.unseen) == 4 and min(found.unseen) == 2 and max(found.unseen) > 4
    ids, back = mixed_rows(alphabet_of(task, 1), 13, 1, 64)
    maps = concat_heads(run_with_activations(model, ids).weights)
    for gap, lift in found.unseen.items():
        mass, chance = [], []
        for b, row in enumerate(ids.tolist()):
            for q in range(13):
                keys = [j + 1 for j in range(q) if row[j] == row[q]]
                if int(back[b, q]) == gap and 0 < len(keys) < q + 1:
                    mass.append(float(maps[b, 1, q, keys].sum()))
                    chance.append(len(keys) / (q + 1))
        s, u = sum(mass) / len(mass), sum(chance) / len(chance)
        assert len(mass) >= gaps.MIN_QUERIES and float(lift[1]) == pytest.approx((s - u) / (1 - u), abs=1e-6)


def test_only_content_finds_repeats_at_every_distance() -> None:
    found = gap_lifts(induction(), Period(6), seed=1)
    assert list(found.trained) == [6] and list(found.unseen) == [4, 7, 10, 12] == list(found.duplicate)
    assert all(float(lift[1]) == pytest.approx(1.0, abs=1e-6) for lift in (*found.unseen.values(), found.trained[6]))
    assert all(float(lift[1]) < 0 for lift in found.duplicate.values())
    fixed = gap_lifts(handmade("period 6"), Period(6), seed=1)
    assert float(fixed.trained[6]) == pytest.approx(1.0, abs=1e-6)
    assert all(float(lift) < 0 for lift in fixed.unseen.values())


@pytest.mark.parametrize("symbols", [3, 5, V])
def test_with_any_number_of_symbols_induction_is_told_from_an_offset(symbols: int) -> None:
    task = Attended("induction", vocab_size=symbols)
    found = gap_lifts(induction(vocab_size=symbols), task, seed=1)
    assert found.limit is None and len(found.unseen) >= 3
    assert all(float(lift[1]) == pytest.approx(1.0, abs=1e-6) for lift in found.unseen.values())
    fixed = gap_lifts(handmade("period 3", vocab_size=symbols), task, seed=1)
    assert min(float(lift) for lift in fixed.unseen.values()) < 0.2


@pytest.mark.parametrize(
    ("symbols", "length", "limit"),
    [(1, 16, GapLimit.SYMBOLS), (2, 16, None), (V, 16, None), (V, 6, None), *[(n, 3, GapLimit.LENGTH) for n in (2, V)]],
)
def test_what_leaves_too_few_distances_is_named(symbols: int, length: int, limit: GapLimit | None) -> None:
    task = Attended("self", vocab_size=symbols, seq_len=length)
    found = gap_lifts(model_of(symbols, length), task, seed=1)
    assert found.limit == limit and (len(found.unseen) >= 3) == (limit is None)


def text(folder: Path, content: str, seq_len: int) -> Text:
    file = folder / "text.txt"
    file.write_text(content)
    return Text(path=str(file), seq_len=seq_len, eval_fraction=0.1)


def test_the_distances_of_a_file_are_those_at_which_it_repeats(tmp_path: Path) -> None:
    def said(block: int, times: int) -> str:
        generator = torch.Generator().manual_seed(1)
        blocks: Sequence[Tensor] = [torch.randperm(26, generator=generator)[:block] for _ in range(300)]
        return "".join("".join(chr(97 + i) for i in one.tolist()) * times for one in blocks)

    assert text(tmp_path, said(6, 6), 20).gaps == [6, 12, 18]
    assert text(tmp_path, said(7, 3), 20).gaps == [7, 14]
    assert text(tmp_path, said(26, 1), 20).gaps == [] and text(tmp_path, said(6, 6), 2).gaps in ((), [])
    unseen = gap_lifts(model_of(26, 20), text(tmp_path, said(6, 6), 20), 1).unseen
    assert len(unseen) == 4 and not {2, 3, 4, 6, 9, 12, 18} & set(unseen)


def test_no_row_is_drawn_for_a_task_that_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Same(Attended):
        def sample(self, generator: Generator, rows: int) -> Batch:
            return Batch(*[torch.zeros(2, rows, 5, dtype=torch.long)][0])

    found = gap_lifts(model_of(1, 5), Same("self", vocab_size=1, seq_len=5), 1)
    assert (found.trained, found.unseen, found.duplicate) == ({}, {}, {}) and found.limit is not None
