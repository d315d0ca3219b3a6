"""Heads over training: the loss curve, and under it, in the same columns, a strip for each head's lift."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise

from mhsa_cli.records.heads import HeadHistory
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.kit.cells import color_bar, digit
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.frame import Frame
from mhsa_cli.renderers.kit.glyphs import FULL
from mhsa_cli.renderers.kit.palette import DIM, PLAIN, clamp, heat_style, ink_style, level_of
from mhsa_cli.renderers.kit.table import Column, table, visible
from mhsa_cli.renderers.kit.text_lines import Grid, Lines, Phrase, Piece, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, short, step_text
from mhsa_cli.renderers.pictures.curve import loss_curve
from mhsa_cli.text import plural

AVOIDS = -0.05  # a lift below this is marked
_EIGHTHS = FULL.bars[1:]


def timeline_picture(
    loss_series: Sequence[Series],
    histories: Sequence[HeadHistory],
    surface: Surface,
    *,
    baseline: tuple[float, str] | None = None,
    drop: tuple[int, float] | None = None,
    target: str | None = None,
) -> Lines:
    """Draw every head's lift over training under the loss curve.

    A cell holds the last snapshot up to its step. `drop` is the largest drop of the loss, (step, nats), to be marked.
    `target` is given when all heads are scored against that one target.
    """
    names = [history.name for history in histories]
    left = max(map(len, names), default=0) + 1
    beside = replace(surface, width=max(1, (surface.width - left - 1) // 2))  # the plot keeps half of the room
    columns, hidden, notes = _columns(histories, target, beside)
    side = table(columns, histories, beside)[: len(histories) + 1]
    curve = loss_curve(
        loss_series,
        surface,
        baseline=baseline,
        x_max=max(chain([1], *(one.steps for one in loss_series), *(history.steps for history in histories))),
        log_steps=True,
        left=left,
        right=Lines(side).columns,
    )
    if not histories:
        return curve + wrap_phrases(["no snapshots of heads"], surface.width, DIM)
    frame, grid = curve.frame, Grid(surface.width, len(histories) + 1)
    for number, row in enumerate(side):
        grid.put(frame.margin + frame.columns + 2, number, row.plain, PLAIN if number else DIM)
    if drop is not None:
        grid.put(frame.cell(drop[0], frame.y_axis.low)[0], 0, "^", DIM)
    for number, (name, history) in enumerate(zip(names, histories, strict=True), 1):
        grid.put(frame.margin - 1 - len(name), number, name)
        grid.put(frame.margin, number, surface.glyphs.vertical, DIM)
        _put_strip(grid, number, history, frame, surface)
    phrases: list[Phrase] = [*([(note, PLAIN)] for note in notes), *_scale(target, surface)]
    phrases += _caption(histories, drop, surface)
    phrases += [column.legend for column in columns if column.legend]
    if any(column.title == "lead" for column in columns) and (apart := _apart(histories)):
        phrases.append(f"an onset may be up to {step_text(apart)} steps earlier, between snapshots")
    if any(column.value(history) == surface.glyphs.dash for column in columns for history in histories):
        phrases.append(f"{surface.glyphs.dash} in a column: never, or unknown")
    if hidden:
        phrases.append("hidden columns: " + ", ".join(hidden))
    return curve.plot + grid.lines() + curve.notes + wrap_phrases(phrases, surface.width, DIM)


# -- the columns beside the strips ------------------------------------------------------------------------------------


def _columns(
    histories: Sequence[HeadHistory], target: str | None, surface: Surface
) -> tuple[list[Column[HeadHistory]], list[str], list[str]]:
    """Choose the columns that have room; also the titles of the hidden ones, and notes on labels that have no room."""

    def number(name: str, drop: int, legend: str) -> Column[HeadHistory]:
        return Column(name, partial(_number, name, surface.glyphs.dash), "right", drop=drop, legend=legend)

    labelled = target is None and any(history.label for history in histories)
    aim: Column[HeadHistory] = Column(
        "closest to" if target is None else "target", _aim, when=target in (None, "offset")
    )
    columns = [
        Column("label", _label) if labelled else aim,
        number("lift", 3, "column lift: at the last snapshot"),
        number("onset", 1, "onset: first of 3 consecutive snapshots with lift 0.5 or more"),
        number("width", 4, "width: steps from lift 0.2 to 0.8"),
        number("lead", 2, "lead: steps by which onset precedes the largest drop of the loss"),
    ]
    notes = []
    if labelled and len(visible(columns, histories, surface)) < len(columns):  # labels are long: below the picture
        columns[0] = Column("target", _aim)
        notes = [f"{history.name}: {history.label}" for history in histories if history.label]
    kept = visible(columns, histories, surface)
    return kept, [column.title for column in columns if column.when and column not in kept], notes


def _label(history: HeadHistory) -> str:
    return history.label or f"closest to {_aim(history)}"


def _aim(history: HeadHistory) -> str:
    distance = "" if history.distance is None else f" {history.distance}"
    return f"{history.target}{distance}" if history.target else "not measured"


def _number(name: str, dash: str, history: HeadHistory) -> str:
    if name == "lift":
        last = history.lifts[-1] if history.lifts else None
        return dash if last is None or not math.isfinite(last) else fixed(last, 2)
    value: int | None = getattr(history, name)
    if value is None:
        return dash
    sign = {-1: "-", 0: "", 1: "+"}[(value > 0) - (value < 0)] if name == "lead" else ""
    return sign + step_text(abs(value))


# -- the strips -------------------------------------------------------------------------------------------------------


def _put_strip(grid: Grid, y: int, history: HeadHistory, frame: Frame, surface: Surface) -> None:
    """Paint one head's cells; nothing stands before its first snapshot and after its last."""
    last: Mapping[int, float | None] = {
        frame.cell(step, frame.y_axis.low)[0]: lift for step, lift in zip(history.steps, history.lifts, strict=False)
    }
    places = sorted(last)
    for place, stop in pairwise([*places, *(place + 1 for place in places[-1:])]):
        text, style = _cell(last[place], surface)
        grid.put(place, y, text * (stop - place), style)


def _cell(lift: float | None, surface: Surface) -> Piece:
    if lift is None or not math.isfinite(lift):
        return "?", DIM
    if lift < AVOIDS:
        return "-", ink_style(0, surface.depth) if surface.paints else PLAIN
    if surface.paints:
        return " ", heat_style(None, level_of(lift), surface.depth)
    if surface.glyphs.braille:
        return _EIGHTHS[min(7, int(clamp(lift) * 8))], PLAIN
    text = digit(lift)
    return (text, PLAIN) if text else (surface.glyphs.dot, DIM)


def _caption(histories: Sequence[HeadHistory], drop: tuple[int, float] | None, surface: Surface) -> list[Phrase]:
    """Explain the strips: what a cell holds, and its marks."""
    phrases: list[Phrase] = [f"{plural(len(histories[0].steps), 'snapshot')}; a cell holds the last one up to its step"]
    lifts = [lift for history in histories for lift in history.lifts]
    if any(lift is not None and lift < AVOIDS for lift in lifts):
        phrases.append("- in a strip: below 0, avoids the target")
    if None in lifts:
        another = any(history.distance is not None and None in history.lifts for history in histories)
        phrases.append("?: not measured" + (", or another offset was best" if another else ""))
    if drop is not None:
        phrases.append(f"^: largest drop of the loss, {short(drop[1])} nats at step {step_text(drop[0])} (log grid)")
    return phrases


def _apart(histories: Sequence[HeadHistory]) -> int:
    """Find how far before an onset the snapshot before it lies, at most: by so much the onset may be earlier."""
    found = [0]
    for history in histories:
        onset, steps = history.onset, list(history.steps)
        if onset is not None and history.lead is not None and onset in steps[1:]:
            found.append(onset - steps[steps.index(onset) - 1])
    return max(found)


def _scale(target: str | None, surface: Surface) -> list[Phrase]:
    name = "lift" if target is None else f"lift on {target}"
    if surface.paints:
        return [f"{name}: 0 uniform, 1 all weight on the target", [("0 ", DIM), *color_bar(surface), (" 1", DIM)]]
    if surface.glyphs.braille:
        return [f"{name}: {_EIGHTHS[0]} 0 uniform, {_EIGHTHS[-1]} 1 all weight on the target"]
    dot = surface.glyphs.dot
    return [f"{name} in tenths: 0 uniform, 9 is 0.85 or more, {dot} is under 0.05"]
