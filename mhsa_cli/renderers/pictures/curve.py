"""The loss curve: a line for training, points for evaluation, and notes on what neither can show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.style import Style

from mhsa_cli.records.thinning import THIN_TO, Point, thin
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.frame import Frame, value_ticks
from mhsa_cli.renderers.kit.palette import DIM, PLAIN, alarm_style, line_style
from mhsa_cli.renderers.kit.text_lines import Grid, Lines, Phrase, Piece, assemble, cut, cut_middle, wrap_phrases
from mhsa_cli.renderers.kit.ticks import Axis, short, step_text
from mhsa_cli.text import escape

FINITE = Axis(0.0, 1.0)  # has a place for every finite value
LABELS_FROM = 56  # columns; below, the labels become a legend under the axis
_LETTERS = "abcdefghijklmnpqrstuvwyzABCDEFGHIJKLMNPQRSTUVWYZ"  # no o and no x: those are markers


@dataclass(slots=True)
class _Line:
    """One series to be drawn: thinned points, a style, and the letter of its line or points, if any."""

    name: str
    points: list[Point]
    is_eval: bool
    style: Style
    letter: str


class Level(NamedTuple):
    """A loss that does not change with the steps, as that of chance, and its label: drawn as a dim dashed line."""

    value: float
    label: str


def labelled_levels(losses: Mapping[str, float]) -> list[Level]:
    """Return losses, as those of chance and of baselines, with their labels."""
    return [Level(loss, f"{name} {loss:.2f}") for name, loss in losses.items()]


def known_levels(facts: Mapping[str, Any]) -> list[Level]:
    """Return the levels that the facts of a run know."""
    chance = (facts.get("chance") or {}).get("loss")
    return [] if chance is None else labelled_levels({"chance": chance, **(facts.get("baselines") or {})})


class _Label(NamedTuple):
    """The label at the end of a line: the value it points at, and its text."""

    value: float
    pieces: list[Piece]


class LossCurve(Lines):
    """A loss curve, also in parts: pictures can continue below its axis in the columns of `frame`."""

    def __init__(self, plot: Lines, notes: Lines, frame: Frame) -> None:
        super().__init__([*plot, *notes])
        self.plot, self.notes, self.frame = plot, notes, frame


def loss_curve(
    series: Sequence[Series],
    surface: Surface,
    *,
    height: int = 12,
    levels: Sequence[Level] = (),
    log: bool = False,
    x_max: int | None = None,
    y_max: float | None = None,
    log_steps: bool = False,
    left: int = 0,
    right: int = 0,
    labelled: bool = True,
) -> LossCurve:
    """Draw series over steps, `height` rows of plot plus axis and notes.

    `levels` are drawn as dim dashed lines. `x_max` and `y_max` fix the frame, as a live plot needs; values above it
    are drawn at its top and a note says so. NaN, infinities and None are gaps with a note.
    `log_steps` sets the steps 0, 1, 2, ... by the logarithm of 1 + step; `left` and `right` are columns that the plot
    leaves free on its sides at least. Without labels something beside the plot must name its lines.
    """
    width, height = surface.width, max(2, height)
    lines = _prepare(series, surface)
    x_axis, y_axis = _step_axis(lines, x_max, log_steps), _value_axis(lines, levels, log, y_max)
    ticks = value_ticks(y_axis, height)
    margin = max([2, left, *(len(text) + 1 for text, _ in ticks)])
    labels = _labels(lines, levels, y_axis, surface) if labelled else []
    label_width = max((assemble(label.pieces).cell_len for label in labels), default=0)
    beside = len(labels) <= height and (label_width <= right or (width >= LABELS_FROM and label_width <= width // 3))
    taken = max(right, label_width if beside else 0)
    columns = max(4, width - margin - 1 - (taken + 1 if taken else 0))
    frame = Frame(Grid(width, height + 2), margin, columns, height, x_axis, y_axis, surface)
    frame.axes(ticks)
    for level in levels:
        if y_axis.shows(level.value):
            frame.baseline(level.value)
    for line in lines:
        if not line.is_eval:
            frame.line(line.points, line.style, line.letter)
    for line in lines:
        if line.is_eval:
            frame.points(line.points, line.style, line.letter)
        frame.gaps(line.points, alarm_style(surface.depth))
    if beside:
        _put_labels(frame, labels)
    under = Lines() if beside else wrap_phrases([label.pieces for label in labels], width)
    notes = wrap_phrases(_notes(lines, y_axis, surface), width, DIM)
    head = "loss (nats)" + (", log scale" if log else "") + (", log steps" if log_steps else "")
    return LossCurve(wrap_phrases([head], width, DIM) + frame.grid.lines(), under + notes, frame)


def _prepare(series: Sequence[Series], surface: Surface) -> list[_Line]:
    """Thin each series and choose its colour, one for each run."""
    owners = list(dict.fromkeys(one.run or one.name for one in series))
    many = sum(one.role != "eval" for one in series) > 1
    lines = []
    for one in series:
        is_eval, index = one.role == "eval", owners.index(one.run or one.name)
        letter = _LETTERS[index % len(_LETTERS)] if many and surface.depth == "none" else ""
        letter = letter.upper() if is_eval else letter  # its evaluation points
        # Three points for each of the two dots a column has: the highest, the lowest and a gap are all kept.
        points = thin(one.points, min(THIN_TO, 6 * surface.width))
        lines.append(_Line(escape(one.name), points, is_eval, line_style(index, surface.depth), letter))
    return lines


def _value_axis(lines: Sequence[_Line], levels: Sequence[Level], log: bool, y_max: float | None) -> Axis:
    scale = Axis(0.0, 1.0, log)
    values = [value for line in lines for _, value in line.points if scale.shows(value)]
    values += [level.value for level in levels if scale.shows(level.value)]
    top = y_max if y_max is not None and math.isfinite(y_max) else max(values, default=1.0)
    if log:
        low = min(values, default=0.1)
        top = top if top > low else low * 2
        return Axis(low, top, log=True) if math.isfinite(top) else Axis(low / 2, low, log=True)
    low = min(0.0, *values, 0.0)
    return Axis(low, top if top > low else low + 1.0)


def _step_axis(lines: Sequence[_Line], x_max: int | None, log_steps: bool) -> Axis:
    steps = [step for line in lines for step, _ in line.points]
    low, high = min(steps, default=0), max(steps, default=1)
    if x_max is not None or log_steps:
        return Axis(0.0, float(max(1, high if x_max is None else x_max)), log1p=log_steps)
    # A run resumed late would be squeezed into the right end of a frame that begins at 0.
    return Axis(float(low) if high / 2 < low < high else 0.0, float(max(1, high)))


def _labels(lines: Sequence[_Line], levels: Sequence[Level], axis: Axis, surface: Surface) -> list[_Label]:
    glyphs, width = surface.glyphs, surface.width
    labels = []
    for line in lines:
        last = next((value for _, value in reversed(line.points) if FINITE.shows(value)), None)
        mark = line.letter or (glyphs.point if line.is_eval else glyphs.line)
        value = "" if last is None else " " + short(last)
        name = cut_middle(line.name, width - len(value) - 2, glyphs.cut_text)
        pieces: list[Piece] = [(f"{mark} {name}", line.style), (value, PLAIN)]
        labels.append(_Label(axis.low if last is None else last, pieces))
    for level in levels:
        if axis.shows(level.value):
            text = cut(escape(level.label), width - 2, glyphs.cut_text)
            labels.append(_Label(level.value, [(f"{glyphs.baseline} ", DIM), (text, DIM)]))
    return labels


def _put_labels(frame: Frame, labels: Sequence[_Label]) -> None:
    """Put each label in the row of its line's end; labels of one row are pushed apart."""
    wanted = sorted((frame.cell(frame.x_axis.high, label.value)[1], number) for number, label in enumerate(labels))
    rows: list[int] = []
    for row, _ in wanted:
        rows.append(max(row, rows[-1] + 1) if rows else row)
    limit = frame.height - 1
    for place in range(len(rows) - 1, -1, -1):  # those pushed below the frame push back up
        rows[place] = min(rows[place], limit)
        limit = rows[place] - 1
    left = frame.margin + frame.columns + 2
    for row, (_, number) in zip(rows, wanted, strict=True):
        x = left
        for text, style in labels[number].pieces:
            frame.grid.put(x, row, text, style)
            x += cell_len(text)


def _notes(lines: Sequence[_Line], axis: Axis, surface: Surface) -> list[Phrase]:
    """Write what was not drawn where it belongs."""
    notes: list[Phrase] = []
    if not any(line.points for line in lines):
        notes.append("no steps recorded yet")
    for line in lines:
        owner = f" ({line.name})" if len(lines) > 1 else ""
        gaps: dict[str, list[int]] = {"NaN": [], "infinite loss": [], "no value": []}
        for step, value in line.points:
            if not FINITE.shows(value):
                gaps["no value" if value is None else "NaN" if math.isnan(value) else "infinite loss"].append(step)
        for word, steps in gaps.items():
            if steps:
                more = f", last at step {step_text(steps[-1])}" if len(steps) > 1 else ""
                where = f"{surface.glyphs.cross} {word} at step {step_text(steps[0])}{more}{owner}"
                notes.append([(where, alarm_style(surface.depth))])
        finite = [(value, step) for step, value in line.points if FINITE.shows(value)]
        if finite and (top := max(finite))[0] > axis.high:
            notes.append(f"above the frame: {short(top[0])} at step {step_text(top[1])}{owner}")
        if axis.log and any(value <= 0 for value, _ in finite):
            notes.append(f"values of 0 or less are not on the log scale{owner}")
    return notes
