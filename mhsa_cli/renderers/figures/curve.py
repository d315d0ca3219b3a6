"""The loss over training: a line for each run, points for evaluations, levels; of a sweep, quartile bands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mhsa_cli.records.timeline import LossDrop
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.figures.sheet import (
    LARGEST,
    SMALL,
    PaperFigure,
    Sheet,
    compose,
    grid,
    line,
    or_nan,
    set_steps,
    set_values,
)
from mhsa_cli.renderers.figures.sheet_options import Page
from mhsa_cli.renderers.pictures.curve import Level
from mhsa_cli.renderers.pictures.small_multiples import Curve

TOGETHER = 6  # curves in one plot: as many as there are colours; more get a plot each
EVALUATION = "evaluation"  # of several runs: their points have the colours of their lines
_MARKS: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 3.4, "markeredgewidth": 0.5}
Handles = list[tuple[Artist, str]]


def loss_figure(
    series: Sequence[Series], page: Page, *, levels: Sequence[Level] = (), log: bool = False
) -> PaperFigure:
    """Draw the loss of one run or of several over the steps."""
    return compose(page, {"curve": lambda sheet: loss_plot(sheet, series, levels=levels, log=log)})


def bands_figure(curves: Mapping[int, Curve], page: Page) -> PaperFigure:
    """Draw the run of median loss of each setting of a sweep over the quartiles of its runs."""
    return compose(page, {"curve": lambda sheet: bands_plot(sheet, list(curves.values()))})


def loss_plot(
    sheet: Sheet,
    series: Sequence[Series],
    *,
    levels: Sequence[Level] = (),
    log: bool = False,
    log_steps: bool = False,
    last: int | None = None,
    drop: LossDrop | None = None,
    label: bool = True,
) -> None:
    """Add a plot of the loss. `last`: the step at which the axis ends; `drop` is shaded; `label`: of the steps."""
    axes = sheet.plot(curve_height(sheet))
    owners = list(dict.fromkeys(one.run for one in series))
    values = [value for one in series for value in one.values if _shows(value, log)]
    values += [level.value for level in levels if _shows(level.value, log)]
    steps = [step for one in series for step in one.steps]
    handles: Handles = []
    if drop is not None:
        shade_drop(axes, drop, sheet)
    for number, level in enumerate(level for level in levels if _shows(level.value, log)):
        handles.append((sheet.level(axes, level.value, number), level.label))
    broken: list[int] = []
    drawn: Handles = []
    for one in series:
        if not one.steps:
            continue
        number = owners.index(one.run)
        broken += [step for step, value in one.points if not _shows(value, False)]
        handle = _line(axes, one, number, sheet)
        if one.role != "eval" or not one.run:
            drawn.append((handle, one.name))
        elif not any(label == EVALUATION for _, label in handles):
            handles.append((Line2D([], [], color=sheet.inks.dim, **_MARKS), EVALUATION))
    set_loss_axis(axes, values, log)
    if broken:
        bottom = axes.get_ylim()[0]
        marks = axes.plot(broken, [bottom] * len(broken), "x", color=sheet.inks.alarm, markersize=4, clip_on=False)
        handles.append((marks[0], "not finite"))
    low, high = min(steps, default=0), max(steps, default=1)
    first = float(low) if high / 2 < low < high and not log_steps else 0.0
    set_steps(axes, first, float(max(1, high if last is None else last)), sheet.width - 0.7, log=log_steps, label=label)
    grid(axes, sheet.inks)
    sheet.legend(axes, *zip(*drawn, *handles, strict=True)) if drawn or handles else None
    sheet.close([axes])


def curve_height(sheet: Sheet) -> float:
    """Return the height of a curve in inches."""
    return max(1.2, min(2.4, 0.42 * sheet.width))


def shade_drop(axes: Axes, drop: LossDrop, sheet: Sheet) -> None:
    """Shade the steps between which the loss dropped most."""
    axes.axvspan(drop.interval.low, drop.interval.high, color=sheet.inks.faint, linewidth=0)


def set_loss_axis(axes: Axes, values: Sequence[float], log: bool) -> None:
    """Make the vertical axis one of the loss."""
    if log:
        low, high = min(values, default=0.1), max(values, default=1.0)
        high = high if high > low else 2 * low
        room = (high / low) ** 0.04
        set_values(axes, low / room, high * room, log=True)
    else:
        low, high = min(0.0, *values, 0.0), max(values, default=1.0)
        high = high if high > low else low + 1.0
        set_values(axes, low, high + 0.04 * (high - low))
    axes.set_ylabel("loss (nats)")


def _line(axes: Axes, one: Series, number: int, sheet: Sheet) -> Line2D:
    values = [*map(or_nan, one.values)]
    color = sheet.color(number)
    if one.role == "eval":
        edge = sheet.inks.paper
        return axes.plot(one.steps, values, color=color, zorder=3, clip_on=False, markeredgecolor=edge, **_MARKS)[0]
    return line(axes, one.steps, values, color=color, linestyle=sheet.dash(number))


def _shows(value: float | None, log: bool) -> TypeGuard[float]:
    return value is not None and abs(value) < LARGEST and (value > 1 / LARGEST or not log)


# -- of a sweep ----------------------------------------------------------------------------------------------------


def bands_plot(sheet: Sheet, curves: Sequence[Curve]) -> None:
    """Add the curves of all settings: in one plot, or of many in a plot each with the same axes."""
    drawn = [value for _, _, *bands in curves for band in bands for value in band if _shows(value, True)]
    last = float(max((step for _, steps, *_ in curves for step in steps), default=1))
    if len(curves) <= TOGETHER:
        axes = sheet.plot(curve_height(sheet))
        handles: Handles = [(_band(axes, curve, number, sheet), curve[0]) for number, curve in enumerate(curves)]
        _frame(axes, drawn, last, sheet.width - 0.7, sheet)
        handles += [(Patch(facecolor=sheet.inks.dim, alpha=0.5, linewidth=0), "median run, quartiles")]
        sheet.legend(axes, *zip(*handles, strict=True))
        sheet.close([axes])
        return
    side = max(2, min(4, int(sheet.width / 1.5)))
    for start in range(0, len(curves), side):
        row = []
        sheet.top += 0.14  # for names
        for place, curve in enumerate(curves[start : start + side]):
            wide = 1 / side
            span = (place * wide, 1.0 if place == side - 1 else (place + 1) * wide - 0.03)
            axes = sheet.plot(0.9, span=span)
            _band(axes, curve, 0, sheet)
            _frame(axes, drawn, last, sheet.width / side - 0.4, sheet, label=start + side >= len(curves))
            if place:
                axes.set_ylabel("")
                axes.tick_params(labelleft=False)
            name = sheet.fit(curve[0], sheet.width / side - 0.2)
            axes.set_title(name, fontsize=SMALL, color=sheet.inks.ink, loc="left", pad=2)
            row.append(axes)
        sheet.close(row)
        sheet.top -= 0.06
    sheet.top += 0.06


def _band(axes: Axes, curve: Curve, number: int, sheet: Sheet) -> Line2D:
    _, steps, middle, low, high = curve
    edges = [[value if _shows(value, True) else math.nan for value in edge] for edge in (middle, low, high)]
    color = sheet.color(number)
    axes.fill_between(steps, edges[1], edges[2], color=color, alpha=0.25, linewidth=0)  # type: ignore[arg-type]
    return axes.plot(steps, edges[0], color=color, linewidth=1.0)[0]


def _frame(axes: Axes, drawn: Sequence[float], last: float, width: float, sheet: Sheet, *, label: bool = True) -> None:
    set_loss_axis(axes, drawn, log=True)
    set_steps(axes, 0.0, max(1.0, last), width, label=label)
    grid(axes, sheet.inks)
