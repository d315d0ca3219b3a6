"""Rows of intervals: trials as points, a diamond for the median, and a line for its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from mhsa_cli.renderers.figures.sheet import LEVEL_DASHES, Draw, Sheet, grid, set_ticks, value_ticks
from mhsa_cli.renderers.kit.ticks import step_text

ROW = 0.19  # inches
NAMES = 0.4  # of the width: the most that names take


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its name, an interval with its middle, the values of trials, and what lies beyond the right end.

    An infinite end is drawn to the edge of the plot.
    """

    name: str
    middle: float | None
    low: float | None
    high: float | None
    points: Sequence[float] = ()
    beyond: str = ""
    color: int = 0


def rows_of(rows: Sequence[Row], axis: str, **kind: Any) -> Draw | None:
    """Return what draws rows; None if there is no number in them."""
    if not any(_finite(row.middle, row.low, row.high, *row.points) for row in rows):
        return None
    return lambda sheet: _rows(sheet, rows, axis, **kind)


def _rows(
    sheet: Sheet,
    rows: Sequence[Row],
    axis: str,
    *,
    share: bool = False,
    steps: bool = False,
    log: bool = False,
    difference: bool = False,
    level: float | None = None,
    margins: str = "rows",
) -> None:
    """Add rows of intervals: points are trials, a diamond is the median, a line its interval."""
    longest = sheet.width * NAMES
    names = [sheet.fit(row.name, longest, 2) for row in rows]
    axes = sheet.plot(ROW * sum(1.4 if "\n" in name else 1 for name in names) + 0.06, margins=margins)
    ends = [end for row in rows for end in _finite(row.middle, row.low, row.high, *row.points)]
    log = log and min(ends) > 0 and max(ends) > 3 * min(ends)
    low, high = (0.0, 1.0) if share else (min(ends), max(ends))
    if log:
        low, high = low / 1.15, high * 1.15
        axes.set_xscale("log")
    elif not share:
        low = 0.0 if not difference and low >= 0 else min(low, 0.0)
        high = max(high, 0.0)
        room = 0.05 * ((high - low) or 1.0)
        low, high = low - room * (low < 0), high + room
    axes.set_xlim(low, high)
    for number, row in enumerate(rows):
        _put_row(axes, row, number, (low, high), sheet)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    set_ticks(axes.yaxis, range(len(rows)), names)
    axes.tick_params(axis="y", length=0, pad=4)
    value_ticks(axes.xaxis, low, high, log=log, count=max(3, int(sheet.width / 0.9)))
    if steps:
        places = [place for place in axes.get_xticks() if place == int(place)]
        set_ticks(axes.xaxis, places, [step_text(place) for place in places])
    for place in [0.0] * difference + ([] if level is None else [level]):
        axes.axvline(place, color=sheet.inks.dim, linewidth=0.8, linestyle="-" if difference else LEVEL_DASHES[0])
    axes.set_xlabel(sheet.fit(axis, sheet.width * (1 - NAMES), 3))
    grid(axes, sheet.inks, "x")
    sheet.close([axes])


def _put_row(axes: Axes, row: Row, number: int, limits: tuple[float, float], sheet: Sheet) -> None:
    color, ink = sheet.color(row.color), sheet.inks.ink
    if row.points:
        places = [number + shift for shift in _shifts(len(row.points))]
        axes.plot(sorted(row.points), places, "o", color=color, markersize=2.6, alpha=0.75, markeredgewidth=0, zorder=2)
    line = ink if row.points else color
    if row.low is not None and row.high is not None and math.isfinite(max(row.low, -row.high)):
        ends = [max(row.low, limits[0]), min(row.high, limits[1])]
        axes.plot(ends, [number, number], color=line, linewidth=1.1, zorder=3, solid_capstyle="butt")
        for end, edge, mark in ((row.low, limits[0], "<"), (row.high, limits[1], ">")):
            if math.isinf(end):  # nothing bounds it
                axes.plot([edge], [number], mark, color=line, markersize=3.5, clip_on=False, zorder=3)
    if row.middle is not None and math.isfinite(row.middle):
        around: dict[str, Any] = {"markeredgecolor": sheet.inks.paper, "markeredgewidth": 0.5, "clip_on": False}
        axes.plot([row.middle], [number], "D", color=line, markersize=4, zorder=4, **around)
    if row.beyond:
        at = axes.get_yaxis_transform()
        axes.text(1.03, number, row.beyond, transform=at, va="center", fontsize=6, color=sheet.inks.dim)


def _shifts(count: int) -> list[float]:
    """Spread points of a row, in their order, so that equal ones are seen: below, above, below ..."""
    return [0.11 * ((place * 2) % 5 - 2) for place in range(count)]


def _finite(*values: float | None) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
