"""Grades as Markdown, for those who teach: what a student wrote can break no table and close no tag."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from mhsa_cli.records.check import Grade, NamedFault
from mhsa_cli.renderers.kit.ticks import short
from mhsa_cli.renderers.pictures import check_words as words
from mhsa_cli.text import escape, plural

# An underscore within a word is no emphasis: d_model stays as it is. `$` begins a formula where Markdown knows them.
_SPECIAL = re.compile(r"[\\`*\[\]|~$#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def escaped(text: str) -> str:
    """Write any text so that Markdown shows it as it is, on one line."""
    return html.escape(_SPECIAL.sub(r"\\\g<0>", escape(words.on_one_line(text))), quote=False)


def grade_markdown(grade: Grade) -> str:
    """Write one grade as a section: its verdict, its faults, how it is called, its laws, notes."""
    blocks = [
        f"## {escaped(grade.block)}",
        f"**{words.opening(grade)}**: {escaped(words.verdict_sentence(grade))}",
        *_faults(grade),
        _table(["tried"], [[tried.text] for tried in grade.tried]) if len(grade.tried) > 1 else "",
        _table(["found", "how"], list(grade.found.items())),
        _table(["law", "result", "worst", "seen"], _laws(grade)),
        *(f"Note: {escaped(note.text)}" for note in grade.notes),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def grades_markdown(grades: Sequence[Grade]) -> str:
    """Write many grades: a summary, a row each, and every fault that was met with those who have it."""
    names, shared = words.short_names([grade.block for grade in grades])
    rows = [
        [name, words.VERDICTS[grade.verdict], words.place(grade), words.finding(grade)]
        for name, grade in zip(names, grades, strict=True)
    ]
    blocks = [
        "# Grades",
        f"{escaped(words.summary(grades))}.",
        escaped(shared) + ":" if shared else "",
        _table(["submission", "verdict", "where", "found"], rows),
        "## Faults" if any(grade.faults for grade in grades) else "",
        *_met(grades, names),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _faults(grade: Grade) -> list[str]:
    """Explain each fault under a heading of its own, and say how closely all of them together were found."""
    blocks = []
    for fault, parts in words.fault_parts(grade):
        blocks.append(f"### {escaped(fault.title)}")
        blocks.append(f"Most likely at {escaped(fault.place)}." if fault.place else "")
        for number, (label, text) in enumerate(parts):
            blocks.append(f"{label.capitalize() or ('Known by' if number else 'Found')}: {escaped(text)}")
    return [*blocks, escaped(words.match_of_all(grade))]


def _laws(grade: Grade) -> list[list[str]]:
    return [
        [law.name, words.law_state(law), "" if law.worst is None else short(law.worst), words.law_found(law)]
        for law in words.by_state(grade.laws)
    ]


def _met(grades: Sequence[Grade], names: Sequence[str]) -> list[str]:
    """Explain each fault once, the most frequent first, and list who has it."""
    faults: dict[str, NamedFault] = {}
    owners: dict[str, list[str]] = {}
    for grade, name in zip(grades, names, strict=True):
        for fault in grade.faults:
            faults.setdefault(fault.name, fault)
            owners.setdefault(fault.name, []).append(f"{name} ({fault.place})" if fault.place else name)
    blocks = []
    for key in sorted(faults, key=lambda key: -len(owners[key])):
        blocks.append(f"### {escaped(faults[key].title)}")
        blocks.append(f"Found: {escaped(faults[key].explanation)}")
        blocks.append(f"Instead: {escaped(faults[key].instead)}" if faults[key].instead else "")
        blocks.append(f"In {plural(len(owners[key]), 'submission')}: {escaped(', '.join(owners[key]))}")
    return blocks


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table; nothing without rows."""
    lines = [headings, ["---"] * len(headings), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) if rows else ""
