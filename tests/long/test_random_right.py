"""More of the right attention that is drawn at random is called right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.random_changed import draw_changed
from tests.check.random_right import draw
from tests.check.test_random import ALL, ALL_CHANGED, QUICK, QUICK_CHANGED, check

BATCH = 38


@pytest.mark.parametrize("first", range(QUICK, ALL, BATCH))
def test_drawn_ones_are_called_right(first: int, tmp_path: Path) -> None:
    said = [check(draw(seed), tmp_path) for seed in range(first, first + BATCH)]
    assert [one for one in said if one] == []


@pytest.mark.parametrize("first", range(QUICK_CHANGED, ALL_CHANGED, 30))
def test_changed_ones_are_called_right(first: int, tmp_path: Path) -> None:
    said = [check(draw_changed(seed), tmp_path / str(seed)) for seed in range(first, first + 30)]
    assert [one for one in said if one] == []
