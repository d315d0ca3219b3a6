"""Attention maps of all heads side by side, on one colour scale, with nothing cut and nothing hidden."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from rich.cells import cell_len
from rich.text import Text

from mhsa_cli.records import HeadMaps, HeadSummary
from mhsa_cli.renderers.kit.cells import masked_cells, paint, pool
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.map_layout import GAP, MAX_TOKEN, Panel, Plan, balanced, choose_plan, title_lines
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN, alarm_style, heat_style
from mhsa_cli.renderers.kit.text_lines import Grid, Lines, Piece, cut, pad, wrap_phrases
from mhsa_cli.text import Head, escape


def head_maps(maps: HeadMaps, surface: Surface, *, heads: Collection[Head] | None = None) -> Lines:
    """Draw the attention maps of every head, or of those at the addresses `heads`.

    One cell is one (query, key) pair; longer samples are pooled by whole blocks, and the caption says so. A single
    head shows percents and tokens where they fit. Colour is viridis, linear from 0 to 1, the same for all heads.
    """
    rows = _select(maps, heads)
    length = max((len(panel.cells) for row in rows for panel in row), default=0)
    plan = choose_plan(rows, length, maps.tokens, surface)
    body = Lines()
    for row in rows:
        for part in balanced(row, plan.per_row):
            body = body + _draw_row(part, plan, maps.tokens, surface) + Lines([Text()])
    return _heading(maps, plan, surface) + body + _caption(rows, plan, length, surface)


def _select(maps: HeadMaps, chosen: Collection[Head] | None) -> list[list[Panel]]:
    """Choose the heads, layer by layer."""
    summaries = {summary.address: summary for summary in maps.heads}
    rows = []
    for number, heads in enumerate(maps.weights):
        row = [
            Panel(summaries.get(Head(number, index), HeadSummary(number, index, None)), masked_cells(weights))
            for index, weights in enumerate(heads)
            if chosen is None or (number, index) in chosen
        ]
        if row:
            rows.append(row)
    return rows


def _draw_row(row: Sequence[Panel], plan: Plan, tokens: Sequence[str], surface: Surface) -> Lines:
    titles = [title_lines(panel.summary, plan.title) for panel in row]
    top = max(map(len, titles))
    grid = Grid(surface.width, top + (1 if plan.axis else 0) + plan.tall)
    for number, panel in enumerate(row):
        left = number * (plan.panel + GAP) + plan.axis
        for y, text in enumerate(titles[number]):
            grid.put(left, y, text, BOLD if y == 0 else PLAIN)
        if plan.axis:
            _axes(grid, left, top, plan, tokens[: len(panel.cells)], surface)
        paint(grid, left, top + (1 if plan.axis else 0), pool(panel.cells, plan.size), plan.kind, surface)
    return Lines(grid.lines())


def _axes(grid: Grid, left: int, top: int, plan: Plan, tokens: Sequence[str], surface: Surface) -> None:
    """Write the query tokens down the left side, and the key tokens along the top as densely as they can be read."""
    mark = surface.glyphs.cut_text
    texts = [cut(escape(token), MAX_TOKEN, mark) for token in tokens]
    for q, text in enumerate(texts):
        grid.put(left - plan.axis, top + 1 + q, pad(text, plan.axis - 1, "right"), DIM)
    step = plan.kind.wide
    stride = max(1, math.ceil((max(map(cell_len, texts), default=0) + 1) / step))
    for k in range(0, len(texts), stride):
        if k * step + cell_len(texts[k]) <= plan.wide:  # one that would reach into the next head is left out
            grid.put(left + k * step, top, pad(texts[k], step - 1, "right"), DIM)


def _heading(maps: HeadMaps, plan: Plan, surface: Surface) -> Lines:
    """Say what is shown; the sample stands here in full when its tokens do not fit beside the maps."""
    phrases: list[list[Piece]] = [[("attention weights", BOLD)]]
    phrases.append([(f"{escape(maps.task)}, step {maps.step}", DIM)])
    lines = wrap_phrases(phrases, surface.width)
    if plan.axis or not maps.tokens:
        return Lines([*lines, Text()])
    shown = " ".join(escape(token) for token in maps.tokens)
    room = 2 * surface.width - len("sample ") - 2
    sample: list[Piece] = [("sample ", DIM), (cut(shown, room, surface.glyphs.cut_text), PLAIN)]
    return Lines([*lines, *wrap_phrases([sample], surface.width), Text()])


def _caption(rows: Sequence[Sequence[Panel]], plan: Plan, length: int, surface: Surface) -> Lines:
    """Explain the picture by phrases that wrap and are never cut."""
    glyphs = surface.glyphs
    cells = [value for row in rows for panel in row for line in panel.cells for value in line]
    phrases = [_scale(plan, surface)]
    if sum(map(len, rows)) > 1:
        phrases.append([("one scale for all heads", DIM)])
    phrases.append([(f"query {glyphs.down_text}  key {glyphs.right_text}", DIM)])
    if any(value is None for value in cells):
        phrases.append([("blank: masked future", DIM)])
    if any(panel.summary.entropy is not None for row in rows for panel in row):
        phrases.append([("entropy: of this row, 0 one key, 1 uniform", DIM)])
    if any(panel.summary.source_weight is not None for row in rows for panel in row):
        phrases.append([("source: weight on the answer's position, mean of many rows", DIM)])
    if plan.size > 1:
        columns = math.ceil(length / plan.size)
        phrases.append(
            [
                (
                    f"{length}{glyphs.right_text}{columns} columns: each cell is the largest weight of "
                    f"{plan.size}{glyphs.times}{plan.size}",
                    PLAIN,
                )
            ]
        )
    broken = [panel.summary.name for row in rows for panel in row if _count(panel, math.isfinite)]
    if broken:
        names = ", ".join(broken[:6]) + (f" and {len(broken) - 6} more" if len(broken) > 6 else "")
        phrases.append([(f"? is not a finite number: {names}", alarm_style(surface.depth))])
    if any(value is not None and math.isfinite(value) and not -1e-6 <= value <= 1 + 1e-6 for value in cells):
        phrases.append([("weights outside 0..1 are drawn as 0 or 1", alarm_style(surface.depth))])
    return Lines(wrap_phrases(phrases, surface.width))


def _count(panel: Panel, is_fine: Callable[[float], bool]) -> int:
    return sum(1 for line in panel.cells for value in line if value is not None and not is_fine(value))


def _scale(plan: Plan, surface: Surface) -> list[Piece]:
    """Draw the colour bar, or say how to read digits and percents."""
    dot = surface.glyphs.dot
    if surface.paints:
        bar: list[Piece] = [(" ", heat_style(None, level, surface.depth)) for level in range(0, 101, 10)]
        return [("weight 0 ", DIM), *bar, (" 1", DIM)]
    if plan.kind.name == "percent":
        return [(f"weight in percent, {dot} is under 0.5", DIM)]
    return [(f"weight in tenths: 9 is 0.85 or more, {dot} is under 0.05", DIM)]
