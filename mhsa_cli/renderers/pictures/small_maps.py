"""Attention maps in few rows: every head where all fit, else the most important ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from rich.cells import cell_len

from mhsa_cli.records.heads import HeadMaps, HeadSummary
from mhsa_cli.renderers.kit import cells as cell_kinds
from mhsa_cli.renderers.kit.cells import CellKind, paint, pool
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.map_layout import GAP, Panel, Plan, balanced
from mhsa_cli.renderers.kit.palette import BOLD, PLAIN
from mhsa_cli.renderers.kit.text_lines import Grid, Lines, cut
from mhsa_cli.renderers.pictures.explain import by_worth
from mhsa_cli.renderers.pictures.heatmap import caption, panels_of

LEAST_CELLS = 6  # smaller pictures of a long sample say nothing
LEAST_LABEL = 8  # columns


@dataclass(frozen=True, slots=True)
class SmallMaps:
    """The picture, the number of heads that it lacks, and the number of tokens in one cell."""

    lines: Lines
    left_out: int
    size: int


@dataclass(frozen=True, slots=True)
class _Named:
    """A head's panel, its name, and the text beside or below that: the label."""

    panel: Panel
    name: str
    label: str

    @property
    def title(self) -> str:
        return f"{self.name} {self.label}".rstrip()


def small_maps(maps: HeadMaps, surface: Surface, rows: int, more: str, *, wide: bool = False) -> SmallMaps | None:
    """Draw the maps of all heads in at most so many rows, else of the most important ones, else pooled.

    `more` is the command that shows all, named where heads are missing. `wide` asks for full cells, of all heads.
    None: not one head fits.
    """
    heads = _named(maps)
    length = max((len(one.panel.cells) for one in heads), default=0)
    kind = cell_kinds.FULL_CELL if wide and surface.paints else _kind(surface)
    size = 1
    while math.ceil(length / size) >= min(length, LEAST_CELLS) and length:
        for free in range(1, rows):  # rows for the caption
            found = _draw(maps, heads, kind, size, length, surface, rows - free, more)
            if found is None:
                break
            if len(found.lines) <= rows and (not wide or not found.left_out):
                return found
        if wide:
            return None
        size *= 2
    return None


def _kind(surface: Surface) -> CellKind:
    if not surface.paints:
        return cell_kinds.DIGIT_CELL
    return cell_kinds.HALF_CELL if surface.glyphs.half else cell_kinds.FULL_CELL


def _named(maps: HeadMaps) -> list[_Named]:
    scores = {} if maps.report is None else {score.address: score for score in maps.report.heads}
    found = []
    for panel in chain(*panels_of(maps, None)):
        summary = panel.summary
        score = scores.get(summary.address)
        bare = replace(panel, summary=HeadSummary(summary.layer, summary.head, None))
        label = "" if score is None or score.label is None else score.label.text
        found.append(_Named(bare, f"{summary.name} {panel.role}".rstrip(), label))
    return found


def _draw(
    maps: HeadMaps, heads: list[_Named], kind: CellKind, size: int, length: int, surface: Surface, rows: int, more: str
) -> SmallMaps | None:
    cells = math.ceil(length / size)
    wide, tall = cells * kind.wide, math.ceil(cells / kind.tall)
    least = max(wide, *(min(LEAST_LABEL, cell_len(one.label)) for one in heads), *(cell_len(one.name) for one in heads))
    most = (surface.width + GAP) // (least + GAP)  # heads in a band
    best: tuple[list[_Named], int, int, int] | None = None
    for bands in range(1, rows // (tall + 1) + 1):
        beside = min(most, math.ceil(len(heads) / bands))
        if beside == 0:
            return None
        chosen = _most_important(maps, heads, bands * beside)
        longest = max(cell_len(one.title) for one in chosen)
        column = min((surface.width + GAP) // beside - GAP, max(wide, longest))
        titles = 1 if longest <= column else 2
        if bands * (titles + tall) > rows:
            break
        best = chosen, beside, column, titles
        if len(chosen) == len(heads):
            break
    if best is None:
        return None
    chosen, beside, column, titles = best
    plan = Plan(kind, size, 0, wide, tall, column, column, beside)
    picture = Lines()
    for band in balanced(chosen, beside):
        grid = Grid(surface.width, titles + tall)
        for number, one in enumerate(band):
            left = number * (column + GAP)
            grid.put(left, 0, one.name, BOLD)
            x, y = (left + cell_len(one.name) + 1, 0) if titles == 1 else (left, 1)
            grid.put(x, y, cut(one.label, column, surface.glyphs.cut_text), PLAIN)
            paint(grid, left, titles, pool(one.panel.cells, size), kind, surface)
        picture += grid.lines()
    missing = len(heads) - len(chosen)
    said = [f"{len(chosen)} of {len(heads)} heads; all: {more}"] if missing else []
    panels = [[one.panel for one in chosen]]
    return SmallMaps(picture + caption(panels, plan, length, surface, said, brief=True), missing, size)


def _most_important(maps: HeadMaps, heads: Sequence[_Named], count: int) -> list[_Named]:
    """Choose heads by what they are worth, or the first ones where that is not known; they keep their order."""
    if count >= len(heads) or maps.report is None:
        return list(heads[:count])
    worth = {score.address for score in by_worth(maps.report.heads)[:count]}
    return [one for one in heads if one.panel.summary.address in worth]
