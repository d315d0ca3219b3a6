"""Plain tables: aligned columns without boxes, names as they are; a narrow terminal loses the least important first.

What somebody may have to type again, the name of a run or the address of a head, is never cut: where it does not fit,
the table becomes `key: value` lines, and in a pipe such a table is as wide as it has to be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from mhsa_cli.records import TaskInfo
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.glyphs import Glyphs
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN, clamp
from mhsa_cli.renderers.kit.text_lines import Lines, Piece, assemble, cut, pad, wrap_phrases, wrap_words
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.text import escape

COLUMN_GAP = 2
INDENT = "  "
NO_TEXTS: Mapping[int, str] = {}
_LEAST_ELASTIC = 8
_ROOMY = 12  # columns of a sentence, while there is still something to leave out
_UNBOUNDED = 1_000_000
_FIGURE = re.compile(r"[-+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?%?( |$)")


@dataclass(frozen=True, slots=True)
class Column:
    """Describe one column: its heading, `align` left or right, and what becomes of it where there is no room.

    A column that `wraps` is set in several lines, broken between words; one that is `flexible` is cut with an ellipsis;
    one that is `whole` holds what may have to be typed. After that, columns are dropped from the highest `drop` number
    down; those with 0 stay.
    """

    title: str
    align: Literal["left", "right"] = "left"
    wraps: bool = False
    flexible: bool = False
    whole: bool = False
    drop: int = 0
    dim: bool = False


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    surface: Surface,
    *,
    highlight: int | None = None,
    under: Mapping[int, str] = NO_TEXTS,
) -> Lines:
    """Set rows under headings, at most `width` columns wide; the row numbered `highlight` is bold.

    Rows shorter than the columns are filled with blanks. `under` holds by a row's number what is set below it over the
    whole width. A note names the columns that had no room.
    """
    width = table_width(columns, surface)
    cells, widths = _layout(columns, rows, width)
    if not widths:
        return _records(columns, cells, width, highlight, under)
    kept = list(widths)
    mark = surface.glyphs.cut_text
    lines = _set_row([column.title for column in columns], columns, kept, widths, mark, DIM, heading=True)
    for number, row in enumerate(cells):
        lines += _set_row(row, columns, kept, widths, mark, BOLD if number == highlight else PLAIN)
        if text := under.get(number):
            below = wrap_phrases([[(escape(text), PLAIN)]], width - len(INDENT))
            lines += [assemble([(INDENT, PLAIN), (line.plain, PLAIN)]) for line in below]
    hidden = [column.title for i, column in enumerate(columns) if i not in kept]
    if hidden and rows:
        lines += wrap_phrases([[("no room for: " + ", ".join(hidden), DIM)]], max(20, width))
    return Lines(lines)


def table_width(columns: Sequence[Column], surface: Surface) -> int:
    """Return how wide a table may be: as wide as it likes in a pipe, if it holds what may have to be typed."""
    return surface.width if surface.bounded or not any(column.whole for column in columns) else _UNBOUNDED


def legend(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    phrases: Sequence[tuple[str, str]],
    surface: Surface,
) -> Lines:
    """Set the phrases (column, words) that explain a table of this width, but for columns that are not there."""
    there = {"", *shown_titles(columns, rows, surface)}
    return Lines(wrap_phrases([[(words, DIM)] for title, words in phrases if title in there], surface.width))


def shown_titles(columns: Sequence[Column], rows: Sequence[Sequence[str]], surface: Surface) -> list[str]:
    """List the titles of the columns that a table of this width has room for."""
    _, shown = _layout(columns, rows, table_width(columns, surface))
    return [columns[i].title for i in shown or range(len(columns))]


def _layout(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> tuple[list[list[str]], dict[int, int]]:
    """Choose which columns stay and how wide they are, by their numbers; also gives the cells as they are shown.

    None stays where not even those that may not be dropped fit, and one of them must not be cut.
    """
    width = max(20, width)
    cells = [[escape(row[i]) if i < len(row) else "" for i in range(len(columns))] for row in rows]
    natural = [max([cell_len(column.title), *(cell_len(row[i]) for row in cells)]) for i, column in enumerate(columns)]
    kept = list(range(len(columns)))
    least = {
        i: max(_LEAST_ELASTIC, cell_len(column.title), _longest_word(cells, i) if column.wraps else 0)
        for i, column in enumerate(columns)
        if column.wraps or column.flexible
    }
    # A column goes before a sentence is set a word a line.
    roomy = {i: max(size, min(_ROOMY, natural[i])) if columns[i].wraps else size for i, size in least.items()}
    widths = _fit(kept, roomy, natural, width)
    while widths is None and len(kept) > 1 and any(columns[i].drop for i in kept):
        kept.remove(max(kept, key=lambda i: (columns[i].drop, i)))
        widths = _fit(kept, roomy, natural, width)
    if widths is None:
        widths = _fit(kept, least, natural, width)
    if widths is None:
        widths = {} if any(columns[i].whole for i in kept) else _squeeze(kept, natural, width)
    return cells, widths


def _longest_word(cells: Sequence[Sequence[str]], column: int) -> int:
    return max((cell_len(word) for row in cells for word in row[column].split(" ")), default=0)


def _fit(kept: Sequence[int], least: Mapping[int, int], natural: Sequence[int], width: int) -> dict[int, int] | None:
    """Shrink the columns that can shrink, always the widest; None when that is not enough."""
    return _shrink({i: natural[i] for i in kept}, {i: size for i, size in least.items() if i in kept}, width)


def _squeeze(kept: Sequence[int], natural: Sequence[int], width: int) -> dict[int, int]:
    """Share too small a width among columns that may not be dropped, down to one character each."""
    return _shrink({i: natural[i] for i in kept}, dict.fromkeys(kept, 1), width) or dict.fromkeys(kept, 1)


def _shrink(widths: dict[int, int], least: Mapping[int, int], width: int) -> dict[int, int] | None:
    room = width - COLUMN_GAP * (len(widths) - 1)
    for i in least:
        widths[i] = max(least[i], min(widths[i], width))
    while sum(widths.values()) > room:
        candidates = [i for i in least if widths[i] > least[i]]
        if not candidates:
            return None
        widths[max(candidates, key=lambda i: widths[i])] -= 1
    return widths


def _records(
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    width: int,
    highlight: int | None,
    under: Mapping[int, str],
) -> Lines:
    """Set each row as lines `key: value`, an empty line between rows; a line is broken between words alone.

    What stands in a column without a heading belongs to the value before it.
    """
    lines: list[Text] = []
    for number, row in enumerate(cells):
        texts: list[str] = []
        for column, cell in zip(columns, row, strict=True):
            if cell and texts and not column.title:
                texts[-1] += f" {cell}"
            elif cell:
                texts.append(f"{column.title}: {cell}")
        texts += [escape(under[number])] if under.get(number) else []
        lines += [Text()] if number else []
        style = BOLD if number == highlight else PLAIN
        lines += [assemble([(part, style)]) for text in texts for part in wrap_words(text, width, INDENT)]
    return Lines(lines)


def _set_row(
    row: Sequence[str],
    columns: Sequence[Column],
    kept: Sequence[int],
    widths: Mapping[int, int],
    mark: str,
    style: Style,
    *,
    heading: bool = False,
) -> list[Text]:
    blocks = []
    for i in kept:
        if columns[i].wraps and not heading:
            blocks.append([line.plain for line in wrap_phrases([[(row[i], PLAIN)]], widths[i])] or [""])
        else:
            blocks.append([_cut_cell(row[i], widths[i], mark)])
    lines = []
    for number in range(max(map(len, blocks), default=0)):
        pieces: list[Piece] = []
        for i, block in zip(kept, blocks, strict=True):
            text = pad(block[number] if number < len(block) else "", widths[i], columns[i].align)
            pieces.append((text, style + DIM if columns[i].dim else style))
            pieces.append((" " * COLUMN_GAP, PLAIN))
        line = assemble(pieces)
        line.rstrip()
        lines.append(line)
    return lines


def _cut_cell(text: str, width: int, mark: str) -> str:
    """Cut a cell that is too wide; of a figure only the mark is left: its first digits are another figure."""
    if cell_len(text) > width and _FIGURE.match(text):
        return mark[:width]
    return cut(text, width, mark)


def bars(values: Sequence[float], glyphs: Glyphs, *, top: float = 1.0) -> str:
    """Draw one character a value, from nothing at 0 to a full block at `top`; what is above 0.02 is never nothing."""
    levels = len(glyphs.bars) - 1
    text = ""
    for value in values:
        part = clamp(value / top) if value == value and top > 0 else 0.0
        level = round(part * levels)
        text += glyphs.bars[max(level, 1) if part > 0.02 else level]
    return text


def by_distance(weights: Sequence[Sequence[float]], columns: int = 16) -> list[float]:
    """Average a causal map along its diagonals: the mean weight on the key 0, 1, 2, ... positions back.

    Returns at most `columns` distances, the nearest first.
    """
    length = len(weights)
    means = []
    for distance in range(min(length, columns)):
        band = [weights[q][q - distance] for q in range(distance, length) if q - distance < len(weights[q])]
        means.append(sum(band) / len(band) if band else 0.0)
    return means


def task_picture(info: TaskInfo, surface: Surface) -> Lines:
    """Draw a task: its sentence, an input row over its target row in the same columns, and the loss of guessing."""
    width = surface.width
    tail = f"guessing: {fixed(info.chance_loss, 2)} nats, {percents(info.chance_accuracy)} right"
    lines = wrap_phrases([[(escape(info.name), BOLD)], [(escape(info.summary), PLAIN)]], width)
    mark = surface.glyphs.cut_text
    length = max(len(info.inputs), len(info.targets))
    pairs = []
    for place in range(length):
        upper = escape(info.inputs[place]) if place < len(info.inputs) else ""
        lower = escape(info.targets[place]) if place < len(info.targets) else ""
        lower = surface.glyphs.dot if lower == "·" else lower
        size = min(8, max(cell_len(upper), cell_len(lower)))
        pairs.append((pad(cut(upper, size, mark), size, "right"), pad(cut(lower, size, mark), size, "right")))
    start = 0
    while start < length:
        stop, used = start, len("  target ")
        while stop < length and (used + 1 + cell_len(pairs[stop][0]) <= width or stop == start):
            used += 1 + cell_len(pairs[stop][0])
            stop += 1
        lines.append(assemble([("  input  ", DIM), *((" " + upper, PLAIN) for upper, _ in pairs[start:stop])]))
        lines.append(assemble([("  target ", DIM), *((" " + lower, PLAIN) for _, lower in pairs[start:stop])]))
        start = stop
    return Lines([*lines, *wrap_phrases([[(tail, DIM)]], width)])
