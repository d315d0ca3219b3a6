"""Plain tables: aligned columns without boxes; a narrow terminal hides the least important first.

Names of runs and addresses of heads, which may have to be typed, are never cut: where they do not fit, the table
becomes `key: value` lines, and in a pipe such a table is as wide as it has to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Generic, Literal, TypeVar

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import DIM, PLAIN
from mhsa_cli.renderers.kit.text_lines import INDENT, Lines, Piece, assemble, cut, pad, wrap_phrases, wrap_words
from mhsa_cli.text import escape

R = TypeVar("R")
COLUMN_GAP = 2
_LEAST_ELASTIC = 8
_ROOMY = 12  # columns of a sentence, while there are columns to hide
_UNBOUNDED = 1_000_000
_FIGURE = re.compile(r"[-+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?%?( |$)")


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One column: its heading, the text of a record in it, and what happens to it where there is no room.

    A column that `wraps` is set in several lines, broken between words; one that is `whole` holds what may have to be
    typed. Then columns are hidden from the highest `drop` number down, those of one number together; 0 stays. `legend`
    explains a visible column, a phrase a line. `when=False` removes the column.
    """

    title: str
    value: Callable[[R], str]
    align: Literal["left", "right"] = "left"
    wraps: bool = False
    whole: bool = False
    drop: int = 0
    dim: bool = False
    legend: str = ""
    when: bool = True


@dataclass(slots=True, eq=False)
class _Measured:
    """A column with its cells, its natural and least width, and its width in the layout."""

    column: Column[Any]
    title: str
    cells: list[str]
    natural: int
    least: int
    width: int = 0

    @property
    def roomy(self) -> int:
        """How narrow it may become while there are columns to hide."""
        return max(self.least, min(_ROOMY, self.natural)) if self.column.wraps else self.least


def table(
    columns: Sequence[Column[R]],
    records: Sequence[R],
    surface: Surface,
    *,
    notes: Sequence[str] = (),
    under: Callable[[R], str] | None = None,
) -> Lines:
    """Set a row for each record under headings; below, the hidden columns, legends of the visible ones, and `notes`.

    `under` gives what is set below a row, over the whole width.
    """
    width = table_width(columns, surface)
    below = [escape(under(record)) if under else "" for record in records]
    every, kept = _layout(columns, records, width)
    lines = _rows(kept, below, width, surface.glyphs.cut_text) if kept else _key_value_lines(every, below, width)
    hidden = dict.fromkeys(one.title for one in every if kept and one not in kept)
    if hidden and records:
        lines += wrap_phrases(["hidden columns: " + ", ".join(hidden)], width, DIM)
    legends = [phrase for one in kept or every for phrase in one.column.legend.splitlines()]
    return lines + wrap_phrases([*legends, *notes], surface.width, DIM)


def visible(columns: Sequence[Column[R]], records: Sequence[R], surface: Surface) -> list[Column[R]]:
    """List the columns that a table has room for."""
    every, kept = _layout(columns, records, table_width(columns, surface))
    return [one.column for one in kept or every]


def table_width(columns: Sequence[Column[R]], surface: Surface) -> int:
    """Return how wide a table may be: in a pipe without limit, if it has a column that is `whole`."""
    return surface.width if surface.bounded or not any(column.whole for column in columns) else _UNBOUNDED


def _layout(columns: Sequence[Column[R]], records: Sequence[R], width: int) -> tuple[list[_Measured], list[_Measured]]:
    """Measure all columns, and choose the visible ones and their widths.

    None is visible if those that cannot be hidden do not fit and one of them must not be cut.
    """
    every = [_measure(column, records) for column in columns if column.when]
    kept = list(every)
    while not (fits := _shrink(kept, [one.roomy for one in kept], width)):
        if not any(one.column.drop for one in kept):
            break
        kept = [one for one in kept if one.column.drop < max(one.column.drop for one in kept)]
    if not fits and not _shrink(kept, [one.least for one in kept], width):
        if any(one.column.whole for one in kept):
            return every, []
        _shrink(kept, [1] * len(kept), width)  # too small a width is shared, down to a character each
    return every, kept


def _measure(column: Column[R], records: Sequence[R]) -> _Measured:
    title, cells = escape(column.title), [escape(column.value(record)) for record in records]
    natural = max(map(cell_len, [title, *cells]))
    words = [cell_len(word) for cell in cells for word in cell.split(" ")]
    least = max([_LEAST_ELASTIC, cell_len(title), *words]) if column.wraps else natural
    return _Measured(column, title, cells, natural, least)


def _shrink(kept: Sequence[_Measured], limits: Sequence[int], width: int) -> bool:
    """Make the widest columns narrower, down to their limits; return whether all fit."""
    for one, limit in zip(kept, limits, strict=True):
        one.width = max(limit, min(one.natural, width))
    while sum(one.width for one in kept) > width - COLUMN_GAP * (len(kept) - 1):
        candidates = [one for one, limit in zip(kept, limits, strict=True) if one.width > limit]
        if not candidates:
            return False
        max(candidates, key=lambda one: one.width).width -= 1
    return True


def _rows(kept: Sequence[_Measured], below: Sequence[str], width: int, mark: str) -> Lines:
    lines = _set_row([[_cut_cell(one.title, one.width, mark)] for one in kept], kept, DIM)
    for number, text in enumerate(below):
        lines += _set_row([_cell_lines(one, number, mark) for one in kept], kept, PLAIN)
        lines += [Text(INDENT) + line for line in wrap_phrases([text], width - len(INDENT))]
    return lines


def _key_value_lines(every: Sequence[_Measured], below: Sequence[str], width: int) -> Lines:
    """Set each row as `key: value` lines, broken only between words, with an empty line between rows."""
    lines = Lines()
    for number, under in enumerate(below):
        texts = [f"{one.title}: {one.cells[number]}" for one in every if one.cells[number]]
        lines += [Text()] if number else []
        lines += [Text(row) for text in [under, *texts] if text for row in wrap_words(text, width, INDENT)]
    return lines


def _cell_lines(one: _Measured, number: int, mark: str) -> list[str]:
    if one.column.wraps:
        return [line.plain for line in wrap_phrases([one.cells[number]], one.width)] or [""]
    return [_cut_cell(one.cells[number], one.width, mark)]


def _set_row(blocks: Sequence[Sequence[str]], kept: Sequence[_Measured], style: Style) -> Lines:
    lines = Lines()
    for texts in zip_longest(*blocks, fillvalue=""):
        pieces: list[Piece] = []
        for text, one in zip(texts, kept, strict=True):
            pieces.append((pad(text, one.width, one.column.align), style + DIM if one.column.dim else style))
            pieces.append((" " * COLUMN_GAP, PLAIN))
        line = assemble(pieces)
        line.rstrip()
        lines.append(line)
    return lines


def _cut_cell(text: str, width: int, mark: str) -> str:
    """Cut a cell that is too wide; a figure becomes the mark, as its first digits would be another figure."""
    if cell_len(text) > width and _FIGURE.match(text):
        return mark[:width]
    return cut(text, width, mark)
