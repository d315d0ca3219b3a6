"""Output of commands: pictures and results on stdout, or one JSON document, and pictures in files."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from mhsa_cli.renderers.kit.console import Surface, make_console, surface_of
from mhsa_cli.renderers.kit.text_lines import Lines, wrap_words
from mhsa_cli.text import escape

PIECES = 20_000
_STRICT = json.JSONEncoder(allow_nan=False)


class Paper:
    """Stdout with its width, colours and glyphs."""

    def __init__(self) -> None:
        self.console: Console = make_console()
        self.surface: Surface = surface_of(self.console)
        self._wraps = self.surface.bounded or "COLUMNS" in os.environ

    def say(self, text: str = "") -> None:
        """Print text, wrapped between words where the width is known: on a terminal, or if COLUMNS is set."""
        for line in text.split("\n"):
            rows = wrap_words(escape(line), self.surface.width) if self._wraps else [escape(line)]
            for row in rows:
                self.console.print(Text(row), soft_wrap=True)

    def offer(self, text: str) -> None:
        """Print a command or a path as one line, so that it can be copied whole from a terminal."""
        for line in text.split("\n"):
            self.console.print(Text(escape(line)), soft_wrap=True)

    def next(self, command: str) -> None:
        """Print the next command, below a blank line."""
        self.offer(f"\nnext: {command}")

    def wrote(self, files: Sequence[Path]) -> None:
        """Print which files were written, with their sizes."""
        for file in files:
            size = file.stat().st_size
            self.offer(f"wrote {escape(file)}  {f'{size:,} bytes' if size < 10_000 else f'{size / 1000:,.0f} kB'}")

    def draw(self, lines: Lines) -> None:
        """Print a picture without cropping: names wider than the console stay whole."""
        self.console.print(lines, crop=False)


def print_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one strict JSON document; NaN and infinities become null."""
    pieces = _STRICT.iterencode(_finite(document))  # a curve may have millions of points: never hold all of its text
    while block := "".join(islice(pieces, PIECES)):
        sys.stdout.write(block)
    sys.stdout.write("\n")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
