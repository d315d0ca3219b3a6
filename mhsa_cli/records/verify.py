"""What was found when a run was verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, what was found, and its `state`: ok, note, wrong, unreadable or other version."""

    name: str
    state: str
    found: str


@dataclass(frozen=True, slots=True)
class Verification:
    """All checks of a run; of one with damage also what can still be used, and the newest whole checkpoint's step."""

    checks: Sequence[Check]
    usable: Sequence[str]
    checkpoint: int | None

    @property
    def damage(self) -> list[Check]:
        """List what is wrong."""
        return [check for check in self.checks if check.state == "wrong"]

    @property
    def other_version(self) -> list[Check]:
        """List what another version of mhsa wrote and this one cannot read."""
        return [check for check in self.checks if check.state == "other version"]

    @property
    def unreadable(self) -> list[Check]:
        """List what the system refused to read, of which nothing is known."""
        return [check for check in self.checks if check.state == "unreadable"]
