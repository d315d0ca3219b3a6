"""The table of faults, in the order in which it is printed. A new kind is a file in rows/ and a line here."""

from __future__ import annotations

from tests.faults.row import Row
from tests.faults.rows import owners, resume, signals

ROWS: dict[str, Row] = {
    "resume": resume.ROW,
    "owners": owners.ROW,
    "signals": signals.ROW,
}
