"""What was found when somebody's attention was graded.

What is decided is decided by ids, codes and facts; the words beside them are for reading alone. They are put together
where the grade is made, as errors of core quote some of them, and cross to the renderers as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

REFERENCE = "equal_to_reference"  # the id of the law that holds the output against the reference
ONLY_IF = "right only if"  # what is found of a block that hangs on how it is called


@dataclass(frozen=True, slots=True)
class Law:
    """One thing that attention must do: whether it did, its worst figure, and in plain words what was seen.

    `passed` is None where the law could not be asked; `seen` then says why. An `edge` law that fails leaves the verdict
    right: it is about inputs that training hardly meets. `id` says which law it is, `code` which of its outcomes was
    seen, `facts` with which names, numbers and shapes; of laws that fail, that of the least `rank` tells most.
    """

    name: str
    passed: bool | None
    worst: float | None
    seen: str
    edge: bool = False
    id: str = ""
    code: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    rank: int = 0


@dataclass(frozen=True, slots=True)
class NamedFault:
    """A fault by its `name`, an id: what it is, what to write instead, where it most likely sits, how close it comes.

    `line` counts in the user's file; `place` says it in words ("line 12", "cell 3, line 5"). `max_difference` is None
    for a fault that a law showed, not a variant's output; `facts` are then what the law saw.
    """

    name: str
    explanation: str
    instead: str
    line: int | None
    place: str
    max_difference: float | None
    title: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Note:
    """A note, or what was tried and what came of it: its kind, both in words, and the facts."""

    kind: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of one block: "right", "wrong", "uncallable" with what was `tried`, or "unclear".

    Unclear: no law is broken, yet its output is neither the reference's nor that of a known fault.

    `found` says in words how it is built and called; `codes` what of it decides something, by the same keys. `notes`
    are other things that its author should know.
    """

    block: str
    verdict: Literal["right", "wrong", "uncallable", "unclear"]
    found: Mapping[str, str]
    laws: Sequence[Law]
    faults: Sequence[NamedFault]
    notes: Sequence[Note]
    tried: Sequence[Note] = ()
    seconds: float = 0.0
    codes: Mapping[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Tell whether it is right."""
        return self.verdict == "right"


@dataclass(frozen=True, slots=True)
class GradeOptions:
    """What the user says of a block; each None is detected.

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
