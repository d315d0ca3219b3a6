"""How a finished picture leaves the terminal: one entry a format."""

from __future__ import annotations

from collections.abc import Callable

from mhsa_cli.renderers.html import to_html
from mhsa_cli.renderers.lines import Lines
from mhsa_cli.renderers.svg import to_svg


def html(lines: Lines, title: str) -> str:
    """Write the picture as a page of its own."""
    return to_html([(title, "", lines)], title=title)


def to_text(lines: Lines, title: str) -> str:
    """Write the picture as plain text under its title."""
    return f"{title}\n\n{lines.plain}\n" if title else f"{lines.plain}\n"


def svg(lines: Lines, title: str) -> str:
    """Write the picture as an SVG file."""
    return to_svg(lines.lines, title=title)


RENDERERS: dict[str, Callable[[Lines, str], str]] = {"txt": to_text, "svg": svg, "html": html}
