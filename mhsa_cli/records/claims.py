"""What is said of a model and of its heads, as values: every statement is a claim before it is a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class Status(StrEnum):
    """What the figures of a claim show."""

    SHOWN = "shown"
    OPPOSITE = "opposite shown"
    NOT_SHOWN = "not shown"
    NOT_MEASURED = "not measured"


# What can be said: of a model, why something is not known, of a head, and what a file keeps as a sentence alone.
# records.claim_words has the words of each.
Predicate = Literal[
    "pattern matters", "no effect shown", "frozen uniform", "not learned", "heads not labelled",
    "heads not measured", "patterns not measured",
    "custom block", "large model", "rows too long", "loss not finite", "weights not finite", "not all measured",
    "shares mean nothing", "shares negative",
    "not labelled", "nothing measured", "weight on target", "above random heads", "by content", "by position",
    "mostly by position", "not by position alone", "sink", "closest", "closest is common", "closest not compared",
    "closest is random", "near uniform", "largest weight", "not tried elsewhere", "tried elsewhere",
    "resembles induction", "effect", "effect and share", "effect and negative share", "effect not measured",
    "backup heads",
    "stored",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement: `predicate` is the id of what is said of `subject` (a head's address, or "model").

    `estimate` is the figure that decides, with its standard error `se`; `reference` is what it is held against, the
    value of chance or a limit. `evidence` has whatever else the sentence names.
    """

    subject: str
    predicate: Predicate
    estimate: float | None = None
    se: float | None = None
    reference: float | None = None
    status: Status = Status.SHOWN
    evidence: Mapping[str, Any] = field(default_factory=dict)


def stored(text: str) -> Claim:
    """Make a claim of a sentence that a file keeps."""
    return Claim("", "stored", evidence={"text": text})
