"""What the terminal can show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mhsa_cli.jobs.doctor.variables import chosen_of, with_chosen
from mhsa_cli.records.doctor import Check, Terminal

NARROW, LOW = 60, 20  # columns and rows
CHOICES = ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CI")
LOCALE = ("LC_ALL", "LC_CTYPE", "LANG", "PYTHONUTF8", "PYTHONIOENCODING")


def checks(terminal: Terminal, environ: Mapping[str, str]) -> Iterator[Check]:
    """Examine size, colours and characters."""
    streams = {"stdin": terminal.stdin, "stdout": terminal.stdout, "stderr": terminal.stderr}
    others = [name for name, is_one in streams.items() if not is_one]
    size = f"{terminal.width} x {terminal.height}"
    narrow = terminal.stdout and (terminal.width < NARROW or terminal.height < LOW)
    value = f"{size}; no terminal: {', '.join(others)}" if others else size
    facts = {"width": terminal.width, "height": terminal.height, **streams}
    yield Check("terminal", "terminal", value, facts, "narrow" if narrow else None)
    chosen = chosen_of(CHOICES, environ)
    depth = "24 bit" if terminal.depth == "truecolor" else terminal.depth
    fault = None
    if terminal.stdout and not {"NO_COLOR", "FORCE_COLOR"} & set(chosen):
        fault = {"none": "no-colours", "16": "few-colours"}.get(terminal.depth)
    yield Check("colours", "terminal", with_chosen(depth, chosen), {"depth": terminal.depth, **chosen}, fault)
    chosen = chosen_of(LOCALE, environ)
    known = {"encoding": terminal.encoding, "glyphs": terminal.glyphs, **chosen}
    fault = None if terminal.glyphs == "full" else "plain-characters"
    yield Check("characters", "terminal", with_chosen(terminal.encoding, chosen), known, fault)
