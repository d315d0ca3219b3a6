"""How commands speak: pictures and results on stdout, one JSON document instead where asked, files beside them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from mhsa_cli.errors import UsageError
from mhsa_cli.renderers.console import Surface, make_console, surface_of
from mhsa_cli.renderers.lines import Lines, safe
from mhsa_cli.runs.disk import show, write_file_atomic

SVG_WIDTH = 96


class Paper:
    """What a command prints on: stdout with its width, colours and glyphs."""

    def __init__(self) -> None:
        self.console: Console = make_console()
        self.surface: Surface = surface_of(self.console)
        self.width = self.surface.width

    def say(self, text: str = "") -> None:
        """Print text as it is; a terminal wraps it at spaces."""
        for line in text.split("\n"):
            self.console.print(Text(safe(line)), soft_wrap=not self.surface.is_terminal)

    def draw(self, lines: Lines) -> None:
        """Print a picture."""
        self.console.print(lines)


def print_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one strict JSON document; what is not a number becomes null."""
    sys.stdout.write(json.dumps(document, allow_nan=False, ensure_ascii=True) + "\n")


def write_svg(path: Path, lines: Lines, title: str) -> str:
    """Write a picture as an SVG file and return the line that says so."""
    from mhsa_cli.renderers.svg import to_svg

    if path.suffix.lower() != ".svg":
        raise UsageError(f"{show(path)}: pictures are written as SVG", f"name it {show(path.with_suffix('.svg'))}")
    write_file_atomic(path, to_svg(lines.lines, title=title).encode())
    return f"wrote {show(path)}"


def svg_surface() -> Surface:
    """Describe the paper of an SVG file: full colour, every glyph, a fixed width."""
    return Surface(width=SVG_WIDTH, depth="truecolor")
