"""The suite has teeth: each of twelve well-known faults is noticed, and the sound source is not."""

from __future__ import annotations

import pytest

from tests.core.mutants import MUTANTS, ONE_PATH, killers, mutate


def test_there_are_twelve_mutants() -> None:
    assert len(MUTANTS) == 12


@pytest.mark.parametrize("patches", [[], [ONE_PATH]], ids=["as it is", "without the fused path"])
def test_the_sound_source_passes(patches: list[tuple[str, str]]) -> None:
    """Compiled by the same road as the mutants: no mutant dies of the way it is made."""
    assert killers(mutate(patches)) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_killed(name: str) -> None:
    """By at least one test, although both of its paths carry the fault."""
    assert killers(mutate([ONE_PATH, *MUTANTS[name]])), f"{name} survived"


def test_a_patch_that_no_longer_fits_is_told() -> None:
    with pytest.raises(AssertionError, match="the source has 0 times: no such line"):
        mutate([("no such line", "")])
