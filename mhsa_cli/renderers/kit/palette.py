"""Colours: viridis for weights, six line colours for dark and light backgrounds."""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color
from rich.style import Style

from mhsa_cli.renderers.kit.console import Depth

# Viridis (van der Walt, Smith and Firing, 2015) at 0, 0.1, ... 1; linear between them it is off by at most 2 of 255.
_SHADES = "440154 482475 414487 355f8d 2a788e 21918c 22a884 44bf70 7ad151 bddf26 fde725"
_VIRIDIS = [bytes.fromhex(shade) for shade in _SHADES.split()]
_START = 0.06  # the first shades are too close to a dark terminal's background
# Lightness rises in every step; the nearest colours by distance have two drops.
XTERM_RAMP = (53, 54, 25, 31, 36, 42, 77, 113, 149, 184, 220)

LINE_COLORS = ("#3b8bd0", "#d06a1f", "#1f9a70", "#b95fa0", "#8a7fd6", "#a0802a")
_LINE_COLORS_16 = ("blue", "yellow", "green", "magenta", "cyan", "red")

DIM = Style(dim=True)
BOLD = Style(bold=True)
PLAIN = Style()


def clamp(value: float) -> float:
    """Limit a weight to 0..1; not for NaN."""
    return 0.0 if value <= 0.0 else 1.0 if value >= 1.0 else value


def viridis(value: float) -> tuple[int, int, int]:
    """Return red, green and blue (0..255) of a weight in 0..1."""
    place = (_START + (1.0 - _START) * clamp(value)) * (len(_VIRIDIS) - 1)
    low = min(int(place), len(_VIRIDIS) - 2)
    part = place - low
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(_VIRIDIS[low], _VIRIDIS[low + 1], strict=True))
    return red, green, blue


def level_of(value: float) -> int:
    """Quantise a weight to 0..100: a picture then has at most 101 styles."""
    return round(clamp(value) * 100)


@lru_cache(maxsize=256)
def heat_color(level: int, depth: Depth) -> Color:
    """Return the colour of a level 0..100 in truecolor or in 256 colours."""
    if depth == "256":
        return Color.from_ansi(XTERM_RAMP[round(level / 100 * (len(XTERM_RAMP) - 1))])
    return Color.from_rgb(*viridis(level / 100))


@lru_cache(maxsize=4096)
def heat_style(front: int | None, back: int | None, depth: Depth) -> Style:
    """Make a style from the levels 0..100 of foreground and background; None is the terminal's own."""
    return Style(
        color=None if front is None else heat_color(front, depth),
        bgcolor=None if back is None else heat_color(back, depth),
    )


@lru_cache(maxsize=256)
def ink_style(level: int, depth: Depth) -> Style:
    """Make a style for text on a painted cell: white on dark shades, black on light ones."""
    back = heat_color(level, depth)
    red, green, blue = back.get_truecolor()
    # Relative luminance (WCAG 2); at 0.179 black and white are equally legible.
    shade = 0.2126 * (red / 255) ** 2.2 + 0.7152 * (green / 255) ** 2.2 + 0.0722 * (blue / 255) ** 2.2
    return Style(color=Color.from_ansi(16 if shade > 0.179 else 231), bgcolor=back)


def line_style(index: int, depth: Depth) -> Style:
    """Return the style of line number `index`; colours repeat after six."""
    if depth == "none":
        return PLAIN
    names = _LINE_COLORS_16 if depth == "16" else LINE_COLORS
    return Style.parse(names[index % len(names)])


def alarm_style(depth: Depth) -> Style:
    """Return the style of failures: bold, and red where there is colour."""
    return BOLD if depth == "none" else Style(bold=True, color="red" if depth == "16" else Color.from_rgb(208, 64, 64))
