"""Scores of all heads as a matrix, their direct logits by position, and the logit lens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy
from matplotlib.colors import LinearSegmentedColormap

from mhsa_cli.records.heads import HeadScore
from mhsa_cli.records.inspection import DirectLogits, LogitLens
from mhsa_cli.renderers.figures.curve import curve_height, set_loss_axis
from mhsa_cli.renderers.figures.sheet import VIRIDIS, Draw, Sheet, grid, or_nan, set_ticks
from mhsa_cli.renderers.kit.palette import LINE_COLORS
from mhsa_cli.renderers.kit.ticks import linear_ticks, tick_texts

ROW = 0.15  # inches


def lift_matrix(heads: Sequence[HeadScore]) -> Draw:
    """Return what draws the lift of every head on every target."""
    targets = list(dict.fromkeys(name for head in heads for name in head.scores))
    lifts = [
        [or_nan(head.scores[name].lift) if name in head.scores else math.nan for name in targets] for head in heads
    ]
    return lambda sheet: _matrix(sheet, [head.name for head in heads], targets, lifts, "lift")


def direct_matrix(direct: DirectLogits) -> Draw:
    """Return what draws the direct logits of every head by query position."""
    names = [str(head) for head in direct.heads]
    values = [[or_nan(value) for value in by_position] for by_position in direct.heads.values()]
    places = [str(at) for at in range(len(direct.counts))]
    return lambda sheet: _matrix(sheet, names, places, values, "direct logit", axis="query position")


def lens_plot(lens: LogitLens) -> Draw:
    """Return what draws the loss of the stream after every layer, with the chance level."""
    return lambda sheet: _lens(sheet, lens)


def _matrix(
    sheet: Sheet,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    name: str,
    axis: str = "",
) -> None:
    """Add a matrix of numbers: of lifts from 0 to 1, of others around 0."""
    if not rows or not columns:
        return
    bar = 0.6  # inches for the colour bar
    axes = sheet.plot(ROW * len(rows), span=(0.0, 1 - bar / sheet.width), margins="matrix")
    finite = [abs(value) for row in values for value in row if math.isfinite(value)]
    lifts = name == "lift"
    top = 1.0 if lifts else max([*finite, 1e-9])
    around = LinearSegmentedColormap.from_list("mhsa_around", [LINE_COLORS[1], sheet.inks.paper, LINE_COLORS[0]])
    image = axes.imshow(
        numpy.array(values), cmap=VIRIDIS if lifts else around, vmin=0.0 if lifts else -top, vmax=top,
        interpolation="nearest", aspect="auto",
    )  # fmt: skip
    step = max(1, math.ceil(len(columns) / max(1, int((sheet.width - 1.1) / (0.13 if len(columns[0]) > 2 else 0.2)))))
    set_ticks(axes.xaxis, range(0, len(columns), step), [sheet.fit(text, 1.0) for text in columns[::step]])
    set_ticks(axes.yaxis, range(len(rows)), list(rows))
    axes.tick_params(length=0)
    if max(map(sheet.text_width, columns)) > (sheet.width - 1.1) / len(columns) * step:
        axes.tick_params(axis="x", labelrotation=90)
    axes.set_xlabel(axis)
    side = axes.inset_axes((1 + 0.1 / (sheet.width - 1.2), 0.0, 0.07 / (sheet.width - 1.2), 1.0))
    drawn = sheet.figure.colorbar(image, cax=side)
    drawn.outline.set_visible(False)  # type: ignore[operator]
    if lifts:
        set_ticks(side.yaxis, [0, 0.5, 1], ["0", "0.5", "1"])
    else:
        ticks = [tick for tick in linear_ticks(-top, top, 4) if abs(tick) <= top]
        set_ticks(side.yaxis, ticks, tick_texts(ticks))
    side.tick_params(labelsize=6, labelcolor=sheet.inks.ink, color=sheet.inks.dim)
    side.set_ylabel(name, fontsize=7, color=sheet.inks.ink)
    sheet.close([axes])


def _lens(sheet: Sheet, lens: LogitLens) -> None:
    axes = sheet.plot(curve_height(sheet))
    losses = [step.loss for step in lens.steps]
    places = range(len(losses))
    line = axes.plot(places, losses, "o-", color=sheet.color(0), linewidth=1.0, markersize=3.4, clip_on=False)[0]
    chance = sheet.level(axes, lens.chance_loss)
    set_loss_axis(axes, [loss for loss in [*losses, lens.chance_loss] if math.isfinite(loss)], log=False)
    axes.set_xlim(-0.2, len(losses) - 0.8)
    names = ["embedding" if step.layer is None else f"L{step.layer}" for step in lens.steps]
    stride = max(1, math.ceil(len(names) * 0.45 / sheet.width))
    set_ticks(axes.xaxis, places[::stride], names[::stride])
    axes.set_xlabel("stream after")
    grid(axes, sheet.inks)
    sheet.legend(axes, [line, chance], ["logit lens", f"chance {lens.chance_loss:.2f}"])
    sheet.close([axes])
