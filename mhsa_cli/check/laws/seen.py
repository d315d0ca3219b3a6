"""What a law saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mhsa_cli.check.match.search_case import TOLERANCE
from mhsa_cli.check.tensors import worst


@dataclass(frozen=True, slots=True)
class Seen:
    """Whether a law holds (None: it cannot be asked), its worst figure, which of its outcomes it was, and the facts.

    `code` is "" where a law holds; the table of laws puts the others in words. Facts are names, numbers and shapes.
    """

    passed: bool | None
    worst: float | None = None
    code: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


HOLDS = Seen(True)


def not_asked(code: str, **facts: Any) -> Seen:
    """Say why a law cannot be asked."""
    return Seen(None, None, code, facts)


def fails(code: str, worst: float | None = None, **facts: Any) -> Seen:
    """Say in which way a law fails."""
    return Seen(False, worst, code, facts)


def within(off: float, limit: float, code: str) -> Seen:
    """Ask that a figure is at most its limit; `code` is the outcome if it is more."""
    return Seen(True, off) if off <= limit else fails(code, off)


def close(found: Tensor, wanted: Tensor, code: str = "") -> Seen:
    """Compare two outputs; `code` is the outcome if they differ. Its facts are the first place at which they do.

    Where their shapes differ, the facts are both shapes.
    """
    off = worst(found, wanted)
    limit = TOLERANCE * max(1.0, float(wanted.abs().nan_to_num().max()) if wanted.numel() else 1.0)
    if off <= limit:
        return Seen(True, off)
    if found.shape != wanted.shape:
        return fails(code, off, found=tuple(found.shape), wanted=tuple(wanted.shape))
    at = tuple(int(i) for i in (~((found - wanted).abs() <= limit)).nonzero()[0])
    return fails(code, off, at=at, found=float(found[at]), wanted=float(wanted[at]))
