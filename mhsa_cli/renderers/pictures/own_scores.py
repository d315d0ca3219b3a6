"""The table of the user's own scores: every head's value, a uniform head's, and those of untrained heads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mhsa_cli.records.heads import HeadScore, OwnFigure
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.kit.ticks import fixed, short

UNIFORM, UNTRAINED = "uniform", "untrained"  # the rows below the heads


def own_score_table(heads: Sequence[HeadScore], names: Sequence[str], surface: Surface) -> Lines:
    """Draw a row for each head and a column for each of the scores `names`, with what chance gives below."""

    def cell(name: str, row: HeadScore | str) -> str:
        found = (heads[0] if isinstance(row, str) else row).own_scores.get(name)
        if found is None:
            return ""
        if row == UNIFORM:
            return number_text(found.uniform)
        if row == UNTRAINED:
            return "" if found.null is None else f"{number_text(found.null_low)} to {number_text(found.null)}"
        return "not measured" if found.value is None else value_text(found)

    first = {name: heads[0].own_scores[name] for name in names if name in heads[0].own_scores}
    columns: list[Column[HeadScore | str]] = [
        Column("head", lambda row: row if isinstance(row, str) else row.name, whole=True),
        *(Column(name, partial(cell, name), drop=place) for place, name in enumerate(names)),
    ]
    targets = [name for name, found in first.items() if found.lift is not None]
    notes = [f"{', '.join(targets)}: mean weight on the target"] if targets else []
    notes += ["+-: standard error over the rows", f"{UNIFORM}: of a uniform head"]
    rows: list[HeadScore | str] = [*heads, UNIFORM]
    if any(found.null is not None for found in first.values()):
        rows.append(UNTRAINED)
        notes.append(f"{UNTRAINED}: 1st to 99th percentile of untrained heads")
    return table(columns, rows, surface, notes=notes)


def kept_names(heads: Sequence[HeadScore]) -> list[str]:
    """List the scores that heads have."""
    return list(dict.fromkeys(name for head in heads for name in head.own_scores))


def value_text(found: OwnFigure) -> str:
    """Write a value and its standard error."""
    value, se = number_text(found.value), found.se or 0.0
    error = fixed(se, max(1, len(value.partition(".")[2])))
    return f"{value} +- {number_text(se) if float(error) == 0 else error}"


def number_text(value: float | None) -> str:
    """Write a number of any size, in a few digits."""
    if value is None or value == 0 or 1e-3 <= abs(value) < 10:
        return fixed(value, 3)
    return fixed(value, 1) if 1 <= abs(value) < 1e4 else short(value)
