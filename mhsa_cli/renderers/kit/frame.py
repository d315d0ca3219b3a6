"""A plot: the frame with its axes and round ticks, and in it lines made of dots.

A dot is braille (2 by 4 dots a cell), or ASCII with three heights a cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from rich.style import Style

from mhsa_cli.records.thinning import Point
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import DIM
from mhsa_cli.renderers.kit.text_lines import Grid
from mhsa_cli.renderers.kit.ticks import Axis, linear_ticks, log_tick_text, log_ticks, step_text, step_ticks, tick_texts

_EVERY = 3  # columns between two point markers at least, or they hide the line under them
# Dot bits of U+2800, by column and row inside the cell.
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
# ASCII: which heights of a cell are hit (bit 0 = top) -> one character.
_HEIGHTS = {1: "'", 2: "-", 4: ".", 3: "'", 6: ".", 5: ":", 7: "|"}


class Canvas:
    """The dots of one line on `columns` by `rows` cells; x runs right, y runs up, both 0..1."""

    def __init__(self, columns: int, rows: int, *, braille: bool) -> None:
        self.columns, self.rows, self.braille = columns, rows, braille
        self.per_x, self.per_y = (2, 4) if braille else (1, 3)
        self.width, self.height = columns * self.per_x, rows * self.per_y
        self.cells: dict[tuple[int, int], int] = {}

    def dot_at(self, x: float, y: float) -> tuple[int, int]:
        """Return the dot nearest to a place; row 0 is the top."""
        return round(x * (self.width - 1)), round((1.0 - y) * (self.height - 1))

    def dot(self, x: int, y: int) -> None:
        """Set one dot."""
        if self.braille:
            cell, bit = (x >> 1, y >> 2), _BRAILLE[x & 1][y & 3]
        else:
            cell, bit = (x, y // 3), 1 << y % 3
        self.cells[cell] = self.cells.get(cell, 0) | bit

    def line(self, start: tuple[int, int], stop: tuple[int, int]) -> None:
        """Set every dot between two dots, ends included."""
        (x0, y0), (x1, y1) = start, stop
        steps = max(abs(x1 - x0), abs(y1 - y0))
        for number in range(steps + 1):
            part = number / steps if steps else 0.0
            self.dot(round(x0 + (x1 - x0) * part), round(y0 + (y1 - y0) * part))

    def spot(self, at: tuple[int, int]) -> None:
        """Set a small square of dots, so that a point with no neighbours can be seen."""
        size = 2 if self.braille else 1
        for x in range(at[0], min(at[0] + size, self.width)):
            for y in range(at[1], min(at[1] + size, self.height)):
                self.dot(x, y)

    def paint(self, grid: Grid, left: int, top: int, style: Style, letter: str = "") -> None:
        """Put the cells on a grid; with `letter` each cell shows it, to distinguish lines without colour."""
        for (column, row), bits in self.cells.items():
            char = letter or (chr(0x2800 + bits) if self.braille else _HEIGHTS[bits])
            grid.put(left + column, top + row, char, style)


@dataclass(slots=True)
class Frame:
    """A plot area of `columns` by `height` cells on a grid; the left axis stands in column `margin`."""

    grid: Grid
    margin: int
    columns: int
    height: int
    x_axis: Axis
    y_axis: Axis
    surface: Surface

    def canvas(self) -> Canvas:
        """Make a canvas of this frame's size."""
        return Canvas(self.columns, self.height, braille=self.surface.glyphs.braille)

    def cell(self, step: float, value: float) -> tuple[int, int]:
        """Return the grid cell of a point, from the dots that lines use, so that ticks and lines agree."""
        canvas = self.canvas()
        x, y = canvas.dot_at(self.x_axis.place(step), self.y_axis.place(value))
        return self.margin + 1 + x // canvas.per_x, y // canvas.per_y

    def axes(self, ticks: Sequence[tuple[str, float]]) -> None:
        """Draw both axes; a tick that would touch its neighbour is omitted."""
        glyphs, grid = self.surface.glyphs, self.grid
        for row in range(self.height):
            grid.put(self.margin, row, glyphs.vertical, DIM)
        taken: set[int] = set()
        for text, value in ticks:
            _, row = self.cell(self.x_axis.low, value)
            if row not in taken:
                taken.add(row)
                grid.put(self.margin - 1 - len(text), row, text, DIM)
                grid.put(self.margin, row, glyphs.tick_left, DIM)
        grid.put(self.margin, self.height, glyphs.corner + glyphs.horizontal * self.columns, DIM)
        end = self.margin + 1 + self.columns
        free = 0
        for tick in step_ticks(self.x_axis, max(1, self.columns // (6 if self.x_axis.log1p else 9))):
            if tick != int(tick):
                continue
            text = step_text(tick)
            x, _ = self.cell(tick, self.y_axis.low)
            left = max(0, min(x - len(text) // 2, grid.width - len(text)))
            if left >= free:
                grid.put(x, self.height, glyphs.tick_down, DIM)
                grid.put(left, self.height + 1, text, DIM)
                free = left + len(text) + 1
        place = max(free + 1, end - len("step"))
        if place + len("step") <= grid.width:
            grid.put(place, self.height + 1, "step", DIM)

    def baseline(self, value: float) -> None:
        """Draw a dashed line across the plot, if the value lies in it."""
        if self.y_axis.low <= value <= self.y_axis.high:
            _, row = self.cell(self.x_axis.low, value)
            self.grid.put(self.margin + 1, row, self.surface.glyphs.baseline * self.columns, DIM)

    def line(self, points: Sequence[Point], style: Style, letter: str) -> None:
        """Draw a line through the points; it breaks at every gap, and a point alone becomes a spot."""
        canvas = self.canvas()
        for drawn, run in groupby(points, key=lambda point: self.y_axis.shows(point[1])):
            if drawn:
                dots = [canvas.dot_at(self.x_axis.place(step), self.y_axis.place(value or 0.0)) for step, value in run]
                if len(dots) == 1:
                    canvas.spot(dots[0])
                for start, stop in pairwise(dots):
                    canvas.line(start, stop)
        canvas.paint(self.grid, self.margin + 1, 0, style, letter)

    def points(self, points: Sequence[Point], style: Style, letter: str = "") -> None:
        """Draw markers or letters: the first, the last, and between them as many as leave the line visible."""
        mark = letter or self.surface.glyphs.point
        drawn = [self.cell(step, value) for step, value in points if self.y_axis.shows(value)]
        last = drawn[-1] if drawn else (0, 0)
        free = -1
        for x, y in drawn:
            if x >= free and (x <= last[0] - _EVERY or (x, y) == last):
                self.grid.put(x, y, mark, style)
                free = x + _EVERY
        if drawn:
            self.grid.put(*last, mark, style)

    def gaps(self, points: Sequence[Point], style: Style) -> None:
        """Mark on the bottom row where a value was not finite."""
        for step, value in points:
            if value is None or not math.isfinite(value):
                x, _ = self.cell(step, self.y_axis.low)
                self.grid.put(x, self.height - 1, self.surface.glyphs.cross, style)


def value_ticks(axis: Axis, height: int) -> list[tuple[str, float]]:
    """List the ticks of the left axis with their texts, as many as fit in `height` rows."""
    if axis.log:
        return [(log_tick_text(tick), tick) for tick in log_ticks(axis.low, axis.high, max(2, height // 2))]
    ticks = linear_ticks(axis.low, axis.high, max(1, height // 2))
    if len(ticks) == 1 and height > 2:
        ticks = linear_ticks(axis.low, axis.high, 2)
    return list(zip(tick_texts(ticks), ticks, strict=True))
