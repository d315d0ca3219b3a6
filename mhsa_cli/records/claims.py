"""Statements about a model and its heads as data; records.claim_words has their text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class Status(StrEnum):
    """What the figures of a claim show about it."""

    SHOWN = "shown"
    OPPOSITE = "opposite shown"
    NOT_SHOWN = "not shown"
    NOT_MEASURED = "not measured"


# About a model; why something was not measured; about a head; a text read from a file.
Predicate = Literal[
    "pattern matters", "no effect shown", "frozen uniform", "not learned", "heads not labelled",
    "heads not measured", "patterns not measured",
    "custom attention", "large model", "rows too long", "loss not finite", "weights not finite", "not all measured",
    "joint effect too small", "negative shares",
    "not labelled", "nothing measured", "weight on target", "above untrained heads", "content-based", "positional",
    "mostly positional", "not only positional", "sink", "closest", "closest is common", "closest not compared",
    "closest below untrained heads", "uniformity", "largest weight", "not tested at other distances",
    "tested at other distances", "resembles induction", "effect", "effect and share", "effect and negative share",
    "effect not measured", "backup heads",
    "stored",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement: `predicate` is its id, `subject` a head's address or "model".

    `estimate` is the figure that decides, with its standard error `se`; `reference` is a limit or the value of a
    uniform head. `evidence` holds the other figures of the sentence.
    """

    subject: str
    predicate: Predicate
    estimate: float | None = None
    se: float | None = None
    reference: float | None = None
    status: Status = Status.SHOWN
    evidence: Mapping[str, Any] = field(default_factory=dict)


def stored(text: str) -> Claim:
    """Make a claim of a text read from a file."""
    return Claim("", "stored", evidence={"text": text})
