"""Thin a curve for drawing: peaks and gaps stay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeVar

from mhsa_cli.records.training import Series

Item = TypeVar("Item")
Point = tuple[int, float | None]
THIN_TO = 2000
_WAITING = 100


def thin(points: Sequence[Point], limit: int = THIN_TO) -> list[Point]:
    """Keep about `limit` points: the first, the last, and of each stretch the lowest, the highest and the first gap."""
    if len(points) <= limit:
        return list(points)
    stretches = max(1, (limit - 2) // 3)
    inner = len(points) - 2
    kept = [points[0]]
    for number in range(stretches):
        kept.extend(_extremes(points[1 + inner * number // stretches : 1 + inner * (number + 1) // stretches]))
    kept.append(points[-1])
    return kept


def _extremes(points: Sequence[Point]) -> list[Point]:
    """Return the lowest point, the highest and the first gap, in order."""
    lowest = highest = gap = -1
    low, high = math.inf, -math.inf
    for index, (_, value) in enumerate(points):
        if value is None or not math.isfinite(value):
            gap = index if gap < 0 else gap
            continue
        if value < low:
            low, lowest = value, index
        if value > high:
            high, highest = value, index
    return [points[index] for index in sorted({lowest, highest, gap} - {-1})]


class Thinned:
    """A curve thinned while its points arrive: of more than `limit`, the extremes of equal stretches are kept."""

    def __init__(self, points: Iterable[Point] = (), limit: int = THIN_TO) -> None:
        self._limit, self._size = limit, 1  # stretches, and points of each
        self._kept: list[list[Point]] = []
        self._waiting, self._count = list[Point](), 0  # of the stretch that is not full yet
        self._first: Point | None = None
        self._last: Point | None = None
        for point in points:
            self.add(*point)

    @property
    def last_step(self) -> int:
        """The step of the last point, 0 if there is none."""
        return 0 if self._last is None else self._last[0]

    def add(self, step: int, value: float | None) -> None:
        """Add a point; it replaces the last one if that has the same step."""
        last, self._last = self._last, (step, value)
        if last is None or last[0] == step:
            return
        if self._first is None:
            self._first = last
            return
        self._waiting.append(last)
        self._count += 1
        if len(self._waiting) > _WAITING:
            self._waiting = _extremes(self._waiting)
        if self._count == self._size:
            self._kept.append(_extremes(self._waiting))
            self._waiting, self._count = [], 0
            if len(self._kept) > self._limit:
                pairs = zip(self._kept[::2], [*self._kept[1::2], []], strict=False)
                self._kept, self._size = [_extremes(left + right) for left, right in pairs], 2 * self._size

    @property
    def points(self) -> list[Point]:
        """The points kept, in order."""
        ends = [[] if end is None else [end] for end in (self._first, self._last)]
        return [*ends[0], *chain.from_iterable(self._kept), *self._waiting, *ends[1]]

    def series(self, name: str, role: str) -> Series:
        """Return the points kept as a series."""
        points = self.points
        return Series(name, [step for step, _ in points], [value for _, value in points], role)


def evenly(items: Sequence[Item], most: int) -> list[Item]:
    """Keep at most so many items, 2 or more, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(number * (len(items) - 1) / (most - 1))] for number in range(most)]
