"""Axes: value to position, round ticks, and numbers in few characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard


@dataclass(frozen=True, slots=True)
class Axis:
    """Map values between `low` and `high` to 0..1, linearly or by logarithm; no finite input overflows.

    `log1p`: by the logarithm of 1 + value - low, for steps that begin at 0.
    """

    low: float
    high: float
    log: bool = False
    log1p: bool = False

    def place(self, value: float) -> float:
        """Map a value to 0 at the low end and 1 at the high end, clamped."""
        if value <= self.low:
            return 0.0
        if value >= self.high:
            return 1.0
        if self.log1p:
            return math.log1p(value - self.low) / math.log1p(self.high - self.low)
        if self.log:
            low = math.log(self.low)  # not log(value / low): that quotient can overflow
            return (math.log(value) - low) / (math.log(self.high) - low)
        return (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)

    def shows(self, value: float | None) -> TypeGuard[float]:
        """Return whether a value is on the axis: finite, and above 0 on a logarithmic scale."""
        return value is not None and math.isfinite(value) and (value > 0 or not self.log)


def nice_step(span: float, count: int) -> float:
    """Find the smallest step of 1, 2, 2.5 or 5 times a power of ten that cuts `span` into at most `count` parts."""
    raw = span / max(1, count)
    if not raw > 0 or not math.isfinite(raw):
        return 1.0
    exponent = math.floor(math.log10(raw))
    for factor in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0):
        try:
            step = float(f"{factor}e{exponent}")
        except OverflowError:  # pragma: no cover
            break
        if step >= raw * (1 - 1e-9):
            return step if math.isfinite(step) else raw
    return raw


def linear_ticks(low: float, high: float, count: int) -> list[float]:
    """List round values between `low` and `high`, at most `count` + 1 of them."""
    wide = math.isinf(high - low)  # the two ends are finite, their distance is not
    step = nice_step(high / 2 - low / 2, max(1, count // 2)) if wide else nice_step(high - low, count)
    first = math.ceil(low / step - 1e-9)
    ticks = []
    for number in range(count + 2):
        value = (first + number) * step
        if not math.isfinite(value) or value > high + abs(high) * 1e-9:
            break
        ticks.append(0.0 if abs(value) < step * 1e-6 else float(f"{value:.12g}"))
    return ticks


def log_ticks(low: float, high: float, count: int) -> list[float]:
    """List decades with their 2 and 5, with their 3, or alone: the most that `count` allows."""
    first, last = math.floor(math.log10(low)), math.floor(math.log10(high))
    stride = max(1, math.ceil((last - first + 1) / max(1, count)))
    for factors in ((1, 2, 5), (1, 3), (1,)):
        decades = range(first, last + 1, stride if factors == (1,) else 1)
        ticks = [value for e in decades for f in factors if low <= (value := float(f"{f}e{e}")) <= high]
        if len(ticks) <= count or factors == (1,):
            break
    # Within one decade there may be no such number: then any round ones between will do.
    return ticks if len(ticks) > 1 or high / low > 10 else linear_ticks(low, high, max(2, count // 2))


def step_ticks(axis: Axis, count: int) -> list[float]:
    """List round steps of an axis, at most about `count`: evenly, or its beginning and then by decades."""
    if not axis.log1p:
        return linear_ticks(axis.low, axis.high, count)
    return [axis.low, *log_ticks(max(1.0, axis.low), max(1.0, axis.high), count)]


def short(value: float) -> str:
    """Write a number in at most about seven characters: 0.0025, 4.16, 1200, 1e30, NaN."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e5 or size < 1e-4:
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    if size >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.3f}" if size >= 0.01 else f"{value:.4f}"


def fixed(value: float | None, decimals: int, sign: str = "") -> str:
    """Write a number with so many decimals, as tables do: zero without a sign, a million and more as `short` does."""
    if value is None:
        return ""
    if abs(value) >= 1e6 and math.isfinite(value):
        return f"{sign if value > 0 else ''}{short(value)}"
    text = f"{value:{sign}.{decimals}f}"
    return text if text.strip("+-0.") else text.lstrip("+-")


def percents(share: float | None, decimals: int = 1) -> str:
    """Write a share of 1 in per cent: 97.5%."""
    return "" if share is None else f"{fixed(100 * share, decimals)}%"


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """Write all ticks of one axis with as many decimals as their step needs."""
    size = max((abs(tick) for tick in ticks), default=0.0)
    if size >= 1e5 or (0 < size < 1e-3):
        return [short(tick) for tick in ticks]
    for decimals in range(7):
        texts = [f"{tick:.{decimals}f}" for tick in ticks]
        if all(math.isclose(float(text), tick, rel_tol=1e-6) for text, tick in zip(texts, ticks, strict=True)):
            return texts
    return [short(tick) for tick in ticks]


def log_tick_text(value: float) -> str:
    """Write a tick of a logarithmic axis: 0.001, 0.5, 20, 1e-6."""
    return f"{value:g}" if 1e-4 <= value < 1e5 else short(value)


def with_unit(number: float, plain_to: int = 10_000) -> str:
    """Write a number in three digits and a unit: 32k, 1.5M; one below `plain_to`, or beyond all units, without."""
    if number < plain_to:
        return f"{number:,.0f}"
    value = number / 1000
    for unit in "kMGTPE":
        if value < 999.5:  # what would be rounded to 1000 is one of the next unit
            return f"{value:.3g}{unit}"
        value /= 1000
    return short(number)


def step_text(step: float) -> str:
    """Write a step count: 360, 12,000 as 12k, 2,500,000 as 2.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if step >= size:
            return f"{step / (1000.0 if unit == 'k' else size):.6g}{unit}"
    return f"{step:.6g}"
