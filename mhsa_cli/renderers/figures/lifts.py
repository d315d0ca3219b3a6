"""Heads over training: the loss, below it the lift of every head with its onset, and the in-context score."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from mhsa_cli.records.timeline import HeadHistory, LossDrop
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.figures.curve import loss_plot, shade_drop
from mhsa_cli.renderers.figures.sheet import (
    Draw,
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
from mhsa_cli.renderers.pictures.timeline import Curve, Scale, followed, known_scores


@dataclass(frozen=True, slots=True)
class _Steps:
    """The axis of steps of all parts: where it ends, and the drop of the loss that is shaded."""

    last: int
    drop: LossDrop | None

    def set(self, axes: Axes, sheet: Sheet, *, label: bool = True) -> None:
        """Give it to axes."""
        if self.drop is not None:
            shade_drop(axes, self.drop, sheet)
        set_steps(axes, 0.0, float(self.last), sheet.width - 0.7, log=True, label=label)
        grid(axes, sheet.inks)


def timeline_figure(
    loss_series: Sequence[Series],
    histories: Sequence[HeadHistory],
    page: Page,
    *,
    levels: Sequence[Level] = (),
    drop: LossDrop | None = None,
    target: str | None = None,
    in_context: Curve = (),
    scale: Scale = None,
) -> PaperFigure:
    """Draw the loss, the lifts of all heads, a plot for each layer, and the in-context score of the model.

    `drop`, `target` and `scale` are as in `timeline_picture`.
    """
    return compose(page, timeline_parts(loss_series, histories, levels, drop, in_context, target, scale, page.only))


def timeline_parts(
    loss_series: Sequence[Series],
    histories: Sequence[HeadHistory],
    levels: Sequence[Level],
    drop: LossDrop | None,
    in_context: Curve,
    target: str | None = None,
    scale: Scale = None,
    only: str | None = None,
) -> dict[str, Draw | None]:
    """Return what draws each part of a timeline, all over the same logarithmic axis of steps, written once."""
    last = max(chain([1], *(one.steps for one in loss_series), *(one.steps for one in histories)))
    measured = known_scores(in_context)
    ends = only or ("context" if measured else "lifts" if histories else "curve")  # the part with the axis of steps
    over = _Steps(last, drop)
    axis = "lift" if target is None else target if scale is not None else f"lift on {target}"

    def lifts(sheet: Sheet) -> None:
        layers = [list(layer) for _, layer in groupby(histories, key=lambda one: one.layer)]
        for layer in layers:
            _lifts(sheet, layer, over, axis, scale, label=ends == "lifts" and layer is layers[-1])

    def curve(sheet: Sheet) -> None:
        label = ends == "curve"
        loss_plot(sheet, loss_series, levels=levels, log_steps=True, last=last, drop=drop, label=label)

    return {
        "curve": curve,
        "lifts": lifts if histories else None,
        "context": (lambda sheet: _context(sheet, measured, over)) if measured else None,
    }


def _lifts(
    sheet: Sheet, histories: Sequence[HeadHistory], steps: _Steps, axis: str, scale: Scale, *, label: bool
) -> None:
    """Add the lifts of a layer's heads; on each line a triangle is the end of its onset, a bar the whole of it."""
    axes = sheet.plot(max(0.9, min(1.5, 0.28 * sheet.width)))
    handles: list[Artist] = []
    for number, one in enumerate(histories):
        color = sheet.color(number)
        handles.append(line(axes, one.steps, [*map(or_nan, one.lifts)], color=color, linestyle=sheet.dash(number)))
        if one.onset is not None and one.final is not None:
            half, ends = one.final / 2, [one.onset.low, one.onset.high]
            axes.plot(ends, [half, half], color=color, linewidth=2.2, solid_capstyle="butt", zorder=3)
            axes.plot(
                ends[1:], [half], "v", color=color, markersize=4.5, markeredgewidth=0.6, zorder=4,
                markeredgecolor=sheet.inks.paper,
            )  # fmt: skip
    shown = [lift for one in histories for lift in one.lifts if lift is not None and math.isfinite(lift)]
    if scale is None:
        set_values(axes, min([0.0, *shown]) * 1.05, max([1.0, *shown]) * 1.03, count=4)
    else:
        low, high = min(shown, default=0.0), max(shown, default=1.0)
        room = 0.05 * ((high - low) or 1.0)
        set_values(axes, low - room, high + room, count=4)
    axes.set_ylabel(sheet.fit(axis, 1.0))
    steps.set(axes, sheet, label=label)
    sheet.legend(axes, handles, [" ".join(_named(one)) for one in histories])
    sheet.close([axes])


def _named(one: HeadHistory) -> Iterator[str]:
    """Name a head by its address and its label, or by the target that it is closest to."""
    yield one.name
    if one.label:
        yield one.label
    elif one.target:
        yield f"({followed(one)})"


def _context(sheet: Sheet, measured: Sequence[tuple[int, float]], steps: _Steps) -> None:
    """Add the in-context score: the loss at late minus early positions of a row."""
    axes = sheet.plot(max(0.7, min(1.1, 0.2 * sheet.width)))
    scores = [score for _, score in measured]
    line(axes, [step for step, _ in measured], scores, color=sheet.inks.ink)
    low, high = min([0.0, *scores]), max([0.0, *scores])
    room = 0.06 * ((high - low) or 1.0)
    set_values(axes, low - room, high + room, count=3)
    axes.axhline(0, color=sheet.inks.dim, linewidth=0.6)
    axes.set_ylabel("in-context\nscore (nats)")
    steps.set(axes, sheet)
    sheet.close([axes])
