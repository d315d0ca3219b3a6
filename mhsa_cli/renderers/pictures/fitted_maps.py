"""Attention maps within given columns and rows: smaller cells, then pooled ones, then fewer heads at a time."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.renderers.kit import cells as cell_kinds
from mhsa_cli.renderers.kit.cells import CellKind, color_bar, paint, pool
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN
from mhsa_cli.renderers.kit.text_lines import Grid, Lines, Phrase
from mhsa_cli.renderers.pictures.heatmap import panels_of
from mhsa_cli.text import Head

GAP = 2  # columns between two heads
LEAST, CLEAR = 8, 16  # cells a side at which pooling stops: where nothing else helps, and by choice


@dataclass(frozen=True, slots=True)
class Fit:
    """A layout of heads in `bands`, one below the other, that fits: kind of cell, and pooling by `size`.

    A head takes `wide` columns and `tall` rows, its name included; with `inside` the name stands in its masked future.
    """

    bands: Sequence[Sequence[Head]]
    kind: CellKind
    size: int
    wide: int
    tall: int
    inside: bool

    @property
    def columns(self) -> int:
        """The columns of the widest band."""
        return max(len(band) for band in self.bands) * (self.wide + GAP) - GAP

    @property
    def rows(self) -> int:
        """The rows of all bands without space between them."""
        return len(self.bands) * self.tall

    @property
    def heads(self) -> list[Head]:
        """The heads that it shows."""
        return [head for band in self.bands for head in band]

    @property
    def fineness(self) -> tuple[float, ...]:
        """How finely it shows how many heads; the larger the better."""
        return len(self.heads), -self.size, self.kind.wide / self.kind.tall


class Fitter:
    """Finds layouts of a model's maps; all maps of a training have one shape, so one fitter serves all of its steps."""

    def __init__(self, maps: HeadMaps, surface: Surface) -> None:
        self.surface = surface
        self.heads = [head.address for head in maps.heads]
        firsts = {head.layer: head for head in reversed(self.heads)}.values()
        panels = [panel for row in panels_of(maps, firsts) for panel in row]
        self.across = max((len(panel.cells[0]) for panel in panels if panel.cells), default=0)
        self.down = max((len(panel.cells) for panel in panels), default=0)
        self.masked = all(value is None for panel in panels for value in panel.cells[0][1:])

    def fit(self, heads: Sequence[Head], columns: int, rows: int, least: int = LEAST) -> Fit | None:
        """Lay heads out within so many columns and rows; None if not all fit, pooled to `least` cells a side or not."""
        length, size = max(self.across, self.down), 1
        while heads and (size == 1 or math.ceil(length / size) >= least):
            for kind in self._kinds(size, alone=len(heads) == 1):
                for inside in (False, True):
                    found = self._lay_out(heads, kind, size, inside, columns)
                    if found is not None and found.rows <= rows:
                        return found
            size *= 2
        return None

    def most(self, heads: Sequence[Head], columns: int, rows: int) -> Fit | None:
        """Lay out as many of the first heads, which stand in the order of their importance, as fit."""
        count = bisect_left(range(1, len(heads)), True, key=lambda n: self._first(heads, n, columns, rows) is None)
        return self._first(heads, count + 1, columns, rows) or self._first(heads, count, columns, rows)

    def pages(self, heads: Sequence[Head], columns: int, rows: int) -> list[Fit]:
        """Lay all heads out on one page, else each layer on one, else as many heads as fit on each."""
        layers = [list(group) for _, group in groupby(heads, key=lambda head: head.layer)]
        for least in (CLEAR, LEAST):
            for parts in ([list(heads)], layers):
                found = [self.fit(part, columns, rows, least) for part in parts]
                if all(found):
                    return [one for one in found if one is not None]
        pages: list[Fit] = []
        for layer in layers:
            while layer and (page := self.most(layer, columns, rows)) is not None:
                pages.append(page)
                layer = [head for head in layer if head not in page.heads]
        return pages

    def _first(self, heads: Sequence[Head], count: int, columns: int, rows: int) -> Fit | None:
        return self.fit(sorted(heads[:count]), columns, rows)

    def _kinds(self, size: int, alone: bool) -> list[CellKind]:
        small = cell_kinds.DIGIT_CELL
        if self.surface.paints:
            small = cell_kinds.HALF_CELL if self.surface.glyphs.half else cell_kinds.FULL_CELL
        if size > 1:  # a larger cell takes the room of those that it was pooled from
            return [small]
        large = cell_kinds.FULL_CELL if self.surface.paints else cell_kinds.WIDE_DIGIT_CELL
        return [*[cell_kinds.PERCENT_CELL] * alone, large, small]

    def _lay_out(self, heads: Sequence[Head], kind: CellKind, size: int, inside: bool, columns: int) -> Fit | None:
        wide = math.ceil(self.across / size) * kind.wide
        tall = math.ceil(math.ceil(self.down / size) / kind.tall)
        name = max(len(str(head)) for head in heads)
        if inside and not (self.masked and wide >= kind.wide * kind.tall + 1 + name):
            return None
        panel = max(wide, name)
        per_band = (columns + GAP) // (panel + GAP)
        if per_band < 1:
            return None
        bands: list[list[Head]] = []
        for _, group in groupby(heads, key=lambda head: head.layer):
            layer = list(group)
            each = math.ceil(len(layer) / math.ceil(len(layer) / per_band))
            bands += [layer[start : start + each] for start in range(0, len(layer), each)]
        return Fit(bands, kind, size, panel, tall + (not inside), inside)


def draw_fitted(fit: Fit, maps: HeadMaps, surface: Surface, rows: int = 0) -> Lines:
    """Draw the maps of a layout; with `rows` to spare, a blank one between two bands."""
    panels = {panel.summary.address: panel for row in panels_of(maps, fit.heads) for panel in row}
    between = int(rows >= fit.rows + len(fit.bands) - 1)
    grid = Grid(fit.columns, fit.rows + between * (len(fit.bands) - 1))
    for number, band in enumerate(fit.bands):
        top = number * (fit.tall + between)
        for place, head in enumerate(band):
            left, name = place * (fit.wide + GAP), str(head)
            paint(grid, left, top + (not fit.inside), pool(panels[head].cells, fit.size), fit.kind, surface)
            grid.put(left + (fit.wide - len(name) if fit.inside else 0), top, name, BOLD)
    return grid.lines()


def scale_phrases(fit: Fit, surface: Surface, *, brief: bool) -> list[Phrase]:
    """Explain the cells, the most important first: pooling, the scale, and what lies down and across."""
    glyphs = surface.glyphs
    scale: Phrase = "attention in percent" if fit.kind.name == "percent" else "attention in tenths"
    if surface.paints and fit.kind.name != "percent":
        scale = [("0 " if brief else "attention 0 ", DIM), *color_bar(surface), (" 1", DIM)]
    pooled: list[Phrase] = [[(f"pooled {fit.size}{glyphs.times}{fit.size}", PLAIN)]] if fit.size > 1 else []
    return [*pooled, scale, f"query {glyphs.down_text} key {glyphs.right_text}"]
