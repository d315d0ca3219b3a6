"""How commands speak: pictures and results on stdout, one JSON document instead where asked, files beside them."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from mhsa_cli.commands.stderr import tell
from mhsa_cli.errors import UsageError
from mhsa_cli.renderers.console import Surface, make_console, surface_of
from mhsa_cli.renderers.lines import Lines, safe
from mhsa_cli.runs.disk import show, write_file_atomic
from mhsa_cli.runs.names import runs_root
from mhsa_cli.runs.rundir import RunDir

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
    """Print one strict JSON document; NaN and infinities become null."""
    sys.stdout.write(json.dumps(_finite(document), allow_nan=False, ensure_ascii=True) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def run_argument(run: RunDir) -> str:
    """Write a run as the next command must name it, quoted: its name, or its path if it is kept somewhere else."""
    at_home = run.path == runs_root() / run.name
    return show(shlex.quote(run.name if at_home else str(run.path)))


def svg_path(given: Path | None) -> Path | None:
    """Check before any work that the wanted file is an SVG. Raises: UsageError."""
    if given is not None and given.suffix.lower() != ".svg":
        better = show(given.with_suffix(".svg")) if given.name else "picture.svg"
        raise UsageError(f"'{show(given)}': pictures are written as SVG", f"name it {better}")
    return given


def write_svg(path: Path, lines: Lines, title: str) -> None:
    """Write a picture as an SVG file and say so on stderr, where it disturbs no JSON."""
    from mhsa_cli.renderers.svg import to_svg

    write_file_atomic(path, to_svg(lines.lines, title=title).encode())
    tell(f"wrote {show(path)}")


def svg_surface() -> Surface:
    """Describe the paper of an SVG file: full colour, every glyph, a fixed width."""
    return Surface(width=SVG_WIDTH, depth="truecolor")
