"""Checks of a verification as a table."""

from __future__ import annotations

from mhsa_cli.records.verify import Check, Verification
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines

WITH_FOLDER = 72  # columns; below, checkpoints are named without their folder
FOLDER = "checkpoints/"
LOUD = ("wrong", "unreadable", "other version")


def verification_table(found: Verification, surface: Surface) -> Lines:
    """Draw a row for each check: its name, its state, and what was found."""
    narrow = surface.bounded and surface.width < WITH_FOLDER
    columns: list[Column[Check]] = [
        Column("checked", lambda c: c.name.removeprefix(FOLDER) if narrow else c.name, whole=True),
        Column("state", lambda c: c.state.upper() if c.state in LOUD else c.state),
        Column("found", lambda c: c.found, wraps=True),
    ]
    return table(columns, found.checks, surface)
