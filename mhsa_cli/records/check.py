"""The result of grading a block.

Decisions are made from ids, codes and facts; the text beside them is for reading only. It is written where the grade is
made, since errors of core quote it, and reaches the renderers unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

REFERENCE = "equal_to_reference"  # id of the law that compares the output with the reference
ONLY_IF = "right only if"  # key of `Grade.detected`: the condition under which a block is right


@dataclass(frozen=True, slots=True)
class Law:
    """The result of one law: whether it holds, the largest difference, and the finding in plain words.

    `passed` is None where the law could not be tested; `finding` then says why. A failed `edge` law leaves the verdict
    right: it concerns inputs that training hardly meets. `code` identifies the outcome, `facts` are its names, numbers
    and shapes. Of several failed laws, that of the smallest `rank` explains most.
    """

    title: str
    passed: bool | None
    max_difference: float | None
    finding: str
    edge: bool = False
    id: str = ""
    code: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    rank: int = 0


@dataclass(frozen=True, slots=True)
class NamedFault:
    """A fault of a block: what is wrong, what to write instead, its likely line, and how closely its variant matches.

    `line` counts in the user's file; `place` is the same in words ("line 12", "cell 3, line 5"). `max_difference` is
    None for a fault that a law shows rather than the output of a variant; `facts` then come from that law.
    """

    id: str
    explanation: str
    instead: str
    line: int | None
    place: str
    max_difference: float | None
    title: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Note:
    """A note, or a failed attempt to build or call a block: its kind, its text, and the facts in it."""

    kind: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of one block: "right", "wrong", "uncallable" (see `tried`) or "unclear".

    Unclear: no law is broken, but the output is neither the reference's nor that of a known fault.

    `detected` says in words how the block is built and called; `codes` holds what of it decides something, under the
    same keys.
    """

    block: str
    verdict: Literal["right", "wrong", "uncallable", "unclear"]
    detected: Mapping[str, str]
    laws: Sequence[Law]
    faults: Sequence[NamedFault]
    notes: Sequence[Note]
    tried: Sequence[Note] = ()
    seconds: float = 0.0
    codes: Mapping[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the block is right."""
        return self.verdict == "right"


@dataclass(frozen=True, slots=True)
class GradeOptions:
    """What the user states about a block; None is detected.

    `causal`: require a causal mask; `order`: of a fused projection, such as "kqv"; `rope`: "none", "interleaved" or
    "half"; the sizes to build with; `arguments`: KEY=VALUE for the constructor or the call, read as YAML scalars.
    """

    causal: bool | None = None
    order: str | None = None
    rope: str | None = None
    d_model: int | None = None
    n_heads: int | None = None
    seq_len: int | None = None
    arguments: Sequence[str] = ()
