"""A terminal picture as one SVG file: a fixed grid of cells, no font to load, no script, no link to anywhere.

Blocks, braille and frames are drawn as shapes, so they look the same whatever fonts the reader has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

CELL_WIDTH, CELL_HEIGHT, MARGIN, FONT_SIZE = 8.0, 17.0, 14.0, 13.2
# The reader's theme chooses; a viewer that knows no themes shows the light one.
_CSS = (
    ".panel{fill:#ffffff;stroke:#d0d7de}.ink{fill:#1f2328}.dim{opacity:.62}.bold{font-weight:bold}"
    "@media (prefers-color-scheme:dark){.panel{fill:#1e1e1e;stroke:#3d444d}.ink{fill:#e6e6e6}}"
)
# The characters that XML 1.0 cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LOWER = {char: number / 8 for number, char in enumerate("▁▂▃▄▅▆▇█", start=1)}
# Frame characters: which arms leave the middle of the cell (left, right, up, down).
_ARMS = {"─": "lr", "│": "ud", "└": "ur", "┤": "lud", "┬": "lrd", "━": "lr"}
Cell = tuple[int, str, Style]


def escape(text: str) -> str:
    """Make text safe inside XML: markup characters escaped, impossible characters removed."""
    text = _NOT_XML.sub("", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def to_svg(lines: Sequence[Text], *, title: str, columns: int | None = None) -> str:
    """Draw lines on a grid `columns` wide (default: the widest line) and return the file's text.

    Cells that have only a background colour are drawn too. `title` is what a screen reader says.
    """
    lines = list(lines)
    columns = max([1, *(line.cell_len for line in lines)] if columns is None else [1, columns])
    width = columns * CELL_WIDTH + 2 * MARGIN
    height = max(1, len(lines)) * CELL_HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" '
        f'height="{_n(height)}" role="img" font-family="monospace" font-size="{FONT_SIZE}" '
        'shape-rendering="geometricPrecision">',
        f"<title>{escape(title)}</title>",
        f"<style>{_CSS}</style>",
        f'<rect class="panel" x="0.5" y="0.5" width="{_n(width - 1)}" height="{_n(height - 1)}" rx="6"/>',
    ]
    console = Console(width=columns, height=25, force_jupyter=False, legacy_windows=False)  # only to look up styles
    for row, line in enumerate(lines):
        cells = [cell for cell in _cells(line, console) if cell[0] + cell_len(cell[1]) <= columns]
        top = MARGIN + row * CELL_HEIGHT
        parts.extend(_backgrounds(cells, top))
        parts.extend(_shapes(cells, top))
        parts.extend(_words(cells, top))
    return "\n".join([*parts, "</svg>", ""])


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


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
    if color is None or color.is_default:
        return None
    return color.get_truecolor().hex


def _ink(style: Style, base: str = "") -> str:
    """Give the attributes of something drawn in a style's foreground."""
    classes = [base] if base else []
    color = _hex(style.color)
    if color is None:
        classes.append("ink")
    if style.dim:
        classes.append("dim")
    fill = f' fill="{color}"' if color else ""
    return (f' class="{" ".join(classes)}"' if classes else "") + fill


def _rect(x: float, y: float, width: float, height: float, attributes: str) -> str:
    return f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"{attributes}/>'


def _backgrounds(cells: Sequence[Cell], top: float) -> Iterator[str]:
    """Join neighbours of one background; each is a trifle too wide, or hairlines show between them."""
    start: tuple[int, int, str] | None = None
    for column, char, style in [*cells, (-1, "", Style())]:
        color = _hex(style.bgcolor)
        if start is not None and (color != start[2] or column != start[1]):
            x, width = MARGIN + start[0] * CELL_WIDTH, (start[1] - start[0]) * CELL_WIDTH
            yield _rect(x, top, width, CELL_HEIGHT, f' fill="{start[2]}" shape-rendering="crispEdges"')
            start = None
        if color is not None:
            start = (start[0] if start else column, column + cell_len(char), color)


def _shapes(cells: Sequence[Cell], top: float) -> Iterator[str]:
    for column, char, style in cells:
        x = MARGIN + column * CELL_WIDTH
        if "\u2800" <= char <= "\u28ff":
            yield from _braille(char, x, top, style)
        elif char == "▀":
            yield _rect(x, top, CELL_WIDTH, CELL_HEIGHT / 2, _ink(style) + ' shape-rendering="crispEdges"')
        elif char in _LOWER:
            size = CELL_HEIGHT * _LOWER[char]
            yield _rect(x, top + CELL_HEIGHT - size, CELL_WIDTH, size, _ink(style) + ' shape-rendering="crispEdges"')
        elif char in _ARMS:
            yield from _arms(_ARMS[char], x, top, style, 3.0 if char == "━" else 1.0)
        elif char == "╌":
            for part in (0.5, 4.5):
                yield _rect(x + part, top + CELL_HEIGHT / 2 - 0.5, 2.6, 1, _ink(style))
        elif char == "●":
            middle = f'cx="{_n(x + CELL_WIDTH / 2)}" cy="{_n(top + CELL_HEIGHT / 2)}"'
            yield f'<circle {middle} r="3.6"{_ink(style)}/>'


def _braille(char: str, x: float, top: float, style: Style) -> Iterator[str]:
    bits = ord(char) - 0x2800
    dots = []
    for number, (column, row) in enumerate(((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))):
        if bits & 1 << number:
            middle_x, middle_y = x + CELL_WIDTH * (column + 0.5) / 2, top + CELL_HEIGHT * (row + 0.5) / 4
            dots.append(f"M{_n(middle_x - 1.35)} {_n(middle_y)}a1.35 1.35 0 1 0 2.7 0a1.35 1.35 0 1 0 -2.7 0")
    if dots:
        yield f'<path d="{"".join(dots)}"{_ink(style)}/>'


def _arms(arms: str, x: float, top: float, style: Style, size: float) -> Iterator[str]:
    middle_x, middle_y = x + CELL_WIDTH / 2, top + CELL_HEIGHT / 2
    half = size / 2
    left = x if "l" in arms else middle_x - half
    right = x + CELL_WIDTH if "r" in arms else middle_x + half
    upper = top if "u" in arms else middle_y - half
    lower = top + CELL_HEIGHT if "d" in arms else middle_y + half
    if "l" in arms or "r" in arms:
        yield _rect(left, middle_y - half, right - left, size, _ink(style))
    if "u" in arms or "d" in arms:
        yield _rect(middle_x - half, upper, size, lower - upper, _ink(style))


def _is_shape(char: str) -> bool:
    return "\u2800" <= char <= "\u28ff" or char in _LOWER or char in _ARMS or char in "▀╌●"


def _words(cells: Sequence[Cell], top: float) -> Iterator[str]:
    """Write each word where its first cell is, stretched to its cells: any monospace font then aligns."""
    word: list[Cell] = []
    for cell in [*cells, (-1, " ", Style())]:
        column, char, style = cell
        ends = char.isspace() or _is_shape(char)
        if word and (ends or style != word[0][2] or column < 0):
            yield _word(word, top)
            word = []
        if not ends:
            word.append(cell)


def _word(word: Sequence[Cell], top: float) -> str:
    style = word[0][2]
    text = "".join(char for _, char, _ in word)
    place = f'x="{_n(MARGIN + word[0][0] * CELL_WIDTH)}" y="{_n(top + CELL_HEIGHT * 0.76)}"'
    size = f'textLength="{_n(cell_len(text) * CELL_WIDTH)}" lengthAdjust="spacingAndGlyphs"'
    return f"<text {place} {size}{_ink(style, 'bold' if style.bold else '')}>{escape(text)}</text>"
