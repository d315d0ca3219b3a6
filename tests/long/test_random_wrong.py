"""Faults in right attention that is drawn at random are named, whatever its layout, names and mask."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.check.grading import described, grade_text
from tests.check.random_right import draw
from tests.check.random_wrong import FAULTS, draw_wrong
from tests.check.table import MISSED, NAMED, outcome_of

QUICK, LONG, ALL, BATCH = 40, 240, 600, 40


def check(seed: int, folder: Path) -> tuple[str, str]:
    """Grade what a seed draws; returns the outcome, and what was graded."""
    planted = draw_wrong(seed)
    if planted is None:
        return NAMED, ""
    result = grade_text(planted.source, planted.entry, folder)
    return outcome_of(planted, result), f"{planted.fault} in {planted.style}: {described(result)}"


def test_every_fault_is_drawn_and_differs_from_the_right_source() -> None:
    drawn = [(seed, draw_wrong(seed)) for seed in range(ALL)]
    kept = [(seed, planted) for seed, planted in drawn if planted is not None]
    assert len(kept) > 0.7 * ALL
    assert all(planted.source != draw(seed).source for seed, planted in kept)
    counts = Counter(fault for _, planted in kept for fault in planted.faults)
    assert all(counts[fault] >= 5 for stage in FAULTS.values() for fault in stage), counts
    assert sum(len(planted.faults) == 2 for _, planted in kept) > 0.1 * ALL


@pytest.mark.parametrize("seed", range(QUICK))
def test_a_drawn_fault_is_named(seed: int, tmp_path: Path) -> None:
    outcome, graded = check(seed, tmp_path)
    assert outcome == NAMED, graded


def test_what_a_wrong_split_mixes_up_is_no_mask(tmp_path: Path) -> None:
    planted = draw_wrong(66)
    assert planted is not None and planted.faults == ("scale_constant", "split_by_view")
    assert "mask_with_a_hole" not in described(grade_text(planted.source, planted.entry, tmp_path))


@pytest.mark.parametrize("first", range(QUICK, LONG, BATCH))
def test_no_drawn_fault_is_called_right_and_most_are_named(first: int, tmp_path: Path) -> None:
    """Some of two faults at once are found but not named."""
    found = [check(seed, tmp_path) for seed in range(first, first + BATCH)]
    assert [graded for outcome, graded in found if outcome == MISSED] == []
    unnamed = [graded for outcome, graded in found if outcome != NAMED]
    assert len(unnamed) <= 0.15 * BATCH, unnamed
