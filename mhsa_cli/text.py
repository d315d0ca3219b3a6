"""Printable text, counts with their noun, and the address of a head."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable
from typing import Any, NamedTuple


def escape(text: str | os.PathLike[str]) -> str:
    """Escape control characters, undecodable bytes and lone surrogates, so that any terminal can print the text."""
    text = os.fspath(text)
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(char: str) -> str:
    if char.isprintable():
        return char
    if "\udc80" <= char <= "\udcff":  # a byte of a file name that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def quoted(text: str | os.PathLike[str]) -> str:
    """Quote a text or path for the shell, where needed, and escape it."""
    return escape(shlex.quote(os.fspath(text)))


def shortened(text: str | os.PathLike[str], most: int) -> str:
    """Escape a text and cut it after `most` characters."""
    shown = escape(text)
    return shown if len(shown) <= most else f"{shown[:most]}..."


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 trial`, `2 trials`, `1,000 trials`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def either(names: Iterable[str]) -> str:
    """Write alternatives: `a`, `a or b`, `a, b or c`."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def byte_size(count: float) -> str:
    """Return a number of bytes with its unit: `512 bytes`, `1.5 MiB`, `16.0 GiB`."""
    unit = "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if count >= 1024:
            count, unit = count / 1024, larger
    return f"{count:,.0f} bytes" if unit == "bytes" else f"{count:,.1f} {unit}"


def typed(value: Any) -> str:
    """Write a setting as it is typed: null, true, 0.005, [0.9, 0.999], text without quotes."""
    return value if isinstance(value, str) else json.dumps(value)


def from_file(file: str) -> str:
    """Name a model that was not trained here by its file."""
    return f"a model from {escape(file)}"


class Head(NamedTuple):
    """The address of a head, (layer, head) both from 0; `L0.H3` as text."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"L{self.layer}.H{self.head}"
