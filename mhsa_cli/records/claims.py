"""Statements about a model and its heads as data; records.claim_words has their text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from statistics import NormalDist
from typing import Any, Literal

LEVEL = 0.05  # chance that some claim of a family is shown where nothing is


class Status(StrEnum):
    """What the figures of a claim show about it."""

    SHOWN = "shown"
    OPPOSITE = "opposite shown"
    NOT_SHOWN = "not shown"
    NOT_MEASURED = "not measured"


@cache
def z_value(looks: int = 1) -> float:
    """Return the number of standard errors that a two-sided interval spans at LEVEL, for one of so many figures.

    Source: Dunn 1961 (the Bonferroni correction).
    """
    return NormalDist().inv_cdf(1 - LEVEL / (2 * max(looks, 1)))


def judge(estimate: float | None, se: float | None, limit: float = 0.0, looks: int = 1) -> Status:
    """Decide what an estimate shows of a signed effect: SHOWN above 0, OPPOSITE below 0, or NOT_SHOWN.

    An effect is shown if it is at least `limit` in size and its interval, over all `looks`, excludes 0.
    """
    if estimate is None:
        return Status.NOT_MEASURED
    size = abs(estimate)
    if size > 0 and size >= limit and size - z_value(looks) * (se or 0.0) >= 0:  # no NaN is
        return Status.SHOWN if estimate > 0 else Status.OPPOSITE
    return Status.NOT_SHOWN


# About a model; why something was not measured; about a head, then over training; a text read from a file.
Predicate = Literal[
    "solved by", "works by", "path", "pattern matters", "attention harmful",
    "no effect shown", "heads cancel", "single effects", "frozen uniform",
    "below chance", "not learned", "over-fitted", "rows trained on", "heads not labelled", "labels account",
    "labels account for nothing", "singles and joint", "heads depend", "need each other", "back each other up",
    "heads not measured", "patterns not measured",
    "custom attention", "large model", "rows too long", "loss not finite", "weights not finite", "not all measured",
    "joint effect too small", "negative shares",
    "not labelled", "nothing measured", "weight on target",
    "weight on target where it is", "lift on scored queries", "above untrained heads",
    "above random heads", "also attends", "on the answer", "content-based", "positional",
    "partly positional", "depends on tokens",
    "sink", "closest", "closest is common", "closest not compared", "closest below untrained heads",
    "closest below random heads", "uniformity", "largest weight", "not tested at other distances",
    "tested at other distances", "weaker at other distances", "effect", "share", "negative share", "harmful",
    "suppresses", "only output", "cancels", "effect not measured", "backup heads", "kept",
    "onset", "lead", "order",
    "stored",
    # circuits
    "no circuits", "low precision", "no scores for QK shares", "no QK shares after a norm", "QK shares of layer 0 only",
    "no QK shares of constant scores", "no OV circuits", "OV circuits ignore norms", "top-1 of some tokens",
    "no direct logits", "direct logits of the last layer only", "direct logits hold the norm", "no scored token",
    "logits not finite", "no composition without residuals", "too many pairs of heads", "composition ignores",
    "V-composition only", "pairs without composition", "composition not compared",
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


def unmeasured(predicate: Predicate, **evidence: Any) -> Claim:
    """Make the claim that something of a model was not measured, or only in part."""
    return Claim("model", predicate, status=Status.NOT_MEASURED, evidence=evidence)


def stored(text: str) -> Claim:
    """Make a claim of a text read from a file."""
    return Claim("", "stored", evidence={"text": text})
