"""More of the right attention that is drawn at random is called right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.test_random import LONG, QUICK, check


@pytest.mark.parametrize("seed", range(QUICK, LONG))
def test_a_drawn_one_is_called_right(seed: int, tmp_path: Path) -> None:
    assert check(seed, tmp_path) == ""
