"""Right attention drawn at random is called right, whatever its layout, names, mask and sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.grading import described, grade_text, names_of
from tests.check.random_right import draw

QUICK, LONG, ALL, BATCH = 20, 60, 1000, 50


def check(seed: int, folder: Path) -> str:
    """Grade what a seed draws; returns what is wrong with the grade, or nothing."""
    drawn = draw(seed)
    result = grade_text(drawn.source, drawn.entry, folder, **drawn.sizes)
    return "" if result.verdict == "right" and not names_of(result) else f"{drawn.says}: {described(result)}"


def test_a_seed_draws_the_same_again_and_another_something_else() -> None:
    assert draw(3) == draw(3)
    assert len({draw(seed).source for seed in range(ALL)}) > 0.95 * ALL


@pytest.mark.parametrize("seed", range(QUICK))
def test_a_drawn_one_is_called_right(seed: int, tmp_path: Path) -> None:
    assert check(seed, tmp_path) == ""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(LONG, ALL, BATCH))
def test_a_thousand_drawn_ones_are_called_right(first: int, tmp_path: Path) -> None:
    said = [check(seed, tmp_path) for seed in range(first, min(first + BATCH, ALL))]
    assert [one for one in said if one] == []
