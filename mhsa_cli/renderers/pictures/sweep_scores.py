"""The table of the user's own scores in a sweep: the range over a model's heads, as a median over the seeds."""

from __future__ import annotations

from functools import partial

from mhsa_cli.records.sweep import GroupStats, Median, OwnStats, SweepReport
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.pictures.own_scores import number_text
from mhsa_cli.renderers.pictures.sweep_figures import bounded
from mhsa_cli.renderers.pictures.sweep_words import short_names

Row = tuple[GroupStats, OwnStats, bool]  # True: the first of its group


def own_scores_table(report: SweepReport, surface: Surface) -> Lines:
    """Draw a row for each setting and score; nothing where the sweep keeps no score."""
    rows = [(group, one, i == 0) for group in report.groups for i, one in enumerate(group.own_scores)]
    if not rows:
        return Lines()

    def override(key: str, row: Row) -> str:
        return row[0].overrides.get(key, "") if row[2] else ""

    def end(name: str, row: Row) -> str:
        found: Median = getattr(row[1], name)
        middle = "?" if found.estimate is None else number_text(found.estimate)
        if found.low is None or found.high is None or found.low == found.high:
            return middle
        return f"{middle} ({number_text(found.low)}{surface.glyphs.dash}{number_text(found.high)})"

    def untrained(row: Row) -> str:
        return "" if row[1].null is None else f"{number_text(row[1].null_low)} to {number_text(row[1].null)}"

    columns: list[Column[Row]] = [
        *(Column(title, partial(override, key), "right", whole=True) for key, title in short_names(report).items()),
        Column("own score", lambda row: row[1].name, whole=True),
        Column("largest", partial(end, "largest"), "right", legend="largest, smallest: of a model's heads"),
        Column("smallest", partial(end, "smallest"), "right", drop=3),
        Column(
            "uniform", lambda row: number_text(row[1].uniform), "right", drop=2, legend="uniform: of a uniform head"
        ),
        Column("untrained", untrained, "right", drop=1, legend="untrained: 1st to 99th percentile of untrained heads"),
    ]
    return table(
        columns,
        rows,
        surface,
        notes=[bounded("median over the seeds", (end for _, one, _ in rows for end in (one.largest, one.smallest)))],
    )
