"""How many planted heads are named, and how many heads that learned nothing are named or matched."""

from __future__ import annotations

import pytest

from tests.benchmarks import false_matches
from tests.benchmarks.false_labels import KINDS, count
from tests.core.planted import NEW, OLD, recalled

EACH = 20  # models of a kind


@pytest.mark.parametrize(("kinds", "least"), [(OLD, 0.99), (NEW, 0.95)], ids=["old targets", "new targets"])
def test_planted_heads_are_named(kinds: dict[str, object], least: float) -> None:
    found = [(kind, *said) for kind in kinds for seed in range(EACH) for said in recalled(kind, seed)]
    missed = [one for one in found if one[1] != one[2]]
    assert len(missed) <= (1 - least) * len(found), missed
    for kind in kinds:  # no kind hides behind the others
        assert sum(one[0] == kind for one in missed) <= 0.1 * EACH, missed


def test_heads_that_learned_nothing_have_no_labels() -> None:
    found = [count(26, kind) for kind in KINDS]
    heads = sum(one.heads for one in found)
    assert heads >= 500
    named = [label.id for one in found for label in one.labels if label.names_effect]
    assert len(named) <= 0.01 * heads, named
    by_pattern = [label.id for one in found for label in one.patterns]
    assert len(by_pattern) <= 0.01 * heads, by_pattern


@pytest.mark.parametrize("kind", ["untrained", "wide"])
def test_heads_that_learned_nothing_match_no_better_than_random_ones(kind: str) -> None:
    pairs, shown, low = false_matches.count(false_matches.unlearned(kind, 100))
    assert pairs == 100 and shown <= low <= 5
