"""Planted heads are named, here one of each newer target; tests/long plants many of all."""

from __future__ import annotations

import pytest

from tests.core.planted import NEW, recalled


@pytest.mark.parametrize("kind", NEW)
def test_a_planted_head_is_named(kind: str) -> None:
    assert [said for said in recalled(kind, seed=1) if said[0] != said[1]] == []
