"""Results of `mhsa verify`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One check, what it found, and its `state`: ok, note, wrong, unreadable or other version."""

    name: str
    state: str
    found: str


@dataclass(frozen=True, slots=True)
class Verification:
    """All checks of a run, what of a damaged run is `usable`, and the step of the newest whole checkpoint."""

    checks: Sequence[Check]
    usable: Sequence[str]
    checkpoint: int | None

    @property
    def damage(self) -> list[Check]:
        """The checks that found damage."""
        return [check for check in self.checks if check.state == "wrong"]

    @property
    def other_version(self) -> list[Check]:
        """The checks of files that only another version of mhsa reads."""
        return [check for check in self.checks if check.state == "other version"]

    @property
    def unreadable(self) -> list[Check]:
        """The checks of files that the system refused to read."""
        return [check for check in self.checks if check.state == "unreadable"]
