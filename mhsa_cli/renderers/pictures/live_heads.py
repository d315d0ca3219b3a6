"""Attention maps of this moment beside the loss curve, or below it where the terminal is narrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.text import Text

from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import PLAIN
from mhsa_cli.renderers.kit.text_lines import Lines, Phrase
from mhsa_cli.renderers.pictures.fitted_maps import Fit, Fitter, draw_fitted, scale_line
from mhsa_cli.text import Head

LEAST_PLOT, MOST_PLOT = 3, 12  # rows of the plot above maps
TALLEST = 20  # rows of the plot beside maps
LEAST_CURVE, LEAST_MAPS = 40, 44  # columns of the curve beside maps, and of these with their heading
BETWEEN = 4  # columns between curve and maps

Curve = Callable[[int, int], Lines]  # of columns, and of rows of the plot


def by_lift(maps: HeadMaps, lifts: Mapping[Head, float]) -> list[Head]:
    """List all heads, those with the highest lift on any target first."""
    return sorted((head.address for head in maps.heads), key=lambda head: (-lifts.get(head, 0.0), head))


def beside_or_below(
    curve: Curve,
    around: Callable[[int], int],
    maps: HeadMaps,
    heads: Sequence[Head],
    surface: Surface,
    width: int,
    height: int,
) -> Lines | None:
    """Draw the curve with the maps where they are finer; of the heads as many as fit, the first ones, and a note.

    `around` tells the rows of a curve of so many columns besides those of its plot. None if there is no room for a map.
    """
    fitter = Fitter(maps, surface)
    under = around(width) + LEAST_PLOT
    below = _best(fitter, heads, width, height - under)
    room = width - LEAST_CURVE - BETWEEN
    beside = _best(fitter, heads, room, height - 1) if room >= LEAST_MAPS else None
    if beside is not None and (below is None or beside.fineness >= below.fineness):
        return _abreast(curve, around, beside, maps, surface, width, height)
    if below is None:
        return None
    rows = height - below.rows
    own_line = rows > under + LEAST_PLOT  # else the scale stands on the curve's first line
    plot = min(MOST_PLOT, rows - under + LEAST_PLOT - own_line)
    above = curve(width, plot)
    drawn = draw_fitted(below, maps, surface, height - len(above) - own_line)
    if own_line:
        return above + _heading(below, maps, surface, width) + drawn
    left = above[0].cell_len + BETWEEN
    above[0].append(" " * BETWEEN).append_text(_heading(below, maps, surface, width - left)[0])
    return above + drawn


def _best(fitter: Fitter, heads: Sequence[Head], columns: int, rows: int) -> Fit | None:
    return fitter.fit(sorted(heads), columns, rows) or fitter.most(heads, columns, rows)


def _abreast(
    curve: Curve, around: Callable[[int], int], fit: Fit, maps: HeadMaps, surface: Surface, width: int, height: int
) -> Lines:
    """Set curve and maps side by side, the scale above the maps."""
    left = width - max(LEAST_MAPS, fit.columns) - BETWEEN
    drawn = draw_fitted(fit, maps, surface, height - 1)
    frame = around(left)
    plot = max(LEAST_PLOT, min(TALLEST, height - frame, max(MOST_PLOT, len(drawn) + 1 - frame)))
    right = _heading(fit, maps, surface, width - left - BETWEEN) + drawn
    lines = Lines(line.copy() for line in curve(left, plot)[:height])
    lines += [Text() for _ in right[len(lines) :]]
    for line, more in zip(lines, right, strict=False):
        if more:
            line.append(" " * (left + BETWEEN - line.cell_len)).append_text(more)
    return lines


def _heading(fit: Fit, maps: HeadMaps, surface: Surface, width: int) -> Lines:
    """Write in one line what is left out, and the scale."""
    count = len(maps.heads)
    left_out: list[Phrase] = [[(f"top {len(fit.heads)} of {count} heads by lift", PLAIN)]]
    return scale_line(fit, surface, width, left_out if len(fit.heads) < count else ())
