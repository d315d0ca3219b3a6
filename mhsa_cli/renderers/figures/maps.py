"""Attention maps of all heads on one colour scale, with their labels, and the effect of every head on the loss."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.renderers.figures.ablations import effects_of
from mhsa_cli.renderers.figures.sheet import EDGE, GAP, VIRIDIS, Draw, PaperFigure, Sheet, compose, set_ticks
from mhsa_cli.renderers.figures.sheet_options import Page
from mhsa_cli.renderers.kit.cells import pool
from mhsa_cli.renderers.kit.map_layout import Panel, balanced
from mhsa_cli.renderers.kit.ticks import linear_ticks
from mhsa_cli.renderers.pictures.heatmap import panels_of
from mhsa_cli.text import Head, escape

TOKEN = 5.5  # points: the tokens on the axes
LONGEST = 6  # characters of a token
LEAST = ((6, 1.0), (12, 0.7), (math.inf, 0.5))  # inches of a map's side: with so many heads, at least
MOST = 1.6
BETWEEN = 0.13  # inches between maps
FINEST = 150  # cells per inch that paper still shows; the maps of longer rows are pooled
BAR, BAR_ROOM = 0.07, 0.5  # inches of the colour bar, and with its numbers
LINE = 0.115  # inches of a line of text


def heads_figure(maps: HeadMaps, page: Page, heads: Collection[Head] | None = None) -> PaperFigure:
    """Draw the maps of all heads, or of those at the addresses `heads`, and what each does to the loss."""
    return compose(page, {"maps": maps_of(maps, heads), "effects": effects_of(maps.report, heads)})


def maps_of(maps: HeadMaps, heads: Collection[Head] | None = None) -> Draw:
    """Return what draws small multiples of the maps, a row or more for each layer."""
    return lambda sheet: _panels(sheet, panels_of(maps, heads))


def _panels(sheet: Sheet, layers: Sequence[Sequence[Panel]]) -> None:
    every = [one for layer in layers for one in layer]
    longest = max(max(len(one.down), len(one.across)) for one in every)
    texts = sorted({_token(token) for one in every for token in (*one.down, *one.across)}, key=len)
    widest = max((sheet.text_width(text, TOKEN) for text in texts[-8:]), default=0.0)
    left = EDGE + 0.15 + max(0.12, widest) + 0.05
    room = sheet.width - left - BAR_ROOM - EDGE
    count = _per_row(room, max(map(len, layers)), len(every))
    bands = [band for layer in layers for band in balanced(layer, count)]
    count = max(map(len, bands))
    side = min(MOST, (room - (count - 1) * BETWEEN) / count)
    cell = side / longest
    is_written = bool(texts) and cell * 72 >= TOKEN * 1.02
    bar_top = sheet.top + LINE + 0.03
    for number, band in enumerate(bands):
        sheet.top += LINE + 0.03
        row = []
        for place, one in enumerate(band):
            at = left + place * (side + BETWEEN)
            axes = sheet.panel(at, sheet.top, cell * len(one.across), cell * len(one.down))
            sheet.text(at, sheet.top - 0.03, sheet.fit(one.name, side + BETWEEN / 2), va="baseline")
            pooled = _paint(axes, one, side, sheet)
            _ticks(axes, one, cell if is_written else 0.0, widest, first=place == 0)
            if place == 0:
                axes.set_ylabel("query", fontsize=7)
            if number == len(bands) - 1:
                axes.set_xlabel("key" if pooled == 1 else f"key (cell: largest of {pooled}×{pooled})", fontsize=7)
            row.append(axes)
        sheet.close(row, 0.03)
        labels = [sheet.fit(one.label, side + BETWEEN / 2, 3) for one in band]
        for place, label in enumerate(labels):
            sheet.text(left + place * (side + BETWEEN), sheet.top, label, color=sheet.inks.dim)
        sheet.top += max(label.count("\n") + bool(label) for label in labels) * LINE + 0.05
    _color_bar(sheet, left + count * side + (count - 1) * BETWEEN + 0.1, bar_top, min(side, 1.2))
    sheet.top += GAP - 0.05


def _per_row(room: float, most: int, heads: int) -> int:
    """Choose how many maps stand side by side: as many as are large enough, rows of equal length before others."""
    least = next(side for limit, side in LEAST if heads <= limit)
    widest = max(1, min(most, int((room + BETWEEN) / (least + BETWEEN))))
    even = [count for count in range(widest, (widest + 1) // 2, -1) if most % count == 0]
    return even[0] if even else widest


def _paint(axes: Axes, one: Panel, side: float, sheet: Sheet) -> int:
    """Paint the cells of a map; returns how many are pooled in each direction."""
    size = 1
    while max(len(one.down), len(one.across)) / size > side * FINEST:
        size *= 2
    cells = pool(one.cells, size)
    wide = max(map(len, cells))
    values = numpy.full((len(cells), wide), math.nan)
    broken = []
    for q, row in enumerate(cells):
        for k, value in enumerate(row):
            if value is not None and math.isfinite(value):
                values[q, k] = value
            elif value is not None:
                broken.append((k, q))
    extent = (-0.5, len(one.across) - 0.5, len(one.down) - 0.5, -0.5)
    axes.imshow(values, cmap=VIRIDIS, vmin=0, vmax=1, interpolation="nearest", aspect="auto", extent=extent)
    if broken:
        x, y = ([size * at[i] + (size - 1) / 2 for at in broken] for i in (0, 1))
        axes.plot(x, y, "x", color=sheet.inks.alarm, markersize=3, markeredgewidth=0.8)
        axes.set_xlim(*extent[:2])
        axes.set_ylim(*extent[2:])
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color(sheet.inks.faint)
    return size


def _ticks(axes: Axes, one: Panel, cell: float, widest: float, *, first: bool) -> None:
    """Write the tokens on the axes where a cell is as tall as they are, else the positions from 0."""
    axes.tick_params(length=0 if cell else 1.5, labelsize=TOKEN if cell else 6, pad=1.5, labelleft=first)
    for axis, tokens in ((axes.xaxis, one.across), (axes.yaxis, one.down)):
        if cell:
            set_ticks(axis, range(len(tokens)), [_token(token) for token in tokens])
        else:
            places = [int(at) for at in linear_ticks(0, len(tokens) - 1, 3) if at == int(at)]
            set_ticks(axis, places, [str(at) for at in places])
    if not first:
        axes.tick_params(axis="y", length=0)
    if cell and widest > cell * 0.92:
        axes.tick_params(axis="x", labelrotation=90)


def _token(text: str) -> str:
    shown = escape(text)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def _color_bar(sheet: Sheet, left: float, top: float, height: float) -> None:
    axes = sheet.panel(left, top, BAR, height)
    bar = sheet.figure.colorbar(ScalarMappable(Normalize(0, 1), VIRIDIS), cax=axes)
    bar.outline.set_visible(False)  # type: ignore[operator]
    set_ticks(axes.yaxis, [0, 0.5, 1], ["0", "0.5", "1"])
    axes.tick_params(labelsize=6, labelcolor=sheet.inks.ink, color=sheet.inks.dim)
    axes.set_ylabel("weight", fontsize=7, color=sheet.inks.ink)
