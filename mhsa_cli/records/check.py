"""The result of grading a block.

Decisions are made from ids, codes and facts; the text beside them is for reading only. It is written where the grade is
made, since errors of core quote it, and reaches the renderers unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

REFERENCE = "equal_to_reference"  # id of the law that compares the output with the reference
# Kinds of `Grade.tried[0]` that a verdict has a word for: no result in time; no attention in it; a link that leaves its
# folder; a right grade that another process could not confirm.
TIMEOUT, NOTHING, OUTSIDE, UNCONFIRMED = "timeout", "nothing_to_grade", "outside_link", "unconfirmed"
IN_PROCESS = "in_process"  # kind of the note of an object that was graded in its own process
KINDS = "kind of attention"  # key of `Grade.codes`: kinds other than the plain one, with a space between them
ONLY_IF = "right only if"  # key of `Grade.detected`: the condition under which a block is right


Verdict = Literal["right", "wrong", "uncallable", "unclear"]


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

    `line` counts in the block's file, or in `file`, a path from its folder; `place` is the same in words ("line 12",
    "cell 3, line 5", "helper.py, line 7"). `departs`, a second opinion, is where the tensors first differ. `facts` come
    from the law that shows the fault, whose id is `law`; `max_difference` is then None. One at an `edge` is a remark:
    it does not make a block wrong. `arguments` are those under which it shows, "" as the block is built.
    """

    id: str
    explanation: str
    instead: str
    line: int | None
    place: str
    max_difference: float | None
    title: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    edge: bool = False
    law: str = ""
    arguments: str = ""
    departs: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class Switched:
    """The grade of a block in one position of its switches: the arguments in words, the verdict, ids of faults.

    `arguments` is "" for the position in which it was built.
    """

    arguments: str
    verdict: Verdict
    faults: Sequence[str]


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
    same keys. `mask` is the measured one where it is not plain: for each query a row, "x" for each key that it sees and
    "." for each that is hidden.
    """

    block: str
    verdict: Verdict
    detected: Mapping[str, str]
    laws: Sequence[Law]
    faults: Sequence[NamedFault]
    notes: Sequence[Note]
    tried: Sequence[Note] = ()
    seconds: float = 0.0
    codes: Mapping[str, str] = field(default_factory=dict)
    mask: Sequence[str] = ()
    switched: Sequence[Switched] = ()

    @property
    def passed(self) -> bool:
        """Whether the block is right."""
        return self.verdict == "right"

    @property
    def failure(self) -> str:
        """Kind of the first failed attempt of a block that cannot be called, or ""."""
        return self.tried[0].kind if self.verdict == "uncallable" and self.tried else ""


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
