"""Attention maps within given columns and rows: smaller cells, then pooled ones, then fewer heads."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rich.cells import cell_len

from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.renderers.kit import cells as cell_kinds
from mhsa_cli.renderers.kit.cells import CellKind, paint, pool
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.map_layout import Panel, balanced
from mhsa_cli.renderers.kit.palette import BOLD, DIM
from mhsa_cli.renderers.kit.text_lines import Grid, Lines, Phrase, cut, wrap_phrases
from mhsa_cli.renderers.pictures.explain import by_importance
from mhsa_cli.renderers.pictures.heatmap import brief_caption, panels_of, scale_phrases
from mhsa_cli.text import Head

GAP = 2  # columns between two heads
LEAST, CLEAR, WHOLE = 8, 16, math.inf  # cells a side at which pooling stops: as a last resort, by choice, at once
LEAST_LABEL = 8  # columns


@dataclass(frozen=True, slots=True)
class Fit:
    """A layout of heads in `bands`, one below the other, that fits: kind of cell, and pooling by `size`.

    A head takes `wide` columns and `tall` rows, its name and label included. `titles` are the rows of these above the
    map: 0, the name stands in its masked future; 1, the label beside the name; 2, the label below it.
    """

    bands: Sequence[Sequence[Head]]
    kind: CellKind
    size: int
    wide: int
    tall: int
    titles: int
    labels: Mapping[Head, str] = field(default_factory=dict)

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
    """Finds layouts of a model's maps; all maps of a training have one shape, so one fitter serves all of its steps.

    With `labelled` heads have their labels; with `small` cells are as small as they can be.
    """

    def __init__(self, maps: HeadMaps, surface: Surface, *, labelled: bool = False, small: bool = False) -> None:
        self.surface, self.small = surface, small
        self.heads = [head.address for head in maps.heads]
        firsts = {head.layer: head for head in reversed(self.heads)}.values()
        panels = _panels(maps, firsts).values()
        every = _panels(maps, self.heads) if labelled else {}
        self.labels = {head: f"{panel.role} {panel.label}".strip() for head, panel in every.items()}
        self.across = max((len(panel.cells[0]) for panel in panels if panel.cells), default=0)
        self.down = max((len(panel.cells) for panel in panels), default=0)
        self.masked = all(value is None for panel in panels for value in panel.cells[0][1:])

    def fit(self, heads: Sequence[Head], columns: int, rows: int, least: float = LEAST) -> Fit | None:
        """Lay heads out within so many columns and rows; None if not all fit, pooled to `least` cells a side or not."""
        length, size = max(self.across, self.down), 1
        while heads and (size == 1 or math.ceil(length / size) >= least):
            for kind in self._kinds(size, alone=len(heads) == 1):
                for titles in (1, 2) if self.labels else (1, 0):
                    if (found := self._lay_out(heads, kind, size, titles, columns, rows)) is not None:
                        return found
            size *= 2
        return None

    def most(self, heads: Sequence[Head], columns: int, rows: int, least: float = LEAST) -> Fit | None:
        """Lay out as many of the first heads, which stand in the order of their importance, as fit."""

        def first(count: int) -> Fit | None:
            return self.fit(sorted(heads[:count]), columns, rows, least)

        count = bisect_left(range(1, len(heads)), True, key=lambda n: first(n) is None)
        return first(count + 1) or first(count)

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

    def _kinds(self, size: int, alone: bool) -> list[CellKind]:
        small = cell_kinds.DIGIT_CELL
        if self.surface.paints:
            small = cell_kinds.HALF_CELL if self.surface.glyphs.half else cell_kinds.FULL_CELL
        if size > 1 or self.small:  # a larger cell takes the room of those that it was pooled from
            return [small]
        large = cell_kinds.FULL_CELL if self.surface.paints else cell_kinds.WIDE_DIGIT_CELL
        return [*[cell_kinds.PERCENT_CELL] * alone, large, small]

    def _lay_out(
        self, heads: Sequence[Head], kind: CellKind, size: int, titles: int, columns: int, rows: int
    ) -> Fit | None:
        wide = math.ceil(self.across / size) * kind.wide
        tall = math.ceil(math.ceil(self.down / size) / kind.tall)
        name = max(len(str(head)) for head in heads)
        if titles == 0 and not (self.masked and wide >= kind.wide * kind.tall + 1 + name):
            return None
        label = max((1 + cell_len(self.labels[head]) for head in heads if self.labels.get(head)), default=0)
        panel = max(wide, name, (0, label and name + 1 + label, min(label, LEAST_LABEL))[titles])
        per_band = (columns + GAP) // (panel + GAP)
        if per_band < 1:
            return None
        layers = [list(group) for _, group in groupby(heads, key=lambda head: head.layer)]
        ways = ([band for layer in parts for band in balanced(layer, per_band)] for parts in (layers, [heads]))
        bands = next((bands for bands in ways if len(bands) * (tall + titles) <= rows), None)
        if bands is None:
            return None
        if titles == 2:  # a label has all the room that there is
            panel = max(panel, min(label, (columns + GAP) // max(map(len, bands)) - GAP))
        return Fit(bands, kind, size, panel, tall + titles, titles, self.labels)


def draw_fitted(fit: Fit, maps: HeadMaps, surface: Surface, rows: int = 0) -> Lines:
    """Draw the maps of a layout; with `rows` to spare, a blank one between two bands."""
    panels = _panels(maps, fit.heads)
    between = int(rows >= fit.rows + len(fit.bands) - 1)
    grid = Grid(fit.columns, fit.rows + between * (len(fit.bands) - 1))
    for number, band in enumerate(fit.bands):
        top = number * (fit.tall + between)
        for place, head in enumerate(band):
            left, name = place * (fit.wide + GAP), str(head)
            paint(grid, left, top + fit.titles, pool(panels[head].cells, fit.size), fit.kind, surface)
            grid.put(left if fit.titles else left + fit.wide - len(name), top, name, BOLD)
            label = cut(fit.labels.get(head, ""), fit.wide - 1, surface.glyphs.cut_text)
            grid.put(*((left, top + 1) if fit.titles == 2 else (left + len(name) + 1, top)), label)
    return grid.lines()


def scale_line(fit: Fit, surface: Surface, width: int, before: Sequence[Phrase] = ()) -> Lines:
    """Write in one line what comes `before`, and as much of the explanation of a layout as has room."""
    scales = (scale_phrases(fit.kind, fit.size, surface, named=named) for named in (True, False))
    found = (wrap_phrases([*before, *phrases], width, DIM) for phrases in scales)
    return Lines(min(found, key=lambda lines: sum(line.cell_len for line in lines[1:]))[:1])


def captioned_maps(
    maps: HeadMaps, surface: Surface, rows: int, more: str, *, small: bool = False
) -> tuple[Fit, Lines] | None:
    """Draw the labelled maps of all heads in at most so many rows, else of the most important ones, else pooled.

    `more` is the command that shows all, named where heads are missing. None: not one head fits.
    """
    fitter = Fitter(maps, surface, labelled=True, small=small)
    heads = fitter.heads if maps.report is None else by_importance(maps.report)
    for free in range(1, rows):  # rows for the caption
        found = (fitter.most(heads, surface.width, rows - free, least) for least in (WHOLE, CLEAR, LEAST))
        fit = next(filter(None, found), None)
        if fit is None:
            return None
        said = brief_caption(list(_panels(maps, fit.heads).values()), fit.kind, fit.size, surface)
        if len(fit.heads) < len(heads):
            said.append(f"{len(fit.heads)} of {len(heads)} heads; all: {more}")
        lines = wrap_phrases(said, surface.width, DIM)
        if len(lines) <= free:
            return fit, draw_fitted(fit, maps, surface) + lines
    return None


def _panels(maps: HeadMaps, heads: Collection[Head]) -> dict[Head, Panel]:
    return {panel.summary.address: panel for row in panels_of(maps, heads) for panel in row}
