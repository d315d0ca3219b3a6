"""The outcome of a law."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mhsa_cli.check.match.search import TOLERANCE
from mhsa_cli.check.tensors import max_difference, scale_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a law holds (None: not tested), the largest difference, the code of the outcome, and its facts.

    `code` is "" if the law holds; the table of laws has a sentence for each other code. Facts are names, numbers and
    shapes.
    """

    passed: bool | None
    max_difference: float | None = None
    code: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


HOLDS = Outcome(True)


def not_tested(code: str, **facts: Any) -> Outcome:
    """The law cannot be tested."""
    return Outcome(None, None, code, facts)


def fails(code: str, max_difference: float | None = None, **facts: Any) -> Outcome:
    """The law fails."""
    return Outcome(False, max_difference, code, facts)


def within(off: float, limit: float, code: str) -> Outcome:
    """The law holds if a difference is at most a limit."""
    return Outcome(True, off) if off <= limit else fails(code, off)


def close(found: Tensor, expected: Tensor, code: str = "") -> Outcome:
    """The law holds if two outputs are equal; the facts are the first place at which they differ, or both shapes."""
    off = max_difference(found, expected)
    limit = TOLERANCE * scale_of(expected)
    if off <= limit:
        return Outcome(True, off)
    if found.shape != expected.shape:
        return fails(code, off, found=tuple(found.shape), expected=tuple(expected.shape))
    at = tuple(int(i) for i in (~((found - expected).abs() <= limit)).nonzero()[0])
    return fails(code, off, at=at, found=float(found[at]), expected=float(expected[at]))
