"""A terminal picture as a PNG file, in the light theme, drawn with Pillow (an extra) and the one font it brings."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from mhsa_cli.errors import UsageError
from mhsa_cli.renderers.files.vector_marks import CELL_HEIGHT, CELL_WIDTH, Dots, Rect, Word, marks, size_of

SCALE = 2  # pixels per CSS pixel: sharp also on dense screens
SMOOTH = 4  # slanted lines and dots are drawn so much larger and scaled down: Pillow's own have hard edges
FONT = 13.8  # its figures are then as wide as a cell
PANEL, BORDER, INK, DIM = "#ffffff", "#d0d7de", "#1f2328", 0.62
LARGEST = 100_000_000  # pixels
# What Pillow's font lacks and pictures need, as lines in a cell of 8 x 17: (x, y) to (x, y) ...
_STROKES: dict[str, Sequence[Sequence[tuple[float, float]]]] = {
    "→": [[(0.5, 9), (7.5, 9)], [(4.7, 6.2), (7.5, 9), (4.7, 11.8)]],
    "←": [[(0.5, 9), (7.5, 9)], [(3.3, 6.2), (0.5, 9), (3.3, 11.8)]],
    "↓": [[(4, 4), (4, 13)], [(1.4, 10.2), (4, 13), (6.6, 10.2)]],
    "↑": [[(4, 4), (4, 13)], [(1.4, 6.8), (4, 4), (6.6, 6.8)]],
    "×": [[(1.5, 6.5), (6.5, 11.5)], [(1.5, 11.5), (6.5, 6.5)]],
    "–": [[(1, 9), (7, 9)]],
    "—": [[(0, 9), (8, 9)]],
    "␣": [[(1, 11.5), (1, 14), (7, 14), (7, 11.5)]],
    "↵": [[(7.5, 5), (7.5, 10), (0.5, 10)], [(3.3, 7.2), (0.5, 10), (3.3, 12.8)]],
    "⇥": [[(0.5, 9), (7, 9)], [(4.2, 6.2), (7, 9), (4.2, 11.8)], [(7.5, 5.5), (7.5, 12.5)]],
}
# Accents, as (character of the font, pixels down from where it stands by itself).
_ACCENTS = {"\u0301": ("´", 0), "\u0300": ("`", 0), "\u0302": ("^", -1), "\u0303": ("~", -6), "\u0308": ('"', -2)}


def to_png(lines: Sequence[Text], *, title: str) -> bytes:
    """Draw lines as `to_svg` does, at twice its size, and return the file's bytes; `title` is stored in it.

    Raises: UsageError if Pillow is missing or the picture is too large.
    """
    image = painted(lines)
    from PIL import PngImagePlugin

    info = PngImagePlugin.PngInfo()
    info.add_itxt("Title", title.encode("utf-8", "replace").decode())
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True, pnginfo=info)
    return file.getvalue()


def painted(lines: Sequence[Text]) -> Any:
    """Draw lines as an image of Pillow's, at twice the size of `to_svg`'s.

    A character that the font lacks is drawn as a small box with its code point.
    Raises: UsageError if Pillow is missing or the picture is too large.
    """
    need_pillow()
    from PIL import Image

    width, height = size_of(lines)
    if width * height * SCALE**2 > LARGEST:
        columns = max(line.cell_len for line in lines)
        raise UsageError(f"{columns} columns by {len(lines)} lines are too many for a PNG", "write .svg")
    image = Image.new("RGB", (round(width * SCALE), round(height * SCALE)), PANEL)
    painter = _Painter(image)
    painter.border()
    for mark in marks(lines):
        if isinstance(mark, Rect):
            painter.rect(mark)
        elif isinstance(mark, Dots):
            painter.dots(mark)
        else:
            painter.word(mark)
    return image


def need_pillow(kind: str = "PNG", instead: str = "; or write .svg") -> None:
    """Raise UsageError if Pillow, which a kind of file needs, is missing."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise UsageError(f"{kind} needs Pillow", f"pip install 'mhsa-cli[png]'{instead}") from error


@cache
def _font(size: float) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size * SCALE)


@cache
def _has(char: str) -> bool:
    """Return whether the font has a character: what it lacks looks like U+FFFF, which no font has."""
    mask, nothing = (bytes(_font(FONT).getmask(c)) for c in (char, "\uffff"))
    return mask != nothing


class _Painter:
    """Paints marks on a Pillow image; all measures are in CSS pixels."""

    def __init__(self, image: Any) -> None:
        from PIL import ImageDraw

        self.image, self.draw = image, ImageDraw.Draw(image)

    def border(self) -> None:
        """Frame the picture."""
        self.draw.rectangle((0, 0, self.image.width - 1, self.image.height - 1), outline=BORDER, width=1)

    def rect(self, mark: Rect) -> None:
        """Fill a rectangle, its edges on whole pixels, so that neighbours touch."""
        left, top = round(mark.x * SCALE), round(mark.y * SCALE)
        right, bottom = round((mark.x + mark.width) * SCALE), round((mark.y + mark.height) * SCALE)
        color = _color(mark.color, mark.opacity * (DIM if mark.dim else 1.0))
        self.draw.rectangle((left, top, max(right, left + 1) - 1, max(bottom, top + 1) - 1), fill=color)

    def dots(self, mark: Dots) -> None:
        """Fill circles."""
        r = mark.radius
        for x, y in mark.centres:
            with self.smooth(x - r, y - r, 2 * r, 2 * r, _color(mark.color, DIM if mark.dim else 1.0)) as (draw, at):
                draw.ellipse((*at(x - r, y - r), *at(x + r, y + r)), fill=255)

    def word(self, mark: Word) -> None:
        """Set a word over its cells: letters spaced evenly, figures each in its own cell."""
        color = _color(mark.color, DIM if mark.dim else 1.0)
        text = unicodedata.normalize("NFC", mark.text)
        cells = [cell_len(char) * CELL_WIDTH for char in text]
        widths, gap, size = cells, 0.0, FONT
        if any(char.isascii() and char.isalpha() for char in text):
            widths = [self.width(char, cell) for char, cell in zip(text, cells, strict=True)]
            if sum(widths) > mark.width * 1.02:
                size *= mark.width / sum(widths)
                widths = [self.width(char, cell, size) for char, cell in zip(text, cells, strict=True)]
            gap = (mark.width - sum(widths)) / len(text)
        x = mark.x
        for char, cell, width in zip(text, cells, widths, strict=True):
            if cell:
                self.char(char, x + gap / 2, mark.top, width, color, mark.bold, size)
            x += width + gap

    def width(self, char: str, cell: float, size: float = FONT) -> float:
        """Return the width of a character: that of the font, or its cells if the font lacks it."""
        letter = unicodedata.normalize("NFD", char)[0]
        if not cell or char in _STROKES or not _has(letter):
            return cell
        return float(_font(size).getlength(letter)) / SCALE

    def char(self, char: str, x: float, top: float, width: float, color: str, bold: bool, size: float) -> None:
        """Draw one character: from the font, as strokes, as letter and accent, or as a box with its code."""
        letter, *accents = list(unicodedata.normalize("NFD", char))
        if char in _STROKES:
            self.strokes(_STROKES[char], x, top, color, bold)
        elif _has(char):
            self.glyph(char, x, top, width, color, bold, size)
        elif len(accents) == 1 and _has(letter) and accents[0] in _ACCENTS:
            accent, down = _ACCENTS[accents[0]]
            self.glyph(letter, x, top, width, color, bold, size)
            self.glyph(accent, x, top + down - (3 if letter.isupper() else 0), width, color, bold, size)
        else:
            self.box(char, x, top, width, color)

    def glyph(self, char: str, x: float, top: float, width: float, color: str, bold: bool, size: float) -> None:
        """Draw a character of the font in the middle of its place; smaller if it is too wide."""
        font = _font(size)
        real = font.getlength(char) / SCALE
        if real > width * 1.08:
            font = _font(size * width * 1.08 / real)
        middle, base = (x + width / 2) * SCALE, (top + CELL_HEIGHT * 0.76) * SCALE
        for shift in (-0.4, 0.4) if bold else (0.0,):  # the font has no bold of its own
            self.draw.text((middle + shift, base), char, fill=color, font=font, anchor="ms")

    def strokes(
        self, paths: Sequence[Sequence[tuple[float, float]]], x: float, top: float, color: str, bold: bool
    ) -> None:
        """Draw lines inside a cell."""
        with self.smooth(x - 1, top, CELL_WIDTH + 2, CELL_HEIGHT, color) as (draw, at):
            for path in paths:
                points = [at(x + px, top + py) for px, py in path]
                draw.line(points, fill=255, width=round((1.5 if bold else 1.1) * SCALE * SMOOTH), joint="curve")

    @contextmanager
    def smooth(self, x: float, y: float, width: float, height: float, color: str) -> Iterator[tuple[Any, Any]]:
        """Yield an enlarged patch to draw on in white; it is then scaled down and painted in a colour."""
        from PIL import Image, ImageDraw

        left, top = int(x * SCALE) - 1, int(y * SCALE) - 1
        size = int(width * SCALE) + 4, int(height * SCALE) + 4
        patch = Image.new("L", (size[0] * SMOOTH, size[1] * SMOOTH), 0)
        yield ImageDraw.Draw(patch), lambda x, y: ((x * SCALE - left) * SMOOTH, (y * SCALE - top) * SMOOTH)
        self.image.paste(color, (left, top), patch.resize(size, Image.Resampling.BOX))

    def box(self, char: str, x: float, top: float, width: float, color: str) -> None:
        """Draw a box with a character's code point in it, half of the digits in each of two rows."""
        left, right = round((x + 0.5) * SCALE), round((x + width - 0.5) * SCALE) - 1
        self.draw.rectangle((left, round((top + 2) * SCALE), right, round((top + 15) * SCALE)), outline=color)
        code = f"{ord(char):04x}"
        half = (len(code) + 1) // 2
        for row, text in enumerate((code[:half], code[half:])):
            font = _font(5.4)
            size = font.getlength(text) / SCALE
            if size > width - 2:
                font = _font(5.4 * (width - 2) / size)
            place = ((x + width / 2) * SCALE, (top + (5.6, 11.5)[row]) * SCALE)
            self.draw.text(place, text, fill=color, font=font, anchor="mm")


def _color(color: str | None, opacity: float) -> str:
    """Mix a colour with the panel behind it: everything stands on white or covers its cell."""
    found = color or INK
    if opacity == 1.0:
        return found
    pairs = zip((found[1:3], found[3:5], found[5:7]), (PANEL[1:3], PANEL[3:5], PANEL[5:7]), strict=True)
    return "#" + "".join(f"{round(int(a, 16) * opacity + int(b, 16) * (1 - opacity)):02x}" for a, b in pairs)
