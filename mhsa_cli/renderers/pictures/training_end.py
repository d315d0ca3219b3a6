"""The end of a training in the rows of a terminal: curve and a few epochs, what the heads do, their maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from rich.text import Text

from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.records.training import EpochRecord, Series
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import line_style
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, rows_of, wrap_phrases, wrap_words
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.renderers.pictures.curve import labelled_levels, loss_curve
from mhsa_cli.renderers.pictures.explain import headline
from mhsa_cli.renderers.pictures.fitted_maps import Fit, captioned_maps
from mhsa_cli.renderers.pictures.heads import head_table
from mhsa_cli.text import escape

LOWEST, HIGHEST = 3, 12  # rows of the plot; its heading and its axis take three more
CURVE_FROM = 20  # columns of a curve beside the table of epochs
GAP = 2
_Row = EpochRecord | tuple[str, float]  # an epoch, or a level and its loss


@dataclass(frozen=True, slots=True)
class TrainingEnd:
    """What may be shown: losses of chance and baselines are `levels`, `accuracy` is that of chance.

    `note` stands where there is no report; `tail` are lines to copy, the last ones; `more` draws all maps.
    """

    series: Sequence[Series]
    epochs: Sequence[EpochRecord]
    levels: Mapping[str, float]
    accuracy: float
    facts: Sequence[str]
    maps: HeadMaps | None
    note: str
    tail: Sequence[str]
    more: str


def training_end(end: TrainingEnd, surface: Surface, rows: int) -> Lines:
    """Draw what fits into so many rows.

    The first sentence about the heads and the tail always stand; then come the curve with the epochs, the maps and the
    facts. Further rows are used for empty lines, a table of the heads, larger maps and a higher curve.
    """
    width, report = surface.width, None if end.maps is None else end.maps.report
    said = (headline(report) if report is not None else "") or end.note
    words = Lines(Text(row) for row in wrap_words(said, width)) if said else Lines()
    curve, facts = _curve(end, surface, LOWEST), wrap_phrases(end.facts, width)
    tail, joined = (Lines(Text(escape(line)) for line in lines) for lines in (end.tail, ["   ".join(end.tail)]))
    joined = tail if rows_of(joined, width) > 1 else joined
    tried = []
    for number, (fact, last) in enumerate(((facts, tail), (facts, joined), (Lines(), joined))):
        free = rows - sum(rows_of(part, width) for part in (curve, fact, words, last))
        maps = None if end.maps is None else captioned_maps(end.maps, surface, free, end.more, small=True)
        found = (1, 0, 0) if maps is None else (0, maps[0].size, -len(maps[0].heads))
        tried.append((free < 0, *found, number, maps, fact, last))
    short, *_, maps, fact, last = min(tried, key=lambda one: one[:5])
    fit, drawn = maps or (None, Lines())
    parts = [Lines() if short else curve, fact, words, drawn, Lines(), last]
    return _spaced(_using_room(end, surface, rows, parts, fit), rows, width)


def _using_room(end: TrainingEnd, surface: Surface, rows: int, parts: list[Lines], fit: Fit | None) -> list[Lines]:
    """Add a table of the heads, enlarge the maps and raise the curve where empty lines between the parts leave rows."""

    def left() -> int:
        shown = [part for part in parts if part]
        return rows - sum(rows_of(part, surface.width) for part in shown) - len(shown) + 1

    if (
        end.maps is not None
        and end.maps.report is not None
        and fit is not None
        and len(fit.heads) == len(end.maps.heads)
    ):
        heads = head_table(end.maps, surface)
        if rows_of(heads, surface.width) < left():
            parts[4] = heads
            larger = captioned_maps(end.maps, surface, len(parts[3]) + left(), end.more)
            parts[3] = parts[3] if larger is None else larger[1]
    if parts[0] and left() > 0:
        parts[0] = _curve(end, surface, min(HIGHEST, LOWEST + left()))
    return parts


def _spaced(parts: Sequence[Lines], rows: int, width: int) -> Lines:
    """Set parts under each other, with empty lines between the last ones as far as there are rows."""
    shown = [part for part in parts if part]
    spare = rows - sum(rows_of(part, width) for part in shown)
    close = max(1, len(shown) - max(0, spare))  # parts without an empty line above
    return Lines(chain(*shown[:close], *([Text(), *part] for part in shown[close:])))


def _curve(end: TrainingEnd, surface: Surface, height: int) -> Lines:
    """Draw the loss, beside it the epochs, whose headings name its lines; on a narrow terminal below it."""
    if not end.series:
        return Lines()
    beside = _epochs(end, surface, named=True)
    columns = surface.width - beside.columns - GAP
    levels = labelled_levels(end.levels)
    if not end.epochs or columns < CURVE_FROM:
        return loss_curve(end.series, surface, height=height, levels=levels) + _epochs(end, surface)
    narrow = replace(surface, width=columns)
    height = max(height, min(HIGHEST, len(beside) - 3))
    curve = loss_curve(end.series, narrow, height=height, levels=levels, labelled=False)
    lines = Lines()
    for left, right in zip_longest(curve.plot, beside, fillvalue=Text()):
        lines.append(Text.assemble(left, " " * (columns + GAP - left.cell_len) if right else "", right, no_wrap=True))
    return lines + curve.notes


def _epochs(end: TrainingEnd, surface: Surface, *, named: bool = False) -> Lines:
    """Draw a row for each epoch. With `named` the headings have the marks of the curve, and its levels are rows."""
    glyphs = surface.glyphs
    marks = (f"{glyphs.line} ", f"{glyphs.point} ") if named else ("", "")
    levels: list[tuple[str, float]] = (
        [(f"{glyphs.baseline} {name}", loss) for name, loss in end.levels.items()] if named else []
    )

    def accuracy(row: _Row) -> str:
        if isinstance(row, EpochRecord):
            return percents(row.eval_accuracy)
        return percents(end.accuracy) if row == levels[0] else ""

    columns: list[Column[_Row]] = [
        Column("epoch", lambda e: str(e.epoch) if isinstance(e, EpochRecord) else escape(e[0]), "right"),
        Column(f"{marks[0]}train", lambda e: fixed(e.loss, 4) if isinstance(e, EpochRecord) else "", "right"),
        Column(f"{marks[1]}eval", lambda e: fixed(e.eval_loss if isinstance(e, EpochRecord) else e[1], 4), "right"),
        Column("accuracy", accuracy, "right"),
    ]
    rows: list[_Row] = [*end.epochs, *levels]
    lines = table(columns, rows, surface) if end.epochs else Lines()
    for index, mark in enumerate(marks if lines else ()):
        place = lines[0].plain.find(mark) if mark else -1
        if place >= 0:
            lines[0].stylize(line_style(index, surface.depth), place, place + 1)
    return lines
