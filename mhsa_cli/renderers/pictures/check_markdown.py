"""Grades as Markdown; the user's text cannot break a table or close a tag."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from mhsa_cli.records.check import Grade, NamedFault
from mhsa_cli.renderers.pictures import check_words as words
from mhsa_cli.text import escape, plural

# An underscore within a word is no emphasis, so d_model stays as it is. `$` may start a formula.
_SPECIAL = re.compile(r"[\\`*\[\]|~$#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def escaped(text: str) -> str:
    """Write any text so that Markdown shows it literally, on one line."""
    return html.escape(_SPECIAL.sub(r"\\\g<0>", escape(words.on_one_line(text))), quote=False)


def grade_markdown(grade: Grade) -> str:
    """Write one grade as a section: verdict, faults, how the block is built and called, laws, notes."""
    laws = [
        [law.title, words.law_state(law), words.difference(law), words.law_finding(law)]
        for law in words.by_state(grade.laws)
    ]
    blocks = [
        f"## {escaped(grade.block)}",
        f"**{words.opening(grade)}**: {escaped(words.verdict_sentence(grade))}",
        *_faults(grade),
        _table(["tried"], [[attempt.text] for attempt in grade.tried]) if len(grade.tried) > 1 else "",
        _table(["detected", "how"], list(grade.detected.items())),
        _table(["law", "result", "max diff", "finding"], laws),
        *(f"Note: {escaped(note.text)}" for note in grade.notes),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def grades_markdown(grades: Sequence[Grade]) -> str:
    """Write many grades: a summary, a row for each block, and every fault with the blocks that have it."""
    names, shared = words.short_names([grade.block for grade in grades])
    rows = [
        [name, words.VERDICTS[grade.verdict], words.place(grade), words.finding(grade)]
        for name, grade in zip(names, grades, strict=True)
    ]
    blocks = [
        "# Grades",
        f"{escaped(words.summary(grades))}.",
        escaped(shared) + ":" if shared else "",
        _table(["block", "verdict", "where", "finding"], rows),
        "## Faults" if any(grade.faults for grade in grades) else "",
        *_all_faults(grades, names),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _faults(grade: Grade) -> list[str]:
    """Explain each fault under a heading of its own."""
    blocks = []
    for fault, parts in words.fault_parts(grade):
        blocks.append(f"### {escaped(fault.title)}")
        blocks.append(f"Most likely at {escaped(fault.place)}." if fault.place else "")
        for number, (label, text) in enumerate(parts):
            blocks.append(f"{label.capitalize() or ('Known by' if number else 'Found')}: {escaped(text)}")
    return [*blocks, escaped(words.match_of_all(grade))]


def _all_faults(grades: Sequence[Grade], names: Sequence[str]) -> list[str]:
    """Explain each fault once, the most frequent first, and list the blocks that have it."""
    faults: dict[str, NamedFault] = {}
    owners: dict[str, list[str]] = {}
    for grade, name in zip(grades, names, strict=True):
        for fault in grade.faults:
            faults.setdefault(fault.id, fault)
            owners.setdefault(fault.id, []).append(f"{name} ({fault.place})" if fault.place else name)
    blocks = []
    for key in sorted(faults, key=lambda key: -len(owners[key])):
        blocks.append(f"### {escaped(faults[key].title)}")
        blocks.append(f"Found: {escaped(faults[key].explanation)}")
        blocks.append(f"Instead: {escaped(faults[key].instead)}" if faults[key].instead else "")
        blocks.append(f"In {plural(len(owners[key]), 'block')}: {escaped(', '.join(owners[key]))}")
    return blocks


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table; "" without rows."""
    lines = [headings, ["---"] * len(headings), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) if rows else ""
