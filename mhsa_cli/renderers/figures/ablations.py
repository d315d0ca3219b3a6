"""What heads do to the loss when they are ablated or patched: bars with standard errors."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from matplotlib.axes import Axes

from mhsa_cli.records.heads import WAYS, Ablation, ActivationEffect, HeadReport, HeadScore, PathEffect
from mhsa_cli.renderers.figures.sheet import WAY_COLORS, Draw, Sheet, grid, or_nan, set_ticks, set_values
from mhsa_cli.text import Head

NARROW = 1.6  # points: bars that would be narrower are left out, but those of uniform attention
CHANGE = "change of loss (nats)"


def ablation_bars(ablations: Sequence[Ablation]) -> Draw:
    """Return what draws the change of the loss by each way of ablation."""
    bars = [(one.way, one.delta_nats, one.delta_se) for one in ablations if one.way != "none"]
    return lambda sheet: _bars(sheet, bars, CHANGE, colors=[WAY_COLORS[name] for name, _, _ in bars])


def path_bars(paths: Sequence[PathEffect]) -> Draw:
    """Return what draws the change of the loss by each patched path; a line is the largest one of random writers."""
    bars = [(str(one.path), one.delta_nats, one.delta_se) for one in paths]
    return lambda sheet: _bars(sheet, bars, CHANGE, nulls=[one.null for one in paths])


def activation_bars(heads: Sequence[ActivationEffect]) -> Draw:
    """Return what draws the change of the loss by each patched head."""
    bars = [(one.name, one.delta_nats, one.delta_se) for one in heads]
    return lambda sheet: _bars(sheet, bars, CHANGE)


def own_score_bars(heads: Sequence[HeadScore], name: str) -> Draw:
    """Return what draws a score of the user's own of every head."""
    found = [(head.name, head.own_scores.get(name)) for head in heads]
    bars = [(head, or_nan(one.value if one else None), or_nan(one.se if one else None)) for head, one in found]
    return lambda sheet: _bars(sheet, bars, name)


def effects_of(report: HeadReport | None, heads: Collection[Head] | None = None) -> Draw | None:
    """Return what draws the effect of every head, or of those at `heads`, by each way; None if not measured."""
    scores = [] if report is None else [one for one in report.heads if heads is None or one.address in heads]
    found = {way: [one.effect(way) for one in scores] for way in WAYS}
    found = {way: effects for way, effects in found.items() if any(effects)}
    if not found:
        return None
    return lambda sheet: _grouped(sheet, [one.name for one in scores], found)


def _grouped(sheet: Sheet, names: Sequence[str], found: dict[str, list[tuple[float, float] | None]]) -> None:
    """Add bars by head, side by side for each way."""
    room = sheet.width - 0.75
    if 0.8 * room * 72 / len(names) / len(found) < NARROW:
        found = dict([next(iter(found.items()))])
    axes = sheet.plot(max(1.0, min(1.7, 0.33 * sheet.width)))
    wide = 0.8 / len(found)
    handles: list[Any] = []
    ends = [0.0]
    for number, (way, effects) in enumerate(found.items()):
        places = [at - 0.4 + (number + 0.5) * wide for at in range(len(names))]
        heights = [math.nan if one is None else one[0] for one in effects]
        errors = [math.nan if one is None else one[1] for one in effects]
        handles.append(_bar(axes, places, heights, errors, wide, WAY_COLORS[way], sheet))
        ends += [one[0] + sign * one[1] for one in effects if one is not None for sign in (-1, 1)]
    _finish(axes, ends, CHANGE, sheet)
    free = 0.6 + max(0.0, (2 - len(names)) / 2)
    axes.set_xlim(-free, len(names) - 1 + free)
    _names(axes, names, sheet)
    sheet.legend(axes, handles, list(found))
    sheet.close([axes])


def _bars(
    sheet: Sheet,
    bars: Sequence[tuple[str, float, float]],
    axis: str,
    *,
    colors: Sequence[str] = (),
    nulls: Sequence[float] = (),
) -> None:
    """Add one bar for each name, with its standard error."""
    axes = sheet.plot(max(1.0, min(1.7, 0.33 * sheet.width)))
    ends = [0.0, *nulls]
    for place, ((_, change, error), color) in enumerate(zip(bars, colors or [sheet.color(0)] * len(bars), strict=True)):
        _bar(axes, [place], [change], [error], 0.6, color, sheet)
        ends += [change - error, change + error]
    for place, null in enumerate(nulls):
        line = axes.plot([place - 0.36, place + 0.36], [null, null], color=sheet.inks.ink, linewidth=1.0)[0]
        if place == 0:
            sheet.legend(axes, [line], ["random writers"])
    _finish(axes, ends, axis, sheet)
    free = 0.6 + max(0.0, (3 - len(bars)) / 2)
    axes.set_xlim(-free, len(bars) - 1 + free)
    _names(axes, [name for name, _, _ in bars], sheet)
    sheet.close([axes])


def _bar(
    axes: Axes,
    places: Sequence[float],
    heights: Sequence[float],
    errors: Sequence[float],
    wide: float,
    color: str,
    sheet: Sheet,
) -> Any:
    errors, heights = [abs(or_nan(error)) for error in errors], [*map(or_nan, heights)]
    found = axes.bar(places, heights, wide * 0.92, color=color, linewidth=0)
    axes.errorbar(places, heights, errors, fmt="none", ecolor=sheet.inks.ink, elinewidth=0.7, capsize=1.2, capthick=0.7)
    return found


def _names(axes: Axes, names: Sequence[str], sheet: Sheet) -> None:
    """Write names under bars, upright where they have no room side by side; then as many as have room."""
    room = sheet.width - 0.75
    shown = [sheet.fit(name, max(0.6, room / len(names) - 0.06)) for name in names]
    upright = (max(map(sheet.text_width, shown)) + 0.06) * len(names) > room
    stride = max(1, math.ceil(0.13 * len(names) / room))
    set_ticks(axes.xaxis, range(0, len(names), stride), shown[::stride])
    axes.tick_params(axis="x", length=0, labelrotation=90 if upright else 0)


def _finish(axes: Axes, ends: Sequence[float], axis: str, sheet: Sheet) -> None:
    finite = [end for end in ends if math.isfinite(end)]  # 0 is one
    low, high = min(finite), max(finite)
    room = 0.06 * ((high - low) or 1.0)
    set_values(axes, low - room if low < 0 else 0.0, high + room if high > 0 else 0.0)
    axes.axhline(0, color=sheet.inks.dim, linewidth=0.6)
    axes.set_ylabel(sheet.fit(axis, 1.3))
    grid(axes, sheet.inks)
