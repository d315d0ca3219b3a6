"""A terminal picture as rectangles, dots and words at their places, for any file format.

Blocks, braille and frames become shapes, so they look the same whatever fonts the reader has. Units are those of CSS
pixels; a cell is CELL_WIDTH by CELL_HEIGHT of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

CELL_WIDTH, CELL_HEIGHT, MARGIN, FONT_SIZE = 8.0, 17.0, 14.0, 13.2
_LOWER = {char: number / 8 for number, char in enumerate("▁▂▃▄▅▆▇█", start=1)}
_SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}
# Frame characters: which arms leave the middle of the cell (left, right, up, down).
_ARMS = {"─": "lr", "│": "ud", "└": "ur", "┤": "lud", "┬": "lrd", "━": "lr"}
_BRAILLE = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))  # (column, row) of each bit
_DRAWN = {*_LOWER, *_SHADES, *_ARMS, *"▀╌●", *map(chr, range(0x2800, 0x2900))}
Cell = tuple[int, str, Style]


@dataclass(frozen=True, slots=True)
class Rect:
    """A filled rectangle. `color` None is the reader's ink; `sharp`: its edges stand on whole pixels."""

    x: float
    y: float
    width: float
    height: float
    color: str | None
    dim: bool = False
    sharp: bool = False
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Dots:
    """Filled circles of one radius around `centres`."""

    centres: tuple[tuple[float, float], ...]
    radius: float
    color: str | None
    dim: bool


@dataclass(frozen=True, slots=True)
class Word:
    """Text without spaces in one style; `width` is that of its cells, `top` the upper edge of its row."""

    x: float
    top: float
    width: float
    text: str
    color: str | None
    dim: bool
    bold: bool


Mark = Rect | Dots | Word


def size_of(lines: Sequence[Text]) -> tuple[float, float]:
    """Return width and height of a picture with its margins."""
    columns = max([1, *(line.cell_len for line in lines)])
    return columns * CELL_WIDTH + 2 * MARGIN, max(1, len(lines)) * CELL_HEIGHT + 2 * MARGIN


def marks(lines: Sequence[Text]) -> Iterator[Mark]:
    """Yield the marks of lines in the order of painting."""
    console = Console(width=80, height=25, force_jupyter=False, legacy_windows=False)  # only to look up styles
    for row, line in enumerate(lines):
        cells = list(_cells(line, console))
        top = MARGIN + row * CELL_HEIGHT
        yield from _backgrounds(cells, top)
        for column, char, style in cells:
            yield from _shapes(char, MARGIN + column * CELL_WIDTH, top, style)
        yield from _words(cells, top)


def _cells(line: Text, console: Console) -> Iterator[Cell]:
    """Read a line as (column, character, style); zero-width characters join the one before."""
    column = 0
    for segment in line.render(console):
        for char in segment.text:
            if char == "\n":
                continue
            yield column, char, segment.style or Style()
            column += cell_len(char)


def _hex(color: Color | None) -> str | None:
    return None if color is None or color.is_default else color.get_truecolor().hex


def _backgrounds(cells: Sequence[Cell], top: float) -> Iterator[Rect]:
    """Join neighbours of one background into one rectangle."""
    for color, group in groupby(cells, key=lambda cell: _hex(cell[2].bgcolor)):
        if color is not None:
            painted = list(group)
            width = sum(cell_len(char) for _, char, _ in painted) * CELL_WIDTH
            yield Rect(MARGIN + painted[0][0] * CELL_WIDTH, top, width, CELL_HEIGHT, color, sharp=True)


def _shapes(char: str, x: float, top: float, style: Style) -> Iterator[Mark]:
    color, dim = _hex(style.color), bool(style.dim)
    if "\u2800" <= char <= "\u28ff":
        if centres := _braille(char, x, top):
            yield Dots(centres, 1.35, color, dim)
    elif char == "▀":
        yield Rect(x, top, CELL_WIDTH, CELL_HEIGHT / 2, color, dim, sharp=True)
    elif char in _LOWER:
        size = CELL_HEIGHT * _LOWER[char]
        yield Rect(x, top + CELL_HEIGHT - size, CELL_WIDTH, size, color, dim, sharp=True)
    elif char in _SHADES:
        yield Rect(x, top, CELL_WIDTH, CELL_HEIGHT, color, dim, sharp=True, opacity=_SHADES[char])
    elif char in _ARMS:
        for place in _arms(_ARMS[char], x, top, 3.0 if char == "━" else 1.0):
            yield Rect(*place, color, dim)
    elif char == "╌":
        for part in (0.5, 4.5):
            yield Rect(x + part, top + CELL_HEIGHT / 2 - 0.5, 2.6, 1, color, dim)
    elif char == "●":
        yield Dots(((x + CELL_WIDTH / 2, top + CELL_HEIGHT / 2),), 3.6, color, dim)


def _braille(char: str, x: float, top: float) -> tuple[tuple[float, float], ...]:
    places = [place for number, place in enumerate(_BRAILLE) if ord(char) - 0x2800 & 1 << number]
    return tuple((x + CELL_WIDTH * (column + 0.5) / 2, top + CELL_HEIGHT * (row + 0.5) / 4) for column, row in places)


def _arms(arms: str, x: float, top: float, size: float) -> Iterator[tuple[float, float, float, float]]:
    middle_x, middle_y = x + CELL_WIDTH / 2, top + CELL_HEIGHT / 2
    half = size / 2
    left = x if "l" in arms else middle_x - half
    right = x + CELL_WIDTH if "r" in arms else middle_x + half
    upper = top if "u" in arms else middle_y - half
    lower = top + CELL_HEIGHT if "d" in arms else middle_y + half
    if "l" in arms or "r" in arms:
        yield left, middle_y - half, right - left, size
    if "u" in arms or "d" in arms:
        yield middle_x - half, upper, size, lower - upper


def _words(cells: Sequence[Cell], top: float) -> Iterator[Word]:
    """Join the characters that are not shapes into words."""
    for (ends, style), group in groupby(cells, key=lambda cell: (cell[1].isspace() or cell[1] in _DRAWN, cell[2])):
        if not ends:
            word = list(group)
            text = "".join(char for _, char, _ in word)
            x, width = MARGIN + word[0][0] * CELL_WIDTH, cell_len(text) * CELL_WIDTH
            yield Word(x, top, width, text, _hex(style.color), bool(style.dim), bool(style.bold))
