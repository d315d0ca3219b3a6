"""Grades of attention that somebody wrote: one as a report, many as a table; as Markdown in the file beside this."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from mhsa_cli.records.check import Grade
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN, alarm_style
from mhsa_cli.renderers.kit.table import INDENT, Column, table, table_width
from mhsa_cli.renderers.kit.text_lines import Lines, Piece, cut, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, short
from mhsa_cli.renderers.pictures import check_words as words
from mhsa_cli.renderers.pictures.check_markdown import grade_markdown, grades_markdown
from mhsa_cli.renderers.pictures.compare import comparison
from mhsa_cli.text import escape

__all__ = ["grade_markdown", "grade_picture", "grades_markdown", "grades_table"]

SIDE_BY_SIDE = 100  # columns; below, what was found stands under its row
LONGEST = 300  # columns of one finding in a table of many grades


def grade_picture(grade: Grade, surface: Surface) -> Lines:
    """Report one grade: verdict, faults, how it was called, laws, notes, next step."""
    parts = [
        _verdict(grade, surface),
        *_faults(grade, surface.width),
        _tried(grade, surface.width),
        _found(grade, surface),
        _laws(grade, surface),
        _notes(grade, surface.width),
        _next(grade, surface),
    ]
    return comparison([part for part in parts if part])


def _verdict(grade: Grade, surface: Surface) -> Lines:
    """Say the verdict in one sentence, and whose it is."""
    style = BOLD if grade.passed else alarm_style(surface.depth)
    lines = _hanging([(f"{words.opening(grade)}: ", style), (words.verdict_sentence(grade), BOLD)], surface.width)
    facts = [[(escape(grade.target), DIM)], [(f"graded in {fixed(grade.seconds, 1)} s", DIM)] if grade.seconds else []]
    return Lines([*lines, *_beside([fact for fact in facts if fact], surface)])


def _faults(grade: Grade, width: int) -> list[Lines]:
    """Set each fault in a block of its own: its name, where it is, what to write instead, and how it is known."""
    blocks = []
    for fault, parts in words.fault_parts(grade):
        place = f": most likely at {fault.place}" if fault.place else ""
        lines = _hanging([(fault.title, BOLD), (place, PLAIN)], width)
        for label, text in parts:
            lines += _hanging([(f"{label}: " if label else "", DIM), (text, PLAIN)], width, INDENT)
        blocks.append(Lines(lines))
    together = words.match_of_all(grade)
    return [*blocks, Lines(_hanging([(together, PLAIN)], width))] if together else blocks


def _tried(grade: Grade, width: int) -> Lines:
    """List the ways that were tried, unless the only one is the verdict."""
    if grade.verdict == "uncallable" and len(grade.tried) == 1:
        return Lines()
    tries = [
        line for tried in grade.tried for line in _hanging([(words.on_one_line(tried.text), PLAIN)], width, INDENT)
    ]
    return Lines([*_hanging([("tried", DIM)], width), *tries] if tries else [])


def _found(grade: Grade, surface: Surface) -> Lines:
    """Say how it is built and called."""
    if not grade.found:
        return Lines()
    rows = [[name, words.on_one_line(value)] for name, value in grade.found.items()]
    return table([Column("found", flexible=True), Column("", wraps=True)], rows, surface)


def _laws(grade: Grade, surface: Surface) -> Lines:
    """Set the laws, those that fail first, and under each of those what was seen."""
    if not grade.laws:
        return Lines()
    laws = words.by_state(grade.laws)
    rows = [[law.name, words.law_state(law), "" if law.worst is None else short(law.worst)] for law in laws]
    columns = [Column("law", wraps=True), Column("result"), Column("worst", "right", drop=1)]
    under = {number: words.law_found(law) for number, law in enumerate(laws)}
    return table(columns, rows, surface, under=under)


def _notes(grade: Grade, width: int) -> Lines:
    """Set the notes, without the one that is the verdict."""
    notes = grade.notes[1:] if grade.verdict == "uncallable" and not grade.tried else grade.notes
    lines: list[Text] = []
    for note in notes:
        lines += _hanging([("note: ", DIM), (words.on_one_line(note.text), PLAIN)], width)
    return Lines(lines)


def _next(grade: Grade, surface: Surface) -> Lines:
    """Say what to do next; a command that does not fit beside its purpose stands on a line of its own."""
    purpose, command = words.next_step(grade)
    return Lines(_beside([[(f"{purpose}:", DIM)], [(escape(command), PLAIN)]], surface, 1) if command else [])


def _beside(phrases: Sequence[Sequence[Piece]], surface: Surface, gap: int = 3) -> list[Text]:
    """Set phrases side by side where there is room; in a pipe one that is too long stays whole, to be typed again."""
    longest = max(sum(cell_len(text) for text, _ in phrase) for phrase in phrases)
    return wrap_phrases(phrases, surface.width if surface.bounded else max(surface.width, longest), gap=gap)


def _hanging(pieces: Sequence[Piece], width: int, indent: str = "") -> list[Text]:
    """Set a sentence, all of it indented, and its later lines more."""
    clean = [(escape(text), style) for text, style in pieces if text]
    first, *rest = wrap_phrases([clean], width - len(indent) - len(INDENT)) if clean else [Text()]
    return [Text(indent) + first, *(Text(indent + INDENT) + line for line in rest)]


def grades_table(grades: Sequence[Grade], surface: Surface) -> Lines:
    """Set a row a submission: its verdict, where, and what was found; then a summary."""
    names, shared = words.short_names([grade.target for grade in grades])
    columns = [
        Column("submission", whole=True),
        Column("verdict"),
        Column("where", whole=True, drop=1),
    ]
    beside = table_width(columns, surface) >= SIDE_BY_SIDE
    findings = [cut(words.finding(grade), LONGEST, surface.glyphs.cut_text) for grade in grades]
    rows = [
        [name, words.VERDICTS[grade.verdict], words.on_one_line(words.place(grade))]
        for name, grade in zip(names, grades, strict=True)
    ]
    lines = Lines(_hanging([(shared, DIM)], surface.width)) if shared else Lines()
    if beside:
        columns.append(Column("found", wraps=True))
        rows = [[*row, finding] for row, finding in zip(rows, findings, strict=True)]
        lines += table(columns, rows, surface)
    elif rows:
        lines += table(columns, rows, surface, under=dict(enumerate(findings)))
    return lines + Lines(_hanging([(words.summary(grades), BOLD)], surface.width))
