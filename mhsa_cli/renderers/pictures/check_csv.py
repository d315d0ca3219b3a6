"""Grades as a table for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from mhsa_cli.records.check import Grade
from mhsa_cli.renderers.pictures import check_words as words
from mhsa_cli.text import escape

COLUMNS = ("block", "verdict", "faults", "lines", "remarks", "seconds")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs a cell that starts with one of these


def grades_csv(grades: Sequence[Grade]) -> str:
    """Write a row for each block: its verdict, the ids of its faults and their lines, and what does not make it wrong.

    Several faults are separated by "; ", and their lines likewise, so that the second line is that of the second fault.
    """
    rows = [
        [
            grade.block,
            words.verdict_word(grade).lower(),
            "; ".join(fault.id for fault in words.faults_of(grade)),
            "; ".join(fault.place for fault in words.faults_of(grade)),
            "; ".join(words.remarks(grade)),
            f"{grade.seconds:.1f}",
        ]
        for grade in grades
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *([_cell(cell) for cell in row] for row in rows)])
    return text.getvalue()


def _cell(text: str) -> str:
    """Write a text so that a spreadsheet shows it and does not run it: a leading apostrophe makes it a text."""
    shown = escape(words.on_one_line(text))
    return f"'{shown}" if shown.startswith(FORMULA) else shown
