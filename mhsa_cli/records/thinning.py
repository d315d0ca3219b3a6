"""A line of many points in few, such that a picture of it shows the same: every peak and every gap stays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain

from mhsa_cli.records.training import Series

Point = tuple[int, float | None]
THIN_TO = 2000
_WAITING = 100


def thin(points: Sequence[Point], limit: int = THIN_TO) -> list[Point]:
    """Keep at most about `limit` points: of each stretch its lowest, its highest and its first gap, in order.

    The first and the last point stay as they are, so a curve still begins and ends where it did.
    """
    if len(points) <= limit:
        return list(points)
    stretches = max(1, (limit - 2) // 3)
    inner = len(points) - 2
    kept = [points[0]]
    for number in range(stretches):
        kept.extend(_told(points[1 + inner * number // stretches : 1 + inner * (number + 1) // stretches]))
    kept.append(points[-1])
    return kept


def _told(points: Sequence[Point]) -> list[Point]:
    """Keep of a stretch its lowest and highest point and its first gap, in order."""
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
    """A line whose points come one by one, thinned as they come: its memory is bounded, however long it gets.

    Up to `limit` points all are kept; of more, what `thin` keeps of equal stretches, twice as long each time there are
    too many of them.
    """

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
        """Give the step of the last point, 0 if there is none."""
        return 0 if self._last is None else self._last[0]

    def add(self, step: int, value: float | None) -> None:
        """Add a point; it takes the place of the last one if that is of the same step."""
        last, self._last = self._last, (step, value)
        if last is None or last[0] == step:
            return
        if self._first is None:
            self._first = last
            return
        self._waiting.append(last)
        self._count += 1
        if len(self._waiting) > _WAITING:
            self._waiting = _told(self._waiting)
        if self._count == self._size:
            self._kept.append(_told(self._waiting))
            self._waiting, self._count = [], 0
            if len(self._kept) > self._limit:
                pairs = zip(self._kept[::2], [*self._kept[1::2], []], strict=False)
                self._kept, self._size = [_told(one + other) for one, other in pairs], 2 * self._size

    @property
    def points(self) -> list[Point]:
        """List what is kept, in order."""
        ends = [[] if end is None else [end] for end in (self._first, self._last)]
        return [*ends[0], *chain.from_iterable(self._kept), *self._waiting, *ends[1]]

    def series(self, name: str, role: str) -> Series:
        """Give what is kept as a line of a curve."""
        points = self.points
        return Series(name, [step for step, _ in points], [value for _, value in points], role)
