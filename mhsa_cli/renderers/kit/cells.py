"""Cells of attention maps: pooled, and painted as full cells, half cells, digits or percents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import DIM, PLAIN, alarm_style, clamp, heat_style, ink_style, level_of
from mhsa_cli.renderers.kit.text_lines import Grid, Piece

Matrix = Sequence[Sequence[float]]
Cells = list[list[float | None]]  # None = masked: nothing is drawn there


@dataclass(frozen=True, slots=True)
class CellKind:
    """The form of a cell: `wide` columns, `tall` cells in one row of text (2 for half cells)."""

    name: str
    wide: int
    tall: int = 1


FULL_CELL = CellKind("full", 2)
HALF_CELL = CellKind("half", 1, 2)
WIDE_DIGIT_CELL = CellKind("digit", 2)
DIGIT_CELL = CellKind("digit", 1)
PERCENT_CELL = CellKind("percent", 4)


def sees_future(weights: Matrix) -> bool:
    """Whether a map has weight in the future (k > q): something finite but zero."""
    return any(math.isfinite(value) and value != 0.0 for q, row in enumerate(weights) for value in list(row)[q + 1 :])


def masked_cells(weights: Matrix) -> Cells:
    """Copy a (T, T) map with None for the masked future, unless it sees the future: then every cell is shown."""
    shown = sees_future(weights)
    return [[value if shown or k <= q else None for k, value in enumerate(row)] for q, row in enumerate(weights)]


def pool(cells: Sequence[Sequence[float | None]], size: int) -> Cells:
    """Replace blocks of `size` by `size` cells with their largest value; NaN wins, masked cells do not count."""
    if size == 1:
        return [[*row] for row in cells]
    columns = max((len(row) for row in cells), default=0)
    return [
        [
            _largest([value for row in cells[q : q + size] for value in row[k : k + size]])
            for k in range(0, columns, size)
        ]
        for q in range(0, len(cells), size)
    ]


def _largest(values: list[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    if not present:
        return None
    return max(present) if all(map(math.isfinite, present)) else math.nan


def digit(value: float) -> str:
    """Write a weight as one character: tenths, rounded; `9` is 0.85 or more, and less than 0.05 is "" (a dot)."""
    tenths = min(9, int(clamp(value) * 10 + 0.5))
    return str(tenths) if tenths else ""


def color_bar(surface: Surface) -> list[Piece]:
    """Draw the colours of the weights 0, 0.1, ... 1, on a surface that paints."""
    return [(" ", heat_style(None, level, surface.depth)) for level in range(0, 101, 10)]


def paint(grid: Grid, left: int, top: int, cells: Cells, kind: CellKind, surface: Surface) -> None:
    """Paint pooled cells with their upper left corner at (`left`, `top`)."""
    if kind.tall == 2:
        for q in range(0, len(cells), 2):
            upper, lower = [*cells[q : q + 2], []][:2]
            _paint_half_row(grid, left, top + q // 2, upper, lower, surface)
        return
    for q, row in enumerate(cells):
        for k, value in enumerate(row):
            if value is not None:
                _paint_cell(grid, left + k * kind.wide, top + q, value, kind, surface)


def _paint_cell(grid: Grid, x: int, y: int, value: float, kind: CellKind, surface: Surface) -> None:
    if not math.isfinite(value):
        grid.put(x + kind.wide // 3, y, "?", alarm_style(surface.depth))
        return
    level = level_of(value)
    if kind.name == "full":
        grid.put(x, y, "  ", heat_style(None, level, surface.depth))
    elif kind.name == "percent" and surface.paints:
        grid.put(x, y, f"{level:>3} ", ink_style(level, surface.depth))
    else:
        text = (str(level) if level else "") if kind.name == "percent" else digit(value)
        grid.put(x, y, f"{text or surface.glyphs.dot:>{kind.wide - 1 or 1}}", PLAIN if text else DIM)


def _paint_half_row(
    grid: Grid, left: int, y: int, upper: Sequence[float | None], lower: Sequence[float | None], surface: Surface
) -> None:
    """Paint two queries in one row of text: the foreground is the upper one, the background the lower one."""
    glyphs = surface.glyphs
    for k, (above, below) in enumerate(zip_longest(upper, lower)):
        if any(value is not None and not math.isfinite(value) for value in (above, below)):
            grid.put(left + k, y, "?", alarm_style(surface.depth))
        elif above is not None:
            back = None if below is None else level_of(below)
            grid.put(left + k, y, glyphs.half, heat_style(level_of(above), back, surface.depth))
        elif below is not None:
            grid.put(left + k, y, glyphs.half_low, heat_style(level_of(below), None, surface.depth))
