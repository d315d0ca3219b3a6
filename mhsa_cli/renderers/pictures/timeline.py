"""Heads over training: the loss curve, and under it, in the same columns, a strip for each head's lift."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from rich.cells import cell_len

from mhsa_cli.records.heads import HeadHistory
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.kit.cells import color_bar, digit
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.frame import Frame
from mhsa_cli.renderers.kit.glyphs import FULL
from mhsa_cli.renderers.kit.palette import DIM, PLAIN, clamp, heat_style, ink_style, level_of
from mhsa_cli.renderers.kit.text_lines import Grid, Lines, Phrase, Piece, cut, pad, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, short, step_text
from mhsa_cli.renderers.pictures.curve import loss_curve
from mhsa_cli.text import escape, plural

AVOIDS = -0.05  # a lift below this is marked: the head looks there less than a uniform one
GAP = 2  # columns between what stands beside the strips
_EIGHTHS = FULL.bars[1:]
_DROPPED_FIRST = ("width", "lift", "lead", "onset")
_MEANING = {
    "lift": "lift: at the last snapshot",
    "onset": "onset: first of 3 snapshots in a row at lift 0.5 or more",
    "width": "width: steps from lift 0.2 to 0.8",
    "lead": "lead: steps from onset to ^, below 0 if the head came later",
}


@dataclass(frozen=True, slots=True)
class _Side:
    """What stands beside the strips: columns, each a heading and a text a head, and the numbers that had no room.

    `notes` names the heads whose label had no room there.
    """

    columns: Sequence[Sequence[str]] = ()
    dropped: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def rows(self) -> list[str]:
        """Set the columns: the row of headings, then one for each head."""
        padded = []
        for column in self.columns:
            width, align = max(map(cell_len, column)), "right" if column[0] in _MEANING else "left"
            padded.append([pad(text, width, align) for text in column])
        return [(" " * GAP).join(texts) for texts in zip(*padded, strict=True)]

    @property
    def size(self) -> int:
        return max(map(cell_len, self.rows), default=0)


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

    A cell holds the last snapshot up to its step. `drop` is the loss's largest one, (step, nats), to be marked.
    `target` is given when all heads are held against that one score, whatever each of them ended as.
    """
    names = [history.name for history in histories]
    left = max(map(len, names), default=0) + 1
    side = _choose_side(histories, target, surface.width - left - 1, surface)
    curve = loss_curve(
        loss_series,
        surface,
        baseline=baseline,
        x_max=max(chain([1], *(one.steps for one in loss_series), *(history.steps for history in histories))),
        log_steps=True,
        left=left,
        right=side.size,
    )
    if not histories:
        return curve + wrap_phrases(["no snapshots of heads"], surface.width, DIM)
    frame, grid = curve.frame, Grid(surface.width, len(histories) + 1)
    for number, row in enumerate(side.rows):
        grid.put(frame.margin + frame.columns + 2, number, row, PLAIN if number else DIM)
    if drop is not None:
        grid.put(frame.cell(drop[0], frame.y_axis.low)[0], 0, "^", DIM)
    for number, (name, history) in enumerate(zip(names, histories, strict=True), 1):
        grid.put(frame.margin - 1 - len(name), number, name)
        grid.put(frame.margin, number, surface.glyphs.vertical, DIM)
        _put_strip(grid, number, history, frame, surface)
    phrases = _caption(histories, side, drop, target, surface)
    return curve.plot + grid.lines() + curve.notes + wrap_phrases(phrases, surface.width, DIM)


# -- what stands beside the strips ------------------------------------------------------------------------------------


def _choose_side(histories: Sequence[HeadHistory], target: str | None, room: int, surface: Surface) -> _Side:
    """Keep as much beside the strips as leaves the plot half of the room: all, then fewer numbers, shorter names."""
    if not histories:
        return _Side()
    mark = surface.glyphs.cut_text
    numbers = {
        name: [name, *(_number(history, name, surface.glyphs.dash) for history in histories)] for name in _MEANING
    }
    options = []
    for count in range(len(_DROPPED_FIRST) + 1):  # the fewest numbers dropped first, and of those the longest names
        kept = {name: texts for name, texts in numbers.items() if name not in _DROPPED_FIRST[:count]}
        for names, notes in _names(histories, target):
            columns = [*([names] if names else []), *kept.values()]
            options.append(_Side(columns, [name for name in numbers if name not in kept], notes))
    best = next((side for side in options if side.size <= room // 2), options[-1])
    if best.size <= room - 5:
        return best
    columns = [[cut(text, max(1, room - 5), mark) for text in column] for column in best.columns]
    return _Side(columns, best.dropped, best.notes)


def _names(histories: Sequence[HeadHistory], target: str | None) -> list[tuple[Sequence[str], Sequence[str]]]:
    """List ways to say what each strip is about, the most telling first: a heading and a text a head, and notes."""
    aims = [_aim(history) for history in histories]
    if target is not None:
        return [(["target", *aims] if target == "offset" else [], [])]
    if not any(history.label for history in histories):
        return [(["closest to", *aims], [])]
    texts = [escape(h.label) if h.label else f"closest to {aim}" for h, aim in zip(histories, aims, strict=True)]
    notes = [f"{h.name}: {text}" for h, text in zip(histories, texts, strict=True) if h.label]
    return [(["ended as", *texts], []), (["target", *aims], notes)]


def _aim(history: HeadHistory) -> str:
    distance = "" if history.distance is None else f" {history.distance}"
    return escape(history.target) + distance if history.target else "not measured"


def _number(history: HeadHistory, name: str, dash: str) -> str:
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


def _caption(
    histories: Sequence[HeadHistory],
    side: _Side,
    drop: tuple[int, float] | None,
    target: str | None,
    surface: Surface,
) -> list[Phrase]:
    """Explain the picture by phrases: the scale, what a cell holds, every column, and what is not there."""
    count, dash = len(histories[0].steps), surface.glyphs.dash
    phrases: list[Phrase] = [*([(note, PLAIN)] for note in side.notes), _scale(target, surface)]
    phrases.append(f"{plural(count, 'snapshot')}; a cell holds the last one up to its step")
    lifts = [lift for history in histories for lift in history.lifts]
    if any(lift is not None and lift < AVOIDS for lift in lifts):
        phrases.append("- in a strip: below 0, the head avoids it")
    if None in lifts:
        another = any(history.distance is not None and None in history.lifts for history in histories)
        phrases.append("?: not measured" + (", or another offset was best" if another else ""))
    if drop is not None:
        phrases.append(f"^ step {step_text(drop[0])}, where the loss fell most (log grid): {short(drop[1])} nats")
    titles = [column[0] for column in side.columns]
    phrases += [meaning for name, meaning in _MEANING.items() if name in titles]
    if "lead" in titles and (apart := _apart(histories)):
        phrases.append(f"an onset may be up to {step_text(apart)} steps earlier, where no snapshot was taken")
    if any(dash in column for column in side.columns):
        phrases.append(f"{dash} beside it: never, or not known")
    if side.dropped:
        phrases.append("no room for: " + ", ".join(side.dropped))
    return phrases


def _apart(histories: Sequence[HeadHistory]) -> int:
    """Find how far before an onset the snapshot before it lies, at most: by so much the onset may be earlier."""
    found = [0]
    for history in histories:
        onset, steps = history.onset, list(history.steps)
        if onset is not None and history.lead is not None and onset in steps[1:]:
            found.append(onset - steps[steps.index(onset) - 1])
    return max(found)


def _scale(target: str | None, surface: Surface) -> Phrase:
    name = "lift" if target is None else f"lift on {target}"
    if surface.paints:
        return [(f"{name}: 0 as uniform ", DIM), *color_bar(surface), (" 1 perfect", DIM)]
    if surface.glyphs.braille:
        return f"{name}: {_EIGHTHS[0]} 0 as uniform, {_EIGHTHS[-1]} 1 perfect"
    dot = surface.glyphs.dot
    return f"{name} in tenths: 0 as uniform, 1 perfect; 9 is 0.85 or more, {dot} is under 0.05"
