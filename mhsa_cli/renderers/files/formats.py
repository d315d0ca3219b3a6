"""How a finished picture leaves the terminal: one entry a format."""

from __future__ import annotations

from collections.abc import Callable

from mhsa_cli.renderers.files.html import to_html
from mhsa_cli.renderers.files.png import to_png
from mhsa_cli.renderers.files.svg import to_svg
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.text import escape


def to_txt(lines: Lines, title: str) -> str:
    """Write the picture as plain text under its title."""
    return f"{escape(title)}\n\n{lines.plain}\n" if title else f"{lines.plain}\n"


# By the file name's ending; each takes a picture and its title and gives the file's bytes.
RENDERERS: dict[str, Callable[[Lines, str], bytes]] = {
    "svg": lambda lines, title: to_svg(lines, title=title).encode(),
    "html": lambda lines, title: to_html(lines, title=title).encode(),
    "png": lambda lines, title: to_png(lines, title=title),  # raises UsageError without Pillow
    "txt": lambda lines, title: to_txt(lines, title).encode(),
}
