"""Figures of a sweep as text: medians with their intervals, and intervals of shares."""

from __future__ import annotations

import math
from collections.abc import Iterable

from mhsa_cli.records.sweep import Median
from mhsa_cli.renderers.kit.ticks import fixed, short, step_text

NEVER = "diverged"  # instead of a loss that did not stay finite
MORE = ">"  # of steps that are more than were trained


def steps_text(found: Median, watched: int, dash: str) -> str:
    """Write a median of steps with its interval: 138 (134-143), 288 (202->352), >152."""

    def write(steps: float | None) -> str:
        return f"{MORE}{step_text(watched)}" if steps is None or not math.isfinite(steps) else step_text(round(steps))

    middle = write(found.estimate)
    if found.low is None or (found.estimate is None and found.low >= watched):
        return middle
    return _with_ends(middle, write(found.low), write(found.high), dash)


def loss_text(found: Median, dash: str) -> str:
    """Write a median loss with its interval; without it if there is no `dash`."""

    def write(loss: float | None) -> str:
        return "?" if loss is None else NEVER if math.isinf(loss) else short(loss)

    middle = write(found.estimate)
    return middle if found.low is None or not dash else _with_ends(middle, write(found.low), write(found.high), dash)


def _with_ends(middle: str, low: str, high: str, dash: str) -> str:
    return middle if low == middle == high else f"{middle} ({low}{dash}{high})"


def bounded(legend: str, medians: Iterable[Median | None]) -> str:
    """Add to a legend that intervals stand beside the medians, if any does."""
    return f"{legend} (95% CI)" if any(one is not None and one.low is not None for one in medians) else legend


def interval(ends: tuple[float, float], dash: str) -> str:
    """Write an interval of shares in whole per cent: 72-99%."""
    low, high = (fixed(100 * end, 0) for end in ends)
    return f"{low}{dash}{high}%"
