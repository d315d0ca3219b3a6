"""What the terminal can show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    chosen = {name: environ[name] for name in CHOICES if environ.get(name)}
    names = {"none": "none", "16": "16", "256": "256", "truecolor": "24 bit"}
    fault = None
    if terminal.stdout and not {"NO_COLOR", "FORCE_COLOR"} & set(chosen):
        fault = {"none": "no-colours", "16": "few-colours"}.get(terminal.depth)
    value = ", ".join([names[terminal.depth], *(f"{name}={text}" for name, text in chosen.items())])
    yield Check("colours", "terminal", value, {"depth": terminal.depth, **chosen}, fault)
    chosen = {name: environ[name] for name in LOCALE if environ.get(name)}
    full = terminal.glyphs == "full"
    value = ", ".join([terminal.encoding, *(f"{name}={text}" for name, text in chosen.items())])
    known = {"encoding": terminal.encoding, "glyphs": terminal.glyphs, **chosen}
    yield Check("characters", "terminal", value, known, None if full else "plain-characters")
