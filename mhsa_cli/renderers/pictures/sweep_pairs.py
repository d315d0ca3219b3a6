"""The comparisons of neighbouring settings of a sweep, one a row."""

from __future__ import annotations

import math
from collections.abc import Callable

from mhsa_cli.records.claims import Status
from mhsa_cli.records.sweep import Median, PairStats, SweepReport
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.kit.ticks import short, step_text
from mhsa_cli.renderers.pictures.sweep_figures import bounded, loss_text, steps_text
from mhsa_cli.renderers.pictures.sweep_words import goal_text, short_names

FOUND = {
    Status.SHOWN: "higher",
    Status.OPPOSITE: "lower",
    Status.NOT_SHOWN: "none",
    Status.NOT_MEASURED: "not compared",
}
DIFFERENCE = "difference: second minus first, median over paired seeds"
CORRECTED = "p: over all comparisons (Holm)"
NO_BOUND = "no bound"  # for an end of an interval that the seeds do not bound


def pairs_table(report: SweepReport, surface: Surface) -> Lines:
    """Draw every comparison of two neighbouring groups: both figures, their difference, and what it shows."""
    dash, names = surface.glyphs.dash, short_names(report)
    titles = {"steps": f"steps to {goal_text(report)}", "loss": "final loss", "success": "success"}

    before = [None, *report.pairs]
    first_of = {id(pair) for last, pair in zip(before, report.pairs, strict=False) if _cells(last) != _cells(pair)}

    def compared(pair: PairStats) -> str:
        if id(pair) not in first_of:
            return ""
        first, second = report.groups[pair.first].overrides, report.groups[pair.second].overrides
        at = ", ".join(f"{names[key]}={text}" for key, text in first.items() if key != pair.key)
        return f"{names[pair.key]} {first[pair.key]} vs. {second[pair.key]}{f' at {at}' if at else ''}"

    def figure(cell: int, pair: PairStats) -> str:
        group = report.groups[cell]
        if pair.measure == "success":
            return f"{group.k}/{group.n}"
        if not group.n:
            return ""
        middle = group.steps_to_goal if pair.measure == "steps" else group.final_loss
        alone = Median(middle.estimate, None, None, middle.n)
        return steps_text(alone, group.watched, dash) if pair.measure == "steps" else loss_text(alone, dash)

    differences = [pair.difference for pair in report.pairs]
    columns: list[Column[PairStats]] = [
        Column("settings", compared, wraps=True),
        Column("measure", lambda pair: titles[pair.measure]),
        Column("first", lambda pair: figure(pair.first, pair), "right", drop=2, legend="first, second: medians"),
        Column("second", lambda pair: figure(pair.second, pair), "right", drop=2),
        Column("difference", lambda pair: _difference(pair), "right", drop=1, legend=bounded(DIFFERENCE, differences)),
        Column(
            "p",
            lambda pair: "" if pair.status is Status.NOT_MEASURED else _p(pair.adjusted),
            "right",
            drop=1,
            legend=CORRECTED,
        ),
        Column("shown", lambda pair: FOUND[pair.status], legend="shown: whether the second is higher or lower"),
    ]
    return table(columns, report.pairs, surface)


def _cells(pair: PairStats | None) -> tuple[int, int, str] | None:
    return None if pair is None else (pair.first, pair.second, pair.key)


def _difference(pair: PairStats) -> str:
    """Write the median of the paired differences and its interval; nothing for shares, which are not paired."""
    found = pair.difference
    if found is None or all(end is None or math.isinf(end) for end in (found.estimate, found.low, found.high)):
        return ""
    write = _steps if pair.measure == "steps" else short
    middle, low, high = (
        None if end is None else _signed(end, write) for end in (found.estimate, found.low, found.high)
    )
    return (middle or "?") if low is None or high is None else f"{middle or '?'} ({low} to {high})"


def _signed(value: float, write: Callable[[float], str]) -> str:
    if math.isinf(value):
        return NO_BOUND
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{write(abs(value))}"


def _steps(value: float) -> str:
    return step_text(round(value))


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "<0.001"
