"""Every setting by itself at every value; the ordinary suite walks several at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.test_walk_settings import WALKED, Case, place, walk

__all__ = ["place"]


@pytest.mark.parametrize("case", WALKED, ids=str)
def test_each_setting(case: Case, place: Path) -> None:
    walk(case.task, case.chosen)
