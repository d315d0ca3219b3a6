"""Results of `mhsa doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["ok", "note", "problem"]
# Faults with which mhsa cannot be used: the others are notes.
PROBLEMS = frozenset(
    ("torch-missing", "torch-failed", "attention-wrong", "library-missing", "library-failed")
    + ("no-recipes", "refused", "no-space", "no-locks")
)
Section = Literal["environment", "torch", "libraries", "terminal", "disk"]


@dataclass(frozen=True, slots=True)
class Terminal:
    """What stdout can show, and which standard streams are terminals."""

    width: int
    height: int
    depth: str
    glyphs: str
    encoding: str
    stdin: bool
    stdout: bool
    stderr: bool


@dataclass(frozen=True, slots=True)
class Check:
    """One check: the value on screen, the same as `facts` for programs, and the id of its fault, if it has one.

    `way_out` is the hint of an error of the system; other faults have theirs by id. Those that are `minor` are shown
    only where all are asked for, or where they are not ok.
    """

    id: str
    section: Section
    value: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    fault: str | None = None
    way_out: str | None = None
    minor: bool = False

    @property
    def state(self) -> State:
        """What its fault makes of it."""
        return "ok" if self.fault is None else "problem" if self.fault in PROBLEMS else "note"


@dataclass(frozen=True, slots=True)
class Examination:
    """All checks, section by section."""

    checks: Sequence[Check]

    @property
    def problems(self) -> list[Check]:
        """The checks without which mhsa cannot be used."""
        return [check for check in self.checks if check.state == "problem"]
