"""Grades of blocks: one as a report, many as a table."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from rich.cells import cell_len
from rich.text import Text

from mhsa_cli.records.check import Grade, Law, NamedFault
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN, alarm_style
from mhsa_cli.renderers.kit.table import Column, table, table_width
from mhsa_cli.renderers.kit.text_lines import INDENT, Lines, Piece, cut, hanging, rows_of, stacked, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed
from mhsa_cli.renderers.pictures import check_words as words
from mhsa_cli.text import escape

Row = tuple[str, Grade]
SIDE_BY_SIDE = 100  # columns; in a narrower table the finding stands under its row
LONGEST = 300  # columns of one finding in a table of many grades


def fitted_grade(grade: Grade, surface: Surface, rows: int) -> Lines:
    """Report one grade in so many rows if possible, so that verdict and next step stay in sight."""
    for brief in (0, 1):
        picture = grade_picture(grade, surface, brief=brief)
        if rows_of(picture, surface.width) <= rows:
            return picture
    return grade_picture(grade, surface, brief=2)


def grade_picture(grade: Grade, surface: Surface, *, brief: int = 0) -> Lines:
    """Report one grade: verdict, faults, how the block is built and called, laws, notes, next step.

    `brief`: 1 only counts the laws that hold or were not tested, 2 also leaves out how the block is built and called.
    """
    width = surface.width
    return stacked(
        [
            _verdict(grade, surface),
            *_faults(grade, width),
            _switches(grade, width),
            _tried(grade, width),
            Lines() if brief > 1 else _detected(grade, surface),
            _mask(grade, surface),
            _laws(grade, surface, brief),
            _notes(grade, width),
            _next(grade, surface),
        ]
    )


def _verdict(grade: Grade, surface: Surface) -> Lines:
    style = BOLD if grade.passed else alarm_style(surface.depth)
    sentence = [(f"{words.opening(grade)}: ", style), (words.verdict_sentence(grade), BOLD)]
    facts = [grade.block, *([f"graded in {fixed(grade.seconds, 1)} s"] if grade.seconds else [])]
    return hanging(sentence, surface.width) + _beside([[(fact, DIM)] for fact in facts], surface)


def _faults(grade: Grade, width: int) -> list[Lines]:
    """Each fault as a paragraph: its title and place, what to write instead, and how it is known."""
    paragraphs = []
    for fault, parts in words.fault_parts(grade):
        title = [("remark: " if fault.edge else "", DIM), (fault.title, BOLD), (words.place_words(fault), PLAIN)]
        lines = hanging(title, width)
        for label, text in parts:
            lines += hanging([(f"{label}: " if label else "", DIM), (text, PLAIN)], width, indent=INDENT)
        paragraphs.append(lines)
    match = words.match_of_all(grade)
    return [*paragraphs, hanging(match, width)] if match else paragraphs


def _switches(grade: Grade, width: int) -> Lines:
    positions = words.positions(grade)
    return hanging([("switches: ", DIM), (positions, PLAIN)], width) if positions else Lines()


def _tried(grade: Grade, width: int) -> Lines:
    """List the failed attempts, unless the only one is the verdict."""
    if not grade.tried or (grade.verdict == "uncallable" and len(grade.tried) == 1):
        return Lines()
    tried = [line for text in words.attempts(grade) for line in hanging(text, width, indent=INDENT)]
    return hanging("tried", width, DIM) + tried


def _detected(grade: Grade, surface: Surface) -> Lines:
    columns: list[Column[tuple[str, str]]] = [
        Column("detected", itemgetter(0), wraps=True),
        Column("", lambda pair: words.on_one_line(pair[1]), wraps=True),
    ]
    return table(columns, list(grade.detected.items()), surface) if grade.detected else Lines()


def _mask(grade: Grade, surface: Surface) -> Lines:
    """The measured mask: a row for each query, a column for each key."""
    rows = hanging(words.MASK_LEGEND, surface.width, DIM) if grade.mask else Lines()
    return rows + [Text(INDENT + cut(" ".join(row), surface.width - len(INDENT))) for row in grade.mask]


def _laws(grade: Grade, surface: Surface, brief: int) -> Lines:
    """The laws, failed ones first, with the finding under each of those."""
    laws = words.by_state(grade)
    listed = [law for law in laws if not (brief and words.state_of(law, grade) in words.PLAIN_STATES)]
    rest = hanging(words.unlisted(grade, listed, brief > 1), surface.width, DIM) if len(listed) < len(laws) else Lines()
    columns: list[Column[Law]] = [
        Column("law", lambda law: law.title, wraps=True),
        Column("result", lambda law: words.law_state(law, grade)),
        Column("max diff", words.difference, "right", drop=1),
    ]
    return (table(columns, listed, surface, under=words.law_finding) if listed else Lines()) + rest


def _notes(grade: Grade, width: int) -> Lines:
    """The notes, without one that is the verdict."""
    notes = grade.notes[1:] if grade.verdict == "uncallable" and not grade.tried else grade.notes
    pieces: list[list[Piece]] = [[("note: ", DIM), (words.on_one_line(note.text), PLAIN)] for note in notes]
    return Lines(line for note in pieces for line in hanging(note, width))


def _next(grade: Grade, surface: Surface) -> Lines:
    """The next step; a command that does not fit beside its purpose gets a line of its own."""
    purpose, command = words.next_step(grade)
    return _beside([[(f"{purpose}:", DIM)], [(command, PLAIN)]], surface, gap=1) if command else Lines()


def _beside(phrases: Sequence[Sequence[Piece]], surface: Surface, gap: int = 3) -> Lines:
    """Set phrases side by side if they fit; in a pipe a long one stays on one line, to be copied."""
    longest = max(cell_len(escape(text)) for phrase in phrases for text, _ in phrase)
    return wrap_phrases(phrases, surface.width if surface.bounded else max(surface.width, longest), gap=gap)


def grades_table(grades: Sequence[Grade], surface: Surface) -> Lines:
    """A row for each block: its verdict, place, faults and remarks; then how many have which verdict and fault."""
    names, shared = words.names_of(grades)

    def faults(row: Row) -> str:
        return cut(words.finding(row[1]), LONGEST, surface.glyphs.cut_text)

    def remarks(row: Row) -> str:
        return cut("; ".join(words.remarks(row[1])), LONGEST, surface.glyphs.cut_text)

    def both(row: Row) -> str:
        remark = f"remark: {remarks(row)}" if remarks(row) and not row[1].failure else remarks(row)
        return "; ".join(filter(None, (faults(row), remark)))

    columns: list[Column[Row]] = [
        Column("block", itemgetter(0), whole=True),
        Column("verdict", lambda row: words.verdict_word(row[1])),
        Column("where", lambda row: words.on_one_line(words.place(row[1])), whole=True, drop=1),
    ]
    texts: list[Column[Row]] = [Column("faults", faults, wraps=True), Column("remarks", remarks, wraps=True)]
    rows = list(zip(names, grades, strict=True))
    if table_width(columns, surface) >= SIDE_BY_SIDE:
        picture = table([*columns, *texts], rows, surface)
    else:
        picture = table(columns, rows, surface, under=both) if rows else Lines()
    heading = hanging(shared, surface.width, DIM) if shared else Lines()
    return stacked(
        [heading + picture + hanging(words.summary(grades), surface.width, BOLD), _by_fault(grades, surface)]
    )


def _by_fault(grades: Sequence[Grade], surface: Surface) -> Lines:
    """How many blocks have each fault, the most frequent first."""
    columns: list[Column[tuple[NamedFault, list[Grade]]]] = [
        Column("fault", lambda pair: pair[0].title, wraps=True),
        Column("blocks", lambda pair: f"{len(pair[1]):,}", "right"),
    ]
    counted = words.by_fault(grades)
    return table(columns, counted, surface) if counted else Lines()
