"""Heads over training: the loss curve, and under it, in the same columns, a strip for each head's lift.

The last strip is the in-context score of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise

from mhsa_cli.records.timeline import HeadHistory, Interval, LossDrop
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.kit.cells import color_bar, digit
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.frame import Frame
from mhsa_cli.renderers.kit.glyphs import FULL
from mhsa_cli.renderers.kit.palette import DIM, PLAIN, clamp, heat_style, ink_style, level_of
from mhsa_cli.renderers.kit.table import Column, table, visible
from mhsa_cli.renderers.kit.text_lines import Grid, Lines, Phrase, Piece, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, short, step_text
from mhsa_cli.renderers.pictures.curve import Level, loss_curve
from mhsa_cli.renderers.pictures.own_scores import number_text
from mhsa_cli.text import plural

BELOW = "-", -0.05  # the mark of a lift below this
ABOVE = "+", -0.25  # the mark of an in-context score above 0, by this part of a full cell
IN_CONTEXT = "ICL"  # the name of the model's strip
LEAST_SCALE = 1.0  # nats of a full cell of that strip, at least: few rows are scored, and less is their noise
_EIGHTHS = FULL.bars[1:]

Scale = tuple[float, float] | None  # the values of an empty and of a full cell; None for lifts
Curve = Sequence[tuple[int, float | None]]  # of (step, value)


def timeline_picture(
    loss_series: Sequence[Series],
    histories: Sequence[HeadHistory],
    surface: Surface,
    *,
    levels: Sequence[Level] = (),
    drop: LossDrop | None = None,
    target: str | None = None,
    in_context: Curve = (),
    scale: Scale = None,
) -> Lines:
    """Draw every head's lift over training under the loss curve, and the model's in-context score.

    A cell holds the last snapshot up to its step. `drop` is the largest drop of the loss, to be marked. `target` is
    given when all heads are scored against that one target. `scale` is given where they have values in place of lifts.
    """
    measured = known_scores(in_context)
    names = [history.name for history in histories]
    left = max((len(name) for name in [*names, IN_CONTEXT * bool(measured)]), default=0) + 1
    beside = replace(surface, width=max(1, (surface.width - left - 1) // 2))  # the plot keeps half of the room
    columns, hidden, notes = _columns(histories, target, beside, scale)
    side = table(columns, histories, beside)[: len(histories) + 1]
    curve = loss_curve(
        loss_series,
        surface,
        levels=levels,
        x_max=max(chain([1], *(one.steps for one in loss_series), *(history.steps for history in histories))),
        log_steps=True,
        left=left,
        right=Lines(side).columns,
    )
    if not histories:
        return curve + wrap_phrases(["no snapshots of heads"], surface.width, DIM)
    frame, grid = curve.frame, Grid(surface.width, len(histories) + 1 + bool(measured))
    for number, row in enumerate(side):
        grid.put(frame.margin + frame.columns + 2, number, row.plain, PLAIN if number else DIM)
    if drop is not None:
        grid.put(frame.cell(drop.step, frame.y_axis.low)[0], 0, "^", DIM)
    for number, history in enumerate(histories, 1):
        points = list(zip(history.steps, [_level(lift, scale) for lift in history.lifts], strict=False))
        _put_strip(grid, number, history.name, points, frame, surface)
    full = max(LEAST_SCALE, -min((score for _, score in measured), default=0.0))
    if measured:
        shares = [(step, -score / full) for step, score in measured]
        _put_strip(grid, len(histories) + 1, IN_CONTEXT, shares, frame, surface, ABOVE)
    phrases: list[Phrase] = [*([(note, PLAIN)] for note in notes), *_scale(target, surface, scale)]
    phrases += _caption(histories, drop, scale)
    if measured:
        phrases += _in_context_caption(measured, full)
    phrases += [column.legend for column in columns if column.legend]
    if any(column.value(history) == surface.glyphs.dash for column in columns for history in histories):
        phrases.append(f"{surface.glyphs.dash} in a column: never, or unknown")
    if hidden:
        phrases.append("hidden columns: " + ", ".join(hidden))
    return curve.plot + grid.lines() + curve.notes + wrap_phrases(phrases, surface.width, DIM)


# -- the columns beside the strips ------------------------------------------------------------------------------------


def _columns(
    histories: Sequence[HeadHistory], target: str | None, surface: Surface, scale: Scale
) -> tuple[list[Column[HeadHistory]], list[str], list[str]]:
    """Choose the columns that have room; also the titles of the hidden ones, and notes on labels that have no room."""

    values, last = scale is not None, "of the last 3 snapshots"

    def number(name: str, drop: int, legend: str) -> Column[HeadHistory]:
        text = partial(_number, name, surface.glyphs.dash)
        return Column(name, text, "right", drop=drop, legend=legend, when=not values)

    labelled = target is None and any(history.label not in ("", followed(history)) for history in histories)
    unlabelled = target is None and any(not history.label for history in histories)
    label: Column[HeadHistory] = Column("label", lambda history: history.label, drop=5, when=labelled)
    columns = [
        Column(
            "target",
            followed,
            when=target in (None, "offset"),
            legend="target: the pattern of the head's label" + ", else the closest one" * unlabelled,
        ),
        label,
        Column(
            "final",
            lambda history: number_text(history.final),
            "right",
            legend=f"final: mean value {last}",
            when=values,
        ),
        number("final", 3, f"final: mean lift {last}"),
        number("onset", 1, "onset: the steps between which it comes to half of that lift"),
        number("width", 4, "width: steps from 20% to 80% of that lift"),
        number("lead", 2, "lead: steps by which the head's rise (20% to 80%) precedes the largest drop of the loss"),
    ]
    kept = visible(columns, histories, surface)
    notes = []
    if labelled and label not in kept:
        notes = [f"{one.name}: {one.label}" for one in histories if one.label not in ("", followed(one))]
    hidden = [column.title for column in columns if column.when and column not in kept and column is not label]
    return kept, hidden, notes


def known_scores(points: Curve) -> list[tuple[int, float]]:
    """Leave out where nothing was measured."""
    return [(step, score) for step, score in points if score is not None and math.isfinite(score)]


def followed(history: HeadHistory) -> str:
    """Name the target on which a head's lift is followed."""
    distance = "" if history.distance is None else f" {history.distance}"
    return f"{history.target}{distance}" if history.target else "not measured"


def _number(name: str, dash: str, history: HeadHistory) -> str:
    if name == "final":
        return dash if history.final is None or not math.isfinite(history.final) else fixed(history.final, 2)
    if name == "width":
        return dash if history.width is None else step_text(history.width)
    interval: Interval | None = getattr(history, name)
    if interval is None:
        return dash
    low, high = interval.low, interval.high
    if name == "onset":
        return step_text(low) if low == high else f"{step_text(low)}{dash}{step_text(high)}"
    return "not shown" if low <= 0 <= high else f"{_signed(low)} to {_signed(high)}"


def _signed(steps: int) -> str:
    return f"{'-' if steps < 0 else '+'}{step_text(abs(steps))}"


# -- the strips -------------------------------------------------------------------------------------------------------


def _put_strip(
    grid: Grid, y: int, name: str, points: Curve, frame: Frame, surface: Surface, below: tuple[str, float] = BELOW
) -> None:
    """Paint one strip's name and cells; nothing stands before the first snapshot and after the last."""
    grid.put(frame.margin - 1 - len(name), y, name)
    grid.put(frame.margin, y, surface.glyphs.vertical, DIM)
    last: Mapping[int, float | None] = {frame.cell(step, frame.y_axis.low)[0]: value for step, value in points}
    places = sorted(last)
    for place, stop in pairwise([*places, *(place + 1 for place in places[-1:])]):
        text, style = _cell(last[place], surface, below)
        grid.put(place, y, text * (stop - place), style)


def _cell(lift: float | None, surface: Surface, below: tuple[str, float]) -> Piece:
    if lift is None or not math.isfinite(lift):
        return "?", DIM
    if lift < below[1]:
        return below[0], ink_style(0, surface.depth) if surface.paints else PLAIN
    if surface.paints:
        return " ", heat_style(None, level_of(lift), surface.depth)
    if surface.glyphs.braille:
        return _EIGHTHS[min(7, int(clamp(lift) * 8))], PLAIN
    text = digit(lift)
    return (text, PLAIN) if text else (surface.glyphs.dot, DIM)


def _caption(histories: Sequence[HeadHistory], drop: LossDrop | None, scale: Scale) -> list[Phrase]:
    """Explain the strips: what a cell holds, and its marks."""
    phrases: list[Phrase] = [f"{plural(len(histories[0].steps), 'snapshot')}; a cell holds the last one up to its step"]
    phrases.append("measured on fewer rows than the scores of inspect-heads")
    families = sorted({history.target for history in histories} & {"modulo", "token"})
    if families:
        phrases.append(f"{' and '.join(families)}: the best one at each snapshot")
    lifts = [lift for history in histories for lift in history.lifts]
    if scale is None and any(lift is not None and lift < BELOW[1] for lift in lifts):
        phrases.append("- in a strip: below 0, avoids the target")
    if None in lifts:
        another = any(history.distance is not None and None in history.lifts for history in histories)
        phrases.append("?: not measured" + (", or another offset was best" if another else ""))
    if drop is not None:
        where = f"somewhere in steps {step_text(drop.interval.low)} to {step_text(drop.interval.high)}"
        phrases.append(f"^: largest drop of the loss between two cells of a log grid, {short(drop.nats)} nats, {where}")
    return phrases


def _in_context_caption(measured: Sequence[tuple[int, float]], scale: float) -> list[Phrase]:
    """Explain the model's strip."""
    last = measured[-1][1]
    phrases: list[Phrase] = [
        f"{IN_CONTEXT}: in-context score, loss at late minus early positions of a row: a full cell is {short(-scale)} "
        f"nats, the last snapshot {short(last)}"
    ]
    if any(-score / scale < ABOVE[1] for _, score in measured):
        phrases.append(f"+ in {IN_CONTEXT}: the loss is higher at late positions")
    return phrases


def _level(value: float | None, scale: Scale) -> float | None:
    """Return where a value lies on a scale, from 0 to 1; a lift needs none."""
    if value is None or scale is None:
        return value
    low, high = scale
    return (value - low) / (high - low) if high > low else 0.0


def _scale(target: str | None, surface: Surface, scale: Scale) -> list[Phrase]:
    if scale is not None:
        low, high = map(number_text, scale)
        if surface.paints:
            return [[(f"{target}: {low} ", DIM), *color_bar(surface), (f" {high}", DIM)]]
        if surface.glyphs.braille:
            return [f"{target}: {_EIGHTHS[0]} {low}, {_EIGHTHS[-1]} {high}"]
        return [f"{target}: {surface.glyphs.dot} {low}, 9 {high}"]
    name = "lift" if target is None else f"lift on {target}"
    if surface.paints:
        return [f"{name}: 0 uniform, 1 all weight on the target", [("0 ", DIM), *color_bar(surface), (" 1", DIM)]]
    if surface.glyphs.braille:
        return [f"{name}: {_EIGHTHS[0]} 0 uniform, {_EIGHTHS[-1]} 1 all weight on the target"]
    dot = surface.glyphs.dot
    return [f"{name} in tenths: 0 uniform, 9 is 0.85 or more, {dot} is under 0.05"]
