"""A page of help: two columns where there is room, plain `name: text` lines where there is not; a command never cut."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN
from mhsa_cli.renderers.kit.text_lines import INDENT, Lines, assemble, pad, wrap_words
from mhsa_cli.text import escape

Entry = tuple[str, str]
LEAST_WIDTH = 60  # columns; on fewer, a column of names leaves too few for the text
LONGEST_NAME = 26
GAP = 2


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
    lines = Lines([assemble([("Usage: ", BOLD), (escape(usage), PLAIN)]), Text()])
    for paragraph in paragraphs:
        lines += [*map(Text, _wrap(paragraph, width)), Text()]
    for example in examples:
        lines += [Text(example), Text()]
    for heading, entries in groups:
        set_entries = _columns if width >= LEAST_WIDTH else _pairs
        lines += [Text.styled(heading, DIM), *set_entries(entries, width), Text()]
    return Lines(lines[:-1])


def _columns(entries: Sequence[Entry], width: int) -> Lines:
    names = min(LONGEST_NAME, max((cell_len(name) for name, _ in entries), default=0))
    lines = Lines()
    for name, text in entries:
        if cell_len(name) > names:
            lines.append(assemble([(INDENT, PLAIN), (name, BOLD)]))
            name = ""
        for part in _wrap(text, width - len(INDENT) - names - GAP):
            lines.append(assemble([(INDENT + pad(name, names + GAP), BOLD), (part, PLAIN)]))
            name = ""
    return lines


def _pairs(entries: Sequence[Entry], width: int) -> Lines:
    lines = Lines()
    for name, text in entries:
        first, *rest = _wrap(f"{name}: {text}", width, INDENT)
        bold = name if first.startswith(name) else first  # a name of several words may not fit into a line
        lines += [assemble([(bold, BOLD), (first[len(bold) :], PLAIN)]), *map(Text, rest)]
    return lines


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    return wrap_words(escape(" ".join(text.split())), width, indent)
