"""A sweep: bands of the loss, and for each setting success, steps, loss and onsets with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mhsa_cli.records.sweep import GroupStats, Measure, Median, PairStats, SweepReport, TrialResult
from mhsa_cli.renderers.figures.curve import bands_plot
from mhsa_cli.renderers.figures.rows import Row, rows_of
from mhsa_cli.renderers.figures.sheet import Draw, PaperFigure, compose
from mhsa_cli.renderers.figures.sheet_options import Page
from mhsa_cli.renderers.pictures.small_multiples import Curve
from mhsa_cli.renderers.pictures.sweep_labels import share_words
from mhsa_cli.renderers.pictures.sweep_words import formed_words, goal_text, group_name, short_names


def sweep_figure(report: SweepReport, curves: Mapping[int, Curve], page: Page) -> PaperFigure:
    """Draw the bands of all settings, and below them rows of success, steps to the goal, final loss and onsets."""
    return compose(
        page,
        {
            "curve": (lambda sheet: bands_plot(sheet, list(curves.values()))) if curves else None,
            "success": _success(report),
            "steps": _steps(report),
            "loss": _loss(report),
            "onsets": onsets_of(report),
        },
    )


def onsets_figure(report: SweepReport, page: Page) -> PaperFigure:
    """Draw when the heads of each setting formed."""
    return compose(page, {"onsets": onsets_of(report)})


def shares_figure(report: SweepReport, page: Page) -> PaperFigure:
    """Draw how many models of each setting have a head with each label."""
    rows = [
        Row(_join(report, group, share_words(share)), share.models / share.of, *share.wilson95, color=cell)
        for cell, group in enumerate(report.groups)
        for share in group.shares
        if share.of
    ]
    return compose(page, {"shares": rows_of(rows, "share of seeds (95% CI)", share=True)})


def pairs_figure(report: SweepReport, page: Page) -> PaperFigure:
    """Draw the differences of neighbouring settings, second minus first, with their intervals."""
    return compose(
        page,
        {
            "steps": _pairs(report, "steps", f"difference in steps to {goal_text(report)} (95% CI)"),
            "loss": _pairs(report, "loss", "difference in final loss, nats (95% CI)"),
        },
    )


def onsets_of(report: SweepReport) -> Draw | None:
    """Return what draws the median onset of the heads of each label, by setting."""
    rows = [
        _row(_join(report, group, formed_words(one)), one.step, (), cell)
        for cell, group in enumerate(report.groups)
        for one in group.formed
    ]
    return rows_of(rows, "onset (step; median, 95% CI)", steps=True, margins="labels")


def _success(report: SweepReport) -> Draw | None:
    rows = [
        Row(group_name(report, group), group.k / group.n, *group.wilson95, color=cell)
        for cell, group in enumerate(report.groups)
        if group.n
    ]
    return rows_of(rows, f"success: ends at {goal_text(report)} or above (95% CI)", share=True)


def _steps(report: SweepReport) -> Draw | None:
    rows = []
    for cell, group in _trained(report):
        steps = [trial.steps_to_goal for trial in _results(report, cell)]
        reached = [float(step) for step in steps if step is not None]
        row = _row(group_name(report, group), group.steps_to_goal, reached, cell)
        rows.append(replace(row, beyond=_counted(len(steps) - len(reached), "not reached")))
    return rows_of(rows, f"steps to {goal_text(report)} (median, 95% CI)", steps=True)


def _loss(report: SweepReport) -> Draw | None:
    rows = []
    for cell, group in _trained(report):
        losses = [trial.final_loss for trial in _results(report, cell)]
        finite = [loss for loss in losses if loss is not None and math.isfinite(loss)]
        row = _row(group_name(report, group), group.final_loss, finite, cell)
        rows.append(replace(row, beyond=_counted(len(losses) - len(finite), "diverged")))
    return rows_of(rows, "final loss (nats; median, 95% CI)", log=True)


def _pairs(report: SweepReport, measure: Measure, axis: str) -> Draw | None:
    names = short_names(report)

    def name(pair: PairStats) -> str:
        first, second = report.groups[pair.first].overrides, report.groups[pair.second].overrides
        at = " ".join(f"{names[key]}={text}" for key, text in first.items() if key != pair.key)
        return f"{names[pair.key]} {second[pair.key]} - {first[pair.key]}{f' at {at}' if at else ''}"

    pairs = [pair for pair in report.pairs if pair.measure == measure and pair.difference is not None]
    rows = [_row(name(pair), pair.difference, (), int(pair.is_shown)) for pair in pairs if pair.difference is not None]
    return rows_of(rows, axis, difference=True)


def _trained(report: SweepReport) -> list[tuple[int, GroupStats]]:
    """List the groups that all have their results, with their numbers; the others have no medians."""
    return [(cell, group) for cell, group in enumerate(report.groups) if group.n and not group.pending]


def _results(report: SweepReport, cell: int) -> list[TrialResult]:
    return [trial for trial in report.trials if trial.cell == cell and trial.has_result]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count else ""


def _row(name: str, found: Median, points: Sequence[float], color: int) -> Row:
    return Row(name, found.estimate, found.low, found.high, points, color=color)


def _join(report: SweepReport, group: GroupStats, what: str) -> str:
    name = group_name(report, group)
    return f"{name}: {what}" if name else what
