"""A page of help: two columns where there is room, plain `name: text` lines where there is not; a command never cut."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN
from mhsa_cli.renderers.kit.text_lines import Lines, Piece, assemble, pad, wrap_words
from mhsa_cli.text import escape

Entry = tuple[str, str]
LEAST_WIDTH = 60  # columns; on fewer, a column of names leaves too few for the text
LONGEST_NAME = 26
INDENT, GAP = 2, 2


def help_page(
    usage: str,
    paragraphs: Sequence[str],
    examples: Sequence[str],
    groups: Sequence[tuple[str, Sequence[Entry]]],
    *,
    width: int,
) -> Lines:
    """Set how a command is called, what it does, examples, and groups of names with their texts under a heading each.

    An example, a line that shows a command, is left whole: a terminal wraps it, and copies it back as one.
    """
    lines: list[list[Piece]] = [[("Usage: ", BOLD), (escape(usage), PLAIN)], []]
    for paragraph in paragraphs:
        lines += [[(line, PLAIN)] for line in _wrap(paragraph, width)]
        lines.append([])
    for example in examples:
        lines += [[(example, PLAIN)], []]
    for heading, entries in groups:
        lines.append([(heading, DIM)])
        lines += _columns(entries, width) if width >= LEAST_WIDTH else _pairs(entries, width)
        lines.append([])
    return Lines([assemble(line) for line in lines[:-1]])


def _columns(entries: Sequence[Entry], width: int) -> list[list[Piece]]:
    names = min(LONGEST_NAME, max((cell_len(name) for name, _ in entries), default=0))
    lines: list[list[Piece]] = []
    for name, text in entries:
        parts = _wrap(text, width - INDENT - names - GAP) or [""]
        left = pad(name, names) + " " * GAP
        if cell_len(name) > names:
            lines.append([(" " * INDENT, PLAIN), (name, BOLD)])
            left = " " * (names + GAP)
        for number, part in enumerate(parts):
            lines.append([(" " * INDENT, PLAIN), (left if number == 0 else " " * len(left), BOLD), (part, PLAIN)])
    return lines


def _pairs(entries: Sequence[Entry], width: int) -> list[list[Piece]]:
    lines: list[list[Piece]] = []
    for name, text in entries:
        first, *rest = _wrap(f"{name}: {text}", width, " " * INDENT)
        if first.startswith(name):
            lines.append([(name, BOLD), (first[len(name) :], PLAIN)])
        else:  # a name of several words that does not fit into a line
            lines.append([(first, BOLD)])
        lines += [[(line, PLAIN)] for line in rest]
    return lines


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    return wrap_words(escape(" ".join(text.split())), width, indent)
