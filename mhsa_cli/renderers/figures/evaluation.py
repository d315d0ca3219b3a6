"""A model on held-out rows: its accuracy by position, and of a sweep its medians by setting."""

from __future__ import annotations

from collections.abc import Sequence

from mhsa_cli.records.evaluation import Evaluation, GroupEvaluation
from mhsa_cli.records.sweep import SweepReport
from mhsa_cli.renderers.figures.curve import curve_height
from mhsa_cli.renderers.figures.rows import Row, rows_of
from mhsa_cli.renderers.figures.sheet import Draw, PaperFigure, Sheet, compose, grid, set_ticks, set_values
from mhsa_cli.renderers.figures.sheet_options import Page
from mhsa_cli.renderers.kit.ticks import linear_ticks
from mhsa_cli.renderers.pictures.evaluation import task_name
from mhsa_cli.renderers.pictures.sweep_words import short_names


def evaluation_figure(results: Sequence[Evaluation], page: Page) -> PaperFigure:
    """Draw the accuracy at each scored position, a line for each task."""
    there = [one for one in results if one.positions]
    return compose(page, {"accuracy": (lambda sheet: _accuracy(sheet, there)) if there else None})


def sweep_evaluation_figure(report: SweepReport, found: Sequence[GroupEvaluation], page: Page) -> PaperFigure:
    """Draw the median accuracy and loss of each setting on each task, with their intervals."""
    return compose(
        page,
        {
            "accuracy": _medians(report, found, "accuracy", "accuracy (median, 95% CI)"),
            "loss": _medians(report, found, "loss", "loss (nats; median, 95% CI)"),
        },
    )


def _accuracy(sheet: Sheet, results: Sequence[Evaluation]) -> None:
    axes = sheet.plot(curve_height(sheet))
    handles = []
    for number, one in enumerate(results):
        places, shares = [place.at for place in one.positions], [place.accuracy for place in one.positions]
        marks = {"markersize": 3.0, "clip_on": False, "linestyle": sheet.dash(number)}
        handles += axes.plot(places, shares, marker="o", color=sheet.color(number), linewidth=1.0, **marks)  # type: ignore[arg-type]
    chances = {one.chance_accuracy for one in results}
    labels = [task_name(one) for one in results]
    if len(chances) == 1:
        chance = chances.pop()
        handles.append(sheet.level(axes, chance))
        labels.append(f"chance {chance:.2g}")
    at = [place.at for one in results for place in one.positions]
    axes.set_xlim(min(at) - 0.3, max(at) + 0.3)
    set_values(axes, 0.0, 1.02)
    ticks = [tick for tick in linear_ticks(min(at), max(at), max(3, int(sheet.width / 0.4))) if tick == int(tick)]
    set_ticks(axes.xaxis, ticks, [f"{tick:.0f}" for tick in ticks])
    axes.set_xlabel("position")
    axes.set_ylabel("accuracy")
    grid(axes, sheet.inks)
    sheet.legend(axes, handles, labels)
    sheet.close([axes])


def _medians(report: SweepReport, found: Sequence[GroupEvaluation], figure: str, axis: str) -> Draw | None:
    names, settings = short_names(report), [dict(group.overrides) for group in report.groups]
    rows = []
    for one in found:
        name = " ".join([*(f"{names[key]}={text}" for key, text in one.overrides.items()), one.name]).strip()
        middle = getattr(one, figure)
        color = settings.index(dict(one.overrides)) if dict(one.overrides) in settings else 0
        rows.append(Row(name, middle.estimate, middle.low, middle.high, color=color))
    return rows_of(rows, axis, share=figure == "accuracy")
