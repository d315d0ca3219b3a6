"""How a finished picture leaves the terminal: one entry a format."""

from __future__ import annotations

from collections.abc import Callable

from mhsa_cli.renderers.files.html import to_html
from mhsa_cli.renderers.files.png import to_png
from mhsa_cli.renderers.files.svg import to_svg
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.text import escape


def svg(lines: Lines, title: str) -> bytes:
    """Write the picture as an SVG file."""
    return to_svg(lines, title=title).encode()


def html(lines: Lines, title: str) -> bytes:
    """Write the picture as a page of its own."""
    return to_html(lines, title=title).encode()


def png(lines: Lines, title: str) -> bytes:
    """Write the picture as a PNG file. Raises: UsageError without Pillow."""
    return to_png(lines, title=title)


def txt(lines: Lines, title: str) -> bytes:
    """Write the picture as plain text under its title."""
    return (f"{escape(title)}\n\n{lines.plain}\n" if title else f"{lines.plain}\n").encode()


# By the file name's ending; each takes a picture and its title and gives the file's bytes.
RENDERERS: dict[str, Callable[[Lines, str], bytes]] = {"svg": svg, "html": html, "png": png, "txt": txt}
