"""Right attention drawn at random is called right, whatever its layout, names, mask and sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.grading import described, grade_text, names_of
from tests.check.random_changed import draw_changed
from tests.check.random_right import Drawn, draw

QUICK, ALL = 20, 400
QUICK_CHANGED, ALL_CHANGED = 6, 306


def check(drawn: Drawn, folder: Path) -> str:
    """Grade what was drawn; returns what is wrong with the grade, or nothing."""
    result = grade_text(drawn.source, drawn.entry, folder, drawn.beside, **drawn.sizes)
    return "" if result.verdict == "right" and not names_of(result) else f"{drawn.says}: {described(result)}"


def test_a_seed_draws_the_same_again_and_another_something_else() -> None:
    assert draw(3) == draw(3)
    assert len({draw(seed).source for seed in range(ALL)}) > 0.95 * ALL


@pytest.mark.parametrize("seed", range(QUICK))
def test_a_drawn_one_is_called_right(seed: int, tmp_path: Path) -> None:
    assert check(draw(seed), tmp_path) == ""


@pytest.mark.parametrize("seed", range(QUICK_CHANGED))
def test_a_changed_one_is_called_right(seed: int, tmp_path: Path) -> None:
    assert check(draw_changed(seed), tmp_path) == ""


def test_changes_differ() -> None:
    assert draw_changed(3) == draw_changed(3)
    assert len({draw_changed(seed).source for seed in range(ALL_CHANGED)}) > 0.95 * ALL_CHANGED
