"""What a verification found, a line for each thing."""

from __future__ import annotations

from mhsa_cli.records.verify import Verification
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.table import Column, table, table_width
from mhsa_cli.renderers.kit.text_lines import Lines

WITH_FOLDER = 72  # columns; below, checkpoints are named without their folder, for their step to be seen
FOLDER = "checkpoints/"
LOUD = ("wrong", "unreadable", "other version")


def verification_table(found: Verification, surface: Surface) -> Lines:
    """Draw a row for each check: its name, how it stands, and what was found."""
    columns = [Column("checked", whole=True), Column(""), Column("found", wraps=True)]
    name = (lambda text: text.removeprefix(FOLDER)) if table_width(columns, surface) < WITH_FOLDER else str
    rows = [[name(c.name), c.state.upper() if c.state in LOUD else c.state, c.found] for c in found.checks]
    return table(columns, rows, surface)
