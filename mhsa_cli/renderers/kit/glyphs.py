"""Characters that a stream can show: full Unicode, the old block characters, or ASCII."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Glyphs(NamedTuple):
    """The characters of pictures, each one column wide unless its name ends in text.

    `half` is "" where half cells cannot be drawn; `bars` runs from nothing to full.
    """

    name: str
    bars: str
    half: str
    half_low: str
    shade: str
    horizontal: str
    vertical: str
    corner: str
    tick_left: str
    tick_down: str
    baseline: str
    point: str
    cross: str
    times: str
    dot: str
    dash: str
    right_text: str
    down_text: str
    cut_text: str

    @property
    def braille(self) -> bool:
        """Whether lines are drawn with braille, else with `' - .`."""
        return self.name == "full"

    @property
    def line(self) -> str:
        """A piece of a line, for a legend."""
        return "⠤" if self.braille else "-"


FULL = Glyphs("full", " ▁▂▃▄▅▆▇█", "▀", "▄", "░", "─", "│", "└", "┤", "┬", "╌", "●", "×", "×", "·", "–", "→", "↓", "…")
BLOCKS = Glyphs("blocks", " .▄█", "▀", "▄", "░", "─", "│", "└", "┤", "┬", "·", "o", "x", "x", "·", "-", "->", "v", "..")
ASCII = Glyphs("ascii", " .:=#", "", "", "/", "-", "|", "+", "+", "+", "~", "o", "x", "x", ".", "-", "->", "v", "..")


def encodable(text: str, encoding: str | None) -> bool:
    """Return whether `encoding` has every character of `text`; an unknown one counts as ASCII."""
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def choose_glyphs(encoding: str | None, environ: Mapping[str, str]) -> Glyphs:
    """Choose the richest set that the encoding has; the Linux text console has no braille in its font."""
    if environ.get("TERM", "").strip().lower() != "linux" and encodable("⣿⠁" + "".join(FULL), encoding):
        return FULL
    return BLOCKS if encodable("".join(BLOCKS), encoding) else ASCII
