"""Small multiples: a loss curve for each group of a sweep, all in the same frame so that eyes can compare them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from statistics import quantiles

from mhsa_cli.records.thinning import thin
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.frame import Frame
from mhsa_cli.renderers.kit.palette import BOLD, DIM, line_style
from mhsa_cli.renderers.kit.text_lines import Grid, Lines, Phrase, cut, wrap_phrases
from mhsa_cli.renderers.kit.ticks import Axis, log_tick_text, log_ticks
from mhsa_cli.text import escape

Values = Sequence[float | None]
Curve = tuple[str, Sequence[int], Values, Values, Values]

ROWS = 6  # of a panel's plot; its title, its axis and its steps are three more
_GAP = 2
_SIDE_BY_SIDE = ((120, 4), (80, 3), (60, 2))  # from this many columns on, so many panels


def quartile_curve(title: str, losses: Mapping[int, Sequence[float]], line: Values | None = None) -> Curve:
    """Compute the median and the quartiles of the finite losses at each step; a step without any is a gap.

    `line` is drawn instead of the median, such as the losses of one run.
    """
    cuts = []
    for _, column in sorted(losses.items()):
        finite = [loss for loss in column if math.isfinite(loss)]
        cuts.append(quantiles(finite, n=4, method="inclusive") if len(finite) > 1 else finite * 3 or [math.nan] * 3)
    low, middle, high = ([cut[i] for cut in cuts] for i in range(3))
    return title, sorted(losses), middle if line is None else line, low, high


def small_multiples(
    curves: Sequence[Curve],
    surface: Surface,
    *,
    side: int | None = None,
    last: int | None = None,
    line: str = "median",
) -> Lines:
    """Draw a panel for each (title, steps, values, low, high): the values as a line, low to high as a shaded band.

    All panels share their axes: steps from 0, loss in nats on a log scale. None, NaN and infinities are gaps.
    `line` names the line. `side` panels stand side by side, else as many as there is room for; the axis of steps ends
    at `last`, else at the last one there is.
    """
    if not curves:
        return wrap_phrases(["no curves recorded yet"], surface.width, DIM)
    x_axis, y_axis = _axes(curves, last)
    ticks = [(log_tick_text(tick), tick) for tick in log_ticks(y_axis.low, y_axis.high, ROWS - 2)]
    margin = max([2, *(len(text) + 1 for text, _ in ticks)])
    side = side or next((count for least, count in _SIDE_BY_SIDE if surface.width >= least), 1)
    # Only the first panel of a row carries the ticks' numbers; the plots are equally wide whatever their number.
    columns = (surface.width - margin - side - _GAP * (side - 1)) // side
    lines, style = Lines(), line_style(0, surface.depth)
    for start in range(0, len(curves), side):
        row = Grid(surface.width, ROWS + 3)
        for place, (title, steps, median, low, high) in enumerate(curves[start : start + side]):
            own = margin if place == 0 else 0
            left = 0 if place == 0 else margin + place * (1 + columns + _GAP)
            panel = Frame(Grid(own + 1 + columns, ROWS + 2), own, columns, ROWS, x_axis, y_axis, surface)
            for x, y in _band(panel, steps, low, high):
                panel.grid.put(x, y, surface.glyphs.shade, style + DIM)
            panel.axes(ticks)
            panel.line(thin(list(zip(steps, median, strict=False)), 6 * columns), style, "")
            row.put(left + own, 0, cut(escape(title), columns + 1, surface.glyphs.cut_text), BOLD)
            row.paste(panel.grid, left, 1)
        lines += row.lines()
    return lines + _legend(curves, surface, line)


def _axes(curves: Sequence[Curve], last: int | None) -> tuple[Axis, Axis]:
    scale = Axis(0.0, 1.0, log=True)
    drawn = [value for _, _, *bands in curves for value in chain(*bands) if scale.shows(value)]
    low, high = min(drawn, default=0.1), max(drawn, default=1.0)
    if not high > low:
        low, high = (low / 2, low) if low > 1 else (low, low * 2)
    last = last or max((step for _, steps, *_ in curves for step in steps), default=1)
    return Axis(0.0, float(max(1, last))), Axis(low, high, log=True)


def _band(frame: Frame, steps: Sequence[int], low: Values, high: Values) -> Iterator[tuple[int, int]]:
    """Yield the cells between the two edges; between two recorded steps an edge is a straight line of the picture."""
    before: tuple[int, int, int] | None = None
    for step, bottom, top in zip(steps, low, high, strict=False):
        if not (frame.y_axis.shows(bottom) and frame.y_axis.shows(top)):
            before = None
            continue
        x, under = frame.cell(step, bottom)
        _, over = frame.cell(step, top)
        x0, under0, over0 = before or (x, under, over)
        for column in range(x0, x + 1):
            part = (column - x0) / (x - x0) if x > x0 else 1.0
            first, last = round(over0 + (over - over0) * part), round(under0 + (under - under0) * part)
            # One cell high, it is the cell of the line itself.
            yield from ((column, y) for y in range(first, last + 1) if first < last)
        before = x, under, over


def _legend(curves: Sequence[Curve], surface: Surface, line: str) -> Lines:
    glyphs = surface.glyphs
    style = line_style(0, surface.depth)
    phrases: list[Phrase] = [
        [(f"{glyphs.line * 2} ", style), (line, DIM)],
        [(f"{glyphs.shade * 2} ", style + DIM), ("quartiles", DIM)],
        "loss (nats), log scale, shared axes",
    ]
    linear = Axis(0.0, 1.0)
    if any(linear.shows(value) and value <= 0 for _, _, *bands in curves for value in chain(*bands)):
        phrases.append("values of 0 or less are not on the log scale")
    if not all(linear.shows(value) for _, _, median, *_ in curves for value in median):
        phrases.append(f"gap: {line} not finite")
    return wrap_phrases(phrases, surface.width, DIM)
