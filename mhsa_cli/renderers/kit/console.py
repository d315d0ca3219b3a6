"""Detect what a stream can show, and make the Rich console that writes to it.

Rich guesses most of this well, but a FORCE_COLOR in the environment makes it call a pipe a terminal, COLUMNS=0 makes it
print nothing, and a dumb terminal gets 80 columns whatever COLUMNS says. So the decisions are made here, in one place.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import IO, Literal

from rich.console import Console

from mhsa_cli.renderers.kit.glyphs import FULL, Glyphs, choose_glyphs

Depth = Literal["none", "16", "256", "truecolor"]

MIN_WIDTH, MAX_WIDTH, DEFAULT_WIDTH, DEFAULT_HEIGHT = 20, 200, 80, 25
LEAST_WIDTH = 16  # columns of a part of a picture
_QUIET_PLACES = ("CI", "JPY_PARENT_PID", "COLAB_RELEASE_TAG")  # terminals that keep every frame of an animation
# Replacements of equal width for the white space in tokens.
_PLAIN = {"␣": "_", "↵": "$", "⇥": ">"}
_RICH_SYSTEM: dict[Depth, Literal["standard", "256", "truecolor"]] = {
    "16": "standard",
    "256": "256",
    "truecolor": "truecolor",
}


@dataclass(frozen=True, slots=True)
class Surface:
    """What is drawn on: columns and rows, colour depth, glyphs, and whether lines can be redrawn.

    A pipe is not `bounded`: names and addresses are not cut to its width.
    """

    width: int = DEFAULT_WIDTH
    height: int = DEFAULT_HEIGHT
    depth: Depth = "truecolor"
    glyphs: Glyphs = FULL
    animate: bool = False
    bounded: bool = True

    @property
    def paints(self) -> bool:
        """Whether the colour of a cell can carry a value (not with 16 colours, which are the user's theme)."""
        return self.depth in ("256", "truecolor")

    def narrow(self, columns: int) -> Surface:
        """Return a surface with so many columns less, but at least LEAST_WIDTH."""
        return replace(self, width=max(LEAST_WIDTH, self.width - columns))


def _number(text: str | None) -> int | None:
    """Read a positive decimal number; None for signs, words and full-width digits."""
    if text is None or not (text.isascii() and text.isdigit()):
        return None
    return int(text[:9]) or None


def terminal_size(stream: IO[str] | None, environ: Mapping[str, str]) -> tuple[int, int]:
    """Return columns (20..200) and rows: of COLUMNS and LINES, else of the terminal, else 80 by 25."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno()) if stream is not None else (0, 0)
    except (AttributeError, ValueError, OSError):
        columns, rows = 0, 0  # a pipe, a file, or a stream without a descriptor
    columns = _number(environ.get("COLUMNS")) or columns or DEFAULT_WIDTH
    rows = _number(environ.get("LINES")) or rows or DEFAULT_HEIGHT
    return max(MIN_WIDTH, min(MAX_WIDTH, columns)), max(1, rows)


def is_tty(stream: IO[str] | None) -> bool:
    """Return whether the stream is a terminal, whatever the environment says."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # a closed stream
        return False


def color_depth(environ: Mapping[str, str], tty: bool) -> Depth:
    """Return the colour depth.

    NO_COLOR (not empty) wins; then FORCE_COLOR, which gives a pipe colour but never makes it a terminal, and which
    switches colour off when it is 0; otherwise a terminal that is not dumb has what COLORTERM and TERM say.
    """
    term = environ.get("TERM", "").strip().lower()
    wish = environ.get("FORCE_COLOR", "")
    forced = wish.strip().lower() not in ("", "0", "false", "no", "off")
    if environ.get("NO_COLOR", "") != "" or (wish != "" and not forced):
        return "none"
    if not forced and (not tty or term in ("dumb", "unknown")):
        return "none"
    if environ.get("JPY_PARENT_PID"):  # `!mhsa` in a notebook, which calls its terminal xterm-color and paints all
        return "truecolor"
    if environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit") or wish == "3":
        return "truecolor"
    if any(mark in term for mark in ("256color", "kitty", "alacritty", "ghostty")):
        return "256"
    if forced and term in ("", "dumb", "unknown"):
        return "256"  # a log viewer that was promised colour; all of them know 256
    return "16"


def can_animate(environ: Mapping[str, str], tty: bool) -> bool:
    """Return whether lines can be redrawn: on a terminal that is neither dumb nor a log."""
    dumb = environ.get("TERM", "").strip().lower() in ("dumb", "unknown")
    return tty and not dumb and not any(environ.get(place) for place in _QUIET_PLACES)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Replace the characters that an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(char, "?") for char in error.object[error.start : error.end]), error.end


codecs.register_error("mhsa_cli.plain", _replaced)


def make_console(stderr: bool = False, *, file: IO[str] | None = None) -> Console:
    """Make a console for stdout or stderr that prints any text literally."""
    stream = file if file is not None else (sys.stderr if stderr else sys.stdout)
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="mhsa_cli.plain")
    tty = is_tty(stream)
    depth = color_depth(os.environ, tty)
    width, height = terminal_size(stream, os.environ)
    # Without colour a real terminal still shows bold and dim: NO_COLOR is about colour only.
    attributes = tty and can_animate({**os.environ, "CI": ""}, tty)
    console = Console(
        stderr=stderr,
        file=file,
        force_terminal=tty,
        force_jupyter=False,
        color_system=_RICH_SYSTEM[depth] if depth != "none" else ("standard" if attributes else None),
        no_color=depth == "none",
        width=width,
        height=height,
        highlight=False,
        markup=False,
        emoji=False,
    )
    if sys.platform == "win32" and console.legacy_windows:  # pragma: no cover - no such machine here
        console.width = max(MIN_WIDTH, width - 1)
    return console


def surface_of(console: Console) -> Surface:
    """Return what a console made by `make_console` can show now."""
    tty = is_tty(console.file)
    return Surface(
        width=console.width,
        height=console.height,
        depth=color_depth(os.environ, tty),
        glyphs=choose_glyphs(getattr(console.file, "encoding", None), os.environ),
        animate=can_animate(os.environ, tty),
        bounded=tty,
    )
