"""Which characters a stream can show: full Unicode, the old block characters, or plain ASCII."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Hold the characters that pictures are made of, each one column wide unless its name says text.

    `braille` is False where lines must be drawn with `' - .`; `half` is "" where half cells cannot be drawn;
    `bars` runs from nothing to full.
    """

    name: str
    braille: bool
    half: str
    half_low: str
    block: str
    bars: str
    horizontal: str
    vertical: str
    corner: str
    tick_left: str
    tick_down: str
    baseline: str
    point: str
    cross: str
    dot: str
    dash: str
    right_text: str
    down_text: str
    cut_text: str
    times: str
    shade: str


FULL = Glyphs(
    name="full",
    braille=True,
    half="▀",
    half_low="▄",
    block="█",
    bars=" ▁▂▃▄▅▆▇█",
    horizontal="─",
    vertical="│",
    corner="└",
    tick_left="┤",
    tick_down="┬",
    baseline="╌",
    point="●",
    cross="×",
    dot="·",
    dash="–",
    right_text="→",
    down_text="↓",
    cut_text="…",
    times="×",
    shade="░",
)

BLOCKS = Glyphs(
    name="blocks",
    braille=False,
    half="▀",
    half_low="▄",
    block="█",
    bars=" .▄█",
    horizontal="─",
    vertical="│",
    corner="└",
    tick_left="┤",
    tick_down="┬",
    baseline="·",
    point="o",
    cross="x",
    dot="·",
    dash="-",
    right_text="->",
    down_text="v",
    cut_text="..",
    times="x",
    shade="░",
)

ASCII = Glyphs(
    name="ascii",
    braille=False,
    half="",
    half_low="",
    block="#",
    bars=" .:=#",
    horizontal="-",
    vertical="|",
    corner="+",
    tick_left="+",
    tick_down="+",
    baseline="~",
    point="o",
    cross="x",
    dot=".",
    dash="-",
    right_text="->",
    down_text="v",
    cut_text="..",
    times="x",
    shade="/",
)


_NEEDED = {
    "full": "⣿⠁▀▄█▁▂▃▅▆▇─│└┤┬╌●×·–→↓…░",
    "blocks": "▀▄█─│└┤┬·░",
}


def encodable(text: str, encoding: str | None) -> bool:
    """Tell whether `encoding` has every character of `text`; an unknown encoding has none but ASCII's."""
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def choose_glyphs(encoding: str | None, environ: Mapping[str, str]) -> Glyphs:
    """Choose the richest set that the encoding has; the Linux text console has no braille in its font."""
    if environ.get("TERM", "").strip().lower() != "linux" and encodable(_NEEDED["full"], encoding):
        return FULL
    if encodable(_NEEDED["blocks"], encoding):
        return BLOCKS
    return ASCII
