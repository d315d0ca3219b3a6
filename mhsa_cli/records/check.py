"""What was found when somebody's attention was graded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Law:
    """One thing that attention must do: whether it did, its worst figure, and in plain words what was seen.

    `passed` is None where the law could not be asked; `seen` then says why. An `edge` law that fails leaves the verdict
    right: it is about inputs that training hardly meets.
    """

    name: str
    passed: bool | None
    worst: float | None
    seen: str
    edge: bool = False


@dataclass(frozen=True, slots=True)
class NamedFault:
    """A fault by name: what it is, what to write instead, where it most likely sits, how closely the output matches.

    `line` counts in the user's file; `place` says it in words ("line 12", "cell 3, line 5"). `max_difference` is None
    for a fault that a law showed, not a variant's output.
    """

    name: str
    explanation: str
    instead: str
    line: int | None
    place: str
    max_difference: float | None


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of one target: "right", "wrong", "uncallable" with what was `tried`, or "unclear".

    Unclear: no law is broken, yet its output is neither the reference's nor that of a known fault.

    `found` says in words how it is built and called. `notes` are other things that its author should know.
    """

    target: str
    verdict: Literal["right", "wrong", "uncallable", "unclear"]
    found: Mapping[str, str]
    laws: Sequence[Law]
    faults: Sequence[NamedFault]
    notes: Sequence[str]
    tried: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Tell whether it is right."""
        return self.verdict == "right"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user knows better than discovery: each None is found out.

    `causal`: must it be; `order`: of a fused projection, such as "kqv"; `rope`: "none", "interleaved" or "half"; the
    sizes that it is built with; `arguments`: KEY=VALUE for its constructor (a function's call), read as YAML scalars.
    """

    causal: bool | None = None
    order: str | None = None
    rope: str | None = None
    d_model: int | None = None
    n_heads: int | None = None
    seq_len: int | None = None
    arguments: Sequence[str] = ()
