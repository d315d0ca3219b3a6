"""Attention maps of all heads side by side, on one colour scale."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from rich.cells import cell_len

from mhsa_cli.records.heads import HeadMaps, HeadSummary
from mhsa_cli.renderers.kit.cells import PERCENT_CELL, CellKind, Cells, Matrix, color_bar, masked_cells, paint, pool
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.map_layout import GAP, MAX_TOKEN, Panel, Plan, balanced, choose_plan, title_lines
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN, alarm_style
from mhsa_cli.renderers.kit.text_lines import Grid, Lines, Phrase, cut, pad, stacked, wrap_phrases
from mhsa_cli.text import Head, escape


def head_maps(maps: HeadMaps, surface: Surface, *, heads: Collection[Head] | None = None) -> Lines:
    """Draw the attention maps of every head, or of those at the addresses `heads`.

    One cell is one (query, key) pair; longer samples are pooled by whole blocks, and the caption says so. A single
    head shows percents and tokens where they fit. Colour is viridis, linear from 0 to 1, the same for all heads.
    """
    rows = panels_of(maps, heads)
    length = max((len(panel.cells) for row in rows for panel in row), default=0)
    plan = choose_plan(rows, length, maps.tokens, surface)
    bands = [_draw_row(part, plan, surface) for row in rows for part in balanced(row, plan.per_row)]
    said = caption(list(chain(*rows)), plan.kind, plan.size, surface)
    return stacked([_heading(maps, plan, surface), *bands, wrap_phrases(said, surface.width, DIM)])


def panels_of(maps: HeadMaps, chosen: Collection[Head] | None) -> list[list[Panel]]:
    """Make the panels of the chosen heads, or of all, layer by layer."""
    summaries = {summary.address: summary for summary in maps.heads}
    scores = [] if maps.report is None else maps.report.heads
    labels = {score.address: score.label.text for score in scores if score.label is not None}
    rows = [
        [
            _panel(summaries.get(Head(number, index), HeadSummary(number, index, None)), weights, maps, labels)
            for index, weights in enumerate(heads)
            if chosen is None or (number, index) in chosen
        ]
        for number, heads in enumerate(maps.weights)
    ]
    return [row for row in rows if row]


def _panel(summary: HeadSummary, weights: Matrix, maps: HeadMaps, labels: Mapping[Head, str]) -> Panel:
    """Make the panel of a head; of a layer of an encoder-decoder it holds the queries and keys of its part."""
    label = labels.get(summary.address, "")
    if not maps.parts:
        return Panel(summary, masked_cells(weights), maps.tokens, maps.tokens, label=label)
    part = maps.parts[summary.layer]
    down, across = slice(*part.queries), slice(*part.keys)
    rows = [list(row[across]) for row in weights[down]]
    cells: Cells = masked_cells(rows) if part.causal else [[*row] for row in rows]
    return Panel(summary, cells, maps.tokens[down], maps.tokens[across], part.role, label)


def _draw_row(row: Sequence[Panel], plan: Plan, surface: Surface) -> Lines:
    titles = [title_lines(panel, plan.title) for panel in row]
    top = max(map(len, titles))
    grid = Grid(surface.width, top + (1 if plan.axis else 0) + plan.tall)
    for number, panel in enumerate(row):
        left = number * (plan.panel + GAP) + plan.axis
        for y, text in enumerate(titles[number]):
            grid.put(left, y, text, BOLD if y == 0 else PLAIN)
        if plan.axis:
            _axes(grid, left, top, plan, panel, surface)
        paint(grid, left, top + (1 if plan.axis else 0), pool(panel.cells, plan.size), plan.kind, surface)
    return grid.lines()


def _axes(grid: Grid, left: int, top: int, plan: Plan, panel: Panel, surface: Surface) -> None:
    """Write query tokens down the left side, and key tokens along the top, as many as can be read."""
    mark = surface.glyphs.cut_text
    down, texts = ([cut(escape(token), MAX_TOKEN, mark) for token in side] for side in (panel.down, panel.across))
    for q, text in enumerate(down):
        grid.put(left - plan.axis, top + 1 + q, pad(text, plan.axis - 1, "right"), DIM)
    step = plan.kind.wide
    stride = max(1, math.ceil((max(map(cell_len, texts), default=0) + 1) / step))
    for k in range(0, len(texts), stride):
        if k * step + cell_len(texts[k]) <= plan.wide:  # else it would reach into the next head
            grid.put(left + k * step, top, pad(texts[k], step - 1, "right"), DIM)


def _heading(maps: HeadMaps, plan: Plan, surface: Surface) -> Lines:
    """Write task and step; also the whole sample if its tokens do not fit beside the maps."""
    said: list[Phrase] = [[("attention weights", BOLD)], f"{maps.task}, {maps.when}"]
    lines = wrap_phrases(said, surface.width, DIM)
    if plan.axis or not maps.tokens:
        return lines
    shown = escape(" ".join(maps.tokens))
    room = 2 * surface.width - len("sample ") - 2
    sample = [("sample ", DIM), (cut(shown, room, surface.glyphs.cut_text), PLAIN)]
    return lines + wrap_phrases([sample], surface.width)


def caption(panels: Sequence[Panel], kind: CellKind, size: int, surface: Surface) -> list[Phrase]:
    """Explain colours, directions, blanks, figures, pooling and what is wrong."""
    phrases = [_scale(kind, surface)]
    if len(panels) > 1:
        phrases.append("one scale for all heads")
    phrases += [_directions(surface), *_blanks(panels)]
    if any(panel.summary.entropy is not None for panel in panels):
        phrases.append("row entropy: of this row, 0 one key, 1 uniform")
    if any(panel.summary.answer_weight is not None for panel in panels):
        phrases.append("answer: weight on the position of the answer, mean over rows of the task")
    if size > 1:
        length, glyphs = max(len(panel.cells) for panel in panels), surface.glyphs
        columns = f"{length}{glyphs.right_text}{math.ceil(length / size)} columns"
        phrases.append([(f"{columns}: each cell is the largest weight of {size}{glyphs.times}{size}", PLAIN)])
    return [*phrases, *_alarms(panels, surface)]


def brief_caption(panels: Sequence[Panel], kind: CellKind, size: int, surface: Surface) -> list[Phrase]:
    """Explain the maps in few words, the most important first."""
    return [*scale_phrases(kind, size, surface), *_blanks(panels), *_alarms(panels, surface)]


def scale_phrases(kind: CellKind, size: int, surface: Surface, *, named: bool = True) -> list[Phrase]:
    """Write pooling, the scale, where there is room with what it is of (`named`), and what lies down and across."""
    pooled: list[Phrase] = [[(f"pooled {size}{surface.glyphs.times}{size}", PLAIN)]] if size > 1 else []
    return [*pooled, _scale(kind, surface, brief=True, named=named), _directions(surface)]


def _directions(surface: Surface) -> str:
    return f"query {surface.glyphs.down_text}  key {surface.glyphs.right_text}"


def _blanks(panels: Sequence[Panel]) -> list[Phrase]:
    return ["blank: masked future"] * any(None in row for panel in panels for row in panel.cells)


def _alarms(panels: Sequence[Panel], surface: Surface) -> list[Phrase]:
    """Name the heads whose weights are not finite, and tell of weights outside 0..1."""
    alarm = alarm_style(surface.depth)
    phrases: list[Phrase] = []
    broken = [panel.summary.name for panel in panels if not all(map(_is_fine, chain(*panel.cells)))]
    if broken:
        names = ", ".join(broken[:6]) + (f" and {len(broken) - 6} more" if len(broken) > 6 else "")
        phrases.append([(f"? not finite: {names}", alarm)])
    cells = (value for panel in panels for value in chain(*panel.cells) if value is not None)
    if any(math.isfinite(value) and not -1e-6 <= value <= 1 + 1e-6 for value in cells):
        phrases.append([("weights outside 0..1 are drawn as 0 or 1", alarm)])
    return phrases


def _is_fine(value: float | None) -> bool:
    return value is None or math.isfinite(value)


def _scale(kind: CellKind, surface: Surface, *, brief: bool = False, named: bool = True) -> Phrase:
    """Draw the colour bar, or explain digits and percents."""
    if surface.paints:
        return [("weight 0 " if named and surface.width > 22 else "0 ", DIM), *color_bar(surface), (" 1", DIM)]
    dot, percent = surface.glyphs.dot, kind is PERCENT_CELL
    if not named:
        return f"weight in {'percent' if percent else 'tenths'}"
    if percent:
        return f"weight in percent, {dot} is under 0.5"
    return (
        f"weight in tenths, {dot} under 0.05" if brief else f"weight in tenths: 9 is 0.85 or more, {dot} is under 0.05"
    )
