"""Pictures as lists of Rich text lines, wrapped text, and a grid of cells to paint on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from mhsa_cli.renderers.kit.palette import PLAIN
from mhsa_cli.text import escape


class Lines(list[Text]):
    """A finished picture; a Rich console prints it line by line, never wrapped."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self:
            yield from line.render(console)
            yield Segment.line()

    def __add__(self, other: Iterable[Text]) -> Lines:  # type: ignore[override]
        return Lines([*self, *other])

    @property
    def plain(self) -> str:
        """The picture as text without styles."""
        return "\n".join(line.plain for line in self)

    @property
    def columns(self) -> int:
        """The columns of the widest line."""
        return max((line.cell_len for line in self), default=0)


def stacked(parts: Iterable[Lines]) -> Lines:
    """Set the parts of a picture under each other with an empty line between; empty parts are omitted."""
    first, *rest = [part for part in parts if part] or [Lines()]
    return Lines([*first, *(line for part in rest for line in (Text(), *part))])


def cut(text: str, width: int, mark: str = "…") -> str:
    """Shorten text to `width` columns, ending in `mark`; wide characters count two."""
    if cell_len(text) <= width:
        return text
    room = width - cell_len(mark)
    return (chop_cells(text, room)[0] if room > 0 else "") + mark[:width]


def cut_middle(text: str, width: int, mark: str = "…") -> str:
    """Shorten text to `width` columns with `mark` in its middle, so that both ends stay."""
    room = width - cell_len(mark)
    if cell_len(text) <= width or room < 2:
        return cut(text, width, mark)
    head = cut(text, room // 2, "")
    room -= cell_len(head)
    fits = (i for i, char in enumerate(text) if cell_len(text[i:]) <= room and cell_len(char))  # no accent comes first
    return head + mark + text[next(fits, len(text)) :]


def pad(text: str, width: int, align: str = "left") -> str:
    """Fill text with spaces to `width` columns: `align` is left or right."""
    room = " " * (width - cell_len(text))
    return room + text if align == "right" else text + room


INDENT = "  "
_CONSOLE = Console(width=80, height=25, force_jupyter=False)  # asked for nothing by `Text.wrap`
Piece = tuple[str, Style]
Phrase = str | Sequence[Piece]


def assemble(pieces: Iterable[Piece]) -> Text:
    """Join styled pieces into one line."""
    return Text.assemble(*pieces, no_wrap=True, end="")


def rows_of(lines: Sequence[Text], width: int) -> int:
    """Count the rows that lines take on a terminal, which wraps long ones."""
    return sum(max(1, math.ceil(line.cell_len / width)) for line in lines)


def wrap_phrases(phrases: Iterable[Phrase], width: int, style: Style = PLAIN, gap: int = 3) -> Lines:
    """Set phrases side by side, each on a new line where it does not fit; only a phrase wider than a line is broken.

    A phrase is text in `style`, or styled pieces; control characters are escaped.
    """
    lines = Lines()
    for phrase in phrases:
        pieces = [(phrase, style)] if isinstance(phrase, str) else phrase
        text = assemble([(escape(part), own) for part, own in pieces])
        if lines and text and lines[-1].cell_len + gap + text.cell_len <= width:
            lines[-1].append(" " * gap).append_text(text)
        elif text:
            for line in text.wrap(_CONSOLE, width, no_wrap=False):
                line.rstrip()
                lines += [line] if line else []
    return lines


def hanging(sentence: Phrase, width: int, style: Style = PLAIN, indent: str = "") -> Lines:
    """Wrap a sentence with an indent, its further lines indented more."""
    first, *rest = wrap_phrases([sentence], width - len(indent) - len(INDENT), style) or [Text()]
    return Lines([Text(indent) + first, *(Text(indent + INDENT) + line for line in rest)])


def wrap_words(text: str, width: int, indent: str = "") -> list[str]:
    """Break text between words, further lines indented. No word is broken: it may have to be typed."""
    rows: list[str] = []
    for word in text.split(" "):
        if rows and cell_len(rows[-1]) + 1 + cell_len(word) <= width:
            rows[-1] += " " + word
        else:
            rows.append(indent + word if rows else word)
    return rows


class Grid:
    """Paint characters and styles on a fixed grid of `width` by `height` cells; what falls outside is dropped."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.chars = [[" "] * width for _ in range(height)]
        self.styles = [[PLAIN] * width for _ in range(height)]

    def put(self, x: int, y: int, text: str, style: Style = PLAIN) -> None:
        """Write text from column `x` of row `y`; a wide character takes two cells or none."""
        if not 0 <= y < self.height:
            return
        for char in text:
            size = 1 if char.isascii() else cell_len(char)
            if size == 0:  # an accent belongs to the letter before it
                if 0 < x <= self.width:
                    self.chars[y][x - 1] += char
                continue
            if x >= 0 and x + size <= self.width:
                self.chars[y][x], self.styles[y][x] = char, style
                for extra in range(x + 1, x + size):
                    self.chars[y][extra], self.styles[y][extra] = "", style
            x += size

    def paste(self, other: Grid, left: int, top: int) -> None:
        """Copy another grid onto this one, cut at the right edge."""
        for y, (chars, styles) in enumerate(zip(other.chars, other.styles, strict=True), top):
            room = slice(left, min(left + other.width, self.width))
            size = room.stop - left
            self.chars[y][room], self.styles[y][room] = chars[:size], styles[:size]

    def lines(self) -> Lines:
        """Return the grid as lines, without unpainted space at the right."""
        return Lines(assemble(_runs(chars, styles)) for chars, styles in zip(self.chars, self.styles, strict=True))


def _runs(chars: list[str], styles: list[Style]) -> Iterator[Piece]:
    """Join neighbours of one style, up to the last visible cell."""
    end = max((x + 1 for x, char in enumerate(chars) if char != " " or styles[x].bgcolor is not None), default=0)
    for style, cells in groupby(range(end), key=lambda x: styles[x]):
        yield "".join(chars[x] for x in cells), style
