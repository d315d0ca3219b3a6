"""Grades as Markdown; the user's text cannot break a table or close a tag."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from mhsa_cli.records.check import Grade
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
        [law.title, words.law_state(law, grade), words.difference(law), words.law_finding(law)]
        for law in words.by_state(grade)
    ]
    blocks = [
        f"## {escaped(grade.block)}",
        f"**{words.opening(grade)}**: {escaped(words.verdict_sentence(grade))}",
        *_faults(grade),
        f"Switches: {escaped(positions)}." if (positions := words.positions(grade)) else "",
        _table(["tried"], [[attempt] for attempt in words.attempts(grade)]) if len(grade.tried) > 1 else "",
        _table(["detected", "how"], list(grade.detected.items())),
        *_mask(grade),
        _table(["law", "result", "max diff", "finding"], laws),
        *(f"Note: {escaped(note.text)}" for note in grade.notes),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def grades_markdown(grades: Sequence[Grade]) -> str:
    """Write many grades: a summary, a row for each block, and every fault with the blocks that have it."""
    names, shared = words.names_of(grades)
    rows = [
        [name, words.verdict_word(grade), words.place(grade), words.finding(grade), "; ".join(words.remarks(grade))]
        for name, grade in zip(names, grades, strict=True)
    ]
    blocks = [
        "# Grades",
        f"{escaped(words.summary(grades))}.",
        escaped(shared) + ":" if shared else "",
        _table(["block", "verdict", "where", "faults", "remarks"], rows),
        "## Faults" if any(map(words.faults_of, grades)) else "",
        *_all_faults(grades, names),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _faults(grade: Grade) -> list[str]:
    """Explain each fault under a heading of its own."""
    blocks = []
    for fault, parts in words.fault_parts(grade):
        blocks.append(f"### {'Remark: ' if fault.edge else ''}{escaped(fault.title)}")
        where = words.place_words(fault).removeprefix(": ").strip()
        blocks.append(f"{escaped(where[:1].upper() + where[1:])}." if where else "")
        for number, (label, text) in enumerate(parts):
            blocks.append(f"{label.capitalize() or ('Known by' if number else 'Found')}: {escaped(text)}")
    return [*blocks, escaped(words.match_of_all(grade))]


def _mask(grade: Grade) -> list[str]:
    """Draw the measured mask as a block of code."""
    rows = "\n".join(f"    {' '.join(escape(row))}" for row in grade.mask)
    return [f"{escaped(words.MASK_LEGEND)}:", rows] if grade.mask else []


def _all_faults(grades: Sequence[Grade], names: Sequence[str]) -> list[str]:
    """Count each fault, then explain it once, the most frequent first, and list the blocks that have it."""
    counted = words.by_fault(grades)
    name_of = {id(grade): name for grade, name in zip(grades, names, strict=True)}
    blocks = [_table(["fault", "blocks"], [[fault.title, f"{len(owners):,}"] for fault, owners in counted])]
    for fault, owners in counted:
        places = {id(grade): next((one.place for one in grade.faults if one.id == fault.id), "") for grade in owners}
        who = [name_of[key] + (f" ({place})" if place else "") for key, place in places.items()]
        blocks.append(f"### {escaped(fault.title)}")
        blocks.append(f"Found: {escaped(fault.explanation)}")
        blocks.append(f"Instead: {escaped(fault.instead)}" if fault.instead else "")
        blocks.append(f"In {plural(len(owners), 'block')}: {escaped(', '.join(who))}")
    return blocks


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table; "" without rows."""
    lines = [headings, ["---"] * len(headings), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) if rows else ""
