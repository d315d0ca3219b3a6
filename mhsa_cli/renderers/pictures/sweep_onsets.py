"""When the heads of a sweep's models formed: medians with their intervals, as a table and on one scale of steps."""

from __future__ import annotations

import math
from functools import partial

from mhsa_cli.records.sweep import FormedStats, GroupStats, Median, SweepReport
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.glyphs import Glyphs
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.kit.ticks import step_text
from mhsa_cli.renderers.pictures.sweep_figures import bounded, steps_text
from mhsa_cli.renderers.pictures.sweep_words import formed_words, short_names

FormedRow = tuple[GroupStats, FormedStats, bool]  # True: the first of its group
SCALE = 24  # cells of the scale of steps


def onsets_table(report: SweepReport, surface: Surface, *, drawn: bool = False) -> Lines:
    """Draw when the heads of each group formed, and how many models have them; `drawn`: on a scale of steps as well."""
    rows = [(group, one, i == 0) for group in report.groups for i, one in enumerate(group.formed)]
    if not rows:
        return Lines()
    dash, names = surface.glyphs.dash, short_names(report)
    ends = [end for _, one, _ in rows for end in (one.step.estimate, one.step.high) if end is not None]
    last = max(1, *(group.watched for group, _, _ in rows), *map(math.ceil, filter(math.isfinite, ends)))

    def override(key: str, row: FormedRow) -> str:
        return row[0].overrides.get(key, "") if row[2] else ""

    def scale(row: FormedRow) -> str:
        return _on_scale(row[1].step, last, surface.glyphs) if row[1].step.n else ""

    columns: list[Column[FormedRow]] = [
        *(Column(title, partial(override, key), "right", whole=True) for key, title in names.items()),
        Column("over training", lambda row: formed_words(row[1]), wraps=True),
        Column("seeds", lambda row: f"{row[1].models}/{row[1].of}", "right"),
        Column(
            "step",
            lambda row: steps_text(row[1].step, row[0].watched, dash) if row[1].step.n else "",
            "right",
            legend=bounded("step: median", (one.step for _, one, _ in rows))
            + ", of a label the onset of its first head in each model",
        ),
        Column(f"steps 0{dash}{step_text(last)}", scale, drop=1, when=drawn),
    ]
    return table(columns, rows, surface)


def _on_scale(found: Median, last: int, glyphs: Glyphs) -> str:
    """Draw a median and its interval from 0 to the step `last`."""
    cells = [" "] * SCALE

    def place(step: float) -> int:
        return round(min(max(step / last, 0.0), 1.0) * (SCALE - 1))

    if found.low is not None:
        high = math.inf if found.high is None else found.high
        for cell in range(place(found.low), place(high) + 1):
            cells[cell] = glyphs.horizontal
    if found.estimate is not None and math.isfinite(found.estimate):
        cells[place(found.estimate)] = glyphs.point
    return "".join(cells).rstrip()
