"""Heads over training: the loss curve, and under it, in the same columns, a strip for each head's lift."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.style import Style

from mhsa_cli.records import HeadHistory, Series
from mhsa_cli.renderers.kit.cells import color_bar, digit
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.frame import Frame
from mhsa_cli.renderers.kit.palette import DIM, PLAIN, clamp, heat_style, ink_style, level_of
from mhsa_cli.renderers.kit.text_lines import Grid, Lines, Phrase, Piece, cut, pad, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, short, step_text
from mhsa_cli.renderers.pictures.curve import loss_curve
from mhsa_cli.text import escape, plural

AVOIDS = -0.05  # a lift below this is marked: the head looks there less than a uniform one
GAP = 2  # columns between what stands beside the strips
_EIGHTHS = "▁▂▃▄▅▆▇█"
_NUMBERS = ("lift", "onset", "width", "lead")
_DROPPED_FIRST = ("width", "lift", "lead", "onset")
_MEANING = {
    "lift": "lift: at the last snapshot",
    "onset": "onset: first of 3 snapshots in a row at lift 0.5 or more",
    "width": "width: steps from lift 0.2 to 0.8",
    "lead": "lead: steps from onset to ^, below 0 if the head came later",
}


@dataclass(frozen=True, slots=True)
class _Side:
    """What stands beside the strips: headings and one row of texts a head, `size` columns wide, and what had no room.

    `notes` names the heads whose label had no room there.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    widths: Sequence[int]
    dropped: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def size(self) -> int:
        return sum(self.widths) + GAP * max(0, len(self.widths) - 1)


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
    names = [f"L{history.layer}.H{history.head}" for history in histories]
    left = max(map(len, names), default=0) + 1
    side = _choose_side(histories, target, surface.width - left - 1, surface)
    curve = loss_curve(
        loss_series,
        surface,
        baseline=baseline,
        x_max=_last_step(loss_series, histories),
        log_steps=True,
        left=left,
        right=side.size,
    )
    if not histories:
        return curve + wrap_phrases(["no snapshots of heads"], surface.width, DIM)
    frame, grid = curve.frame, Grid(surface.width, len(histories) + 1)
    beside = frame.margin + frame.columns + 2
    _put_row(grid, beside, 0, side.titles, side, DIM)
    if drop is not None:
        grid.put(frame.cell(drop[0], frame.y_axis.low)[0], 0, "^", DIM)
    for number, (name, history) in enumerate(zip(names, histories, strict=True), 1):
        grid.put(frame.margin - 1 - len(name), number, name)
        grid.put(frame.margin, number, surface.glyphs.vertical, DIM)
        _put_strip(grid, number, history, frame, surface)
        _put_row(grid, beside, number, side.rows[number - 1], side, PLAIN)
    phrases = _caption(histories, side, drop, target, surface)
    return curve.plot + grid.lines() + curve.notes + wrap_phrases(phrases, surface.width, DIM)


def _last_step(loss_series: Sequence[Series], histories: Sequence[HeadHistory]) -> int:
    steps = [step for one in loss_series for step in one.steps]
    return max([1, *steps, *(step for history in histories for step in history.steps)])


# -- what stands beside the strips ------------------------------------------------------------------------------------


def _choose_side(histories: Sequence[HeadHistory], target: str | None, room: int, surface: Surface) -> _Side:
    """Keep as much beside the strips as leaves the plot half of the room: all, then fewer numbers, shorter names."""
    if not histories:
        return _Side((), (), ())
    dash = surface.glyphs.dash
    numbers = {name: [_number(history, name, dash) for history in histories] for name in _NUMBERS}
    options = []
    for title, texts, notes in _names(histories, target):
        for count in range(len(_DROPPED_FIRST) + 1):
            dropped = _DROPPED_FIRST[:count]
            columns = {title: texts} if texts else {}
            columns |= {name: numbers[name] for name in _NUMBERS if name not in dropped}
            widths = [max(map(cell_len, [head, *cells])) for head, cells in columns.items()]
            rows = [[cells[row] for cells in columns.values()] for row in range(len(histories))]
            options.append(_Side(list(columns), rows, widths, [n for n in _NUMBERS if n in dropped], notes))
    # The fewest numbers dropped first, and of those the longest names that fit.
    options.sort(key=lambda side: len(side.dropped))
    best = next((side for side in options if side.size <= room // 2), options[-1])
    if best.size <= room - 5:
        return best
    size = max(1, room - 5)
    rows = [[cut(text, size, surface.glyphs.cut_text) for text in row] for row in best.rows]
    titles = [cut(text, size, surface.glyphs.cut_text) for text in best.titles]
    return _Side(titles, rows, [min(size, wide) for wide in best.widths], best.dropped, best.notes)


def _names(histories: Sequence[HeadHistory], target: str | None) -> list[tuple[str, Sequence[str], Sequence[str]]]:
    """List ways to say what each strip is about, the most telling first: heading, a text a head, notes."""
    aims = [_aim(history) for history in histories]
    if target is not None:
        return [("target", aims if target == "offset" else (), ())]
    if not any(history.label for history in histories):
        return [("closest to", aims, ())]
    texts = [escape(h.label) if h.label else f"closest to {aim}" for h, aim in zip(histories, aims, strict=True)]
    notes = [f"L{h.layer}.H{h.head}: {text}" for h, text in zip(histories, texts, strict=True) if h.label]
    return [("ended as", texts, ()), ("target", aims, notes)]


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
    return (
        f"{'-' if value < 0 else '+' if value else ''}{step_text(abs(value))}" if name == "lead" else step_text(value)
    )


def _put_row(grid: Grid, x: int, y: int, texts: Sequence[str], side: _Side, style: Style) -> None:
    for title, text, wide in zip(side.titles, texts, side.widths, strict=True):
        grid.put(x, y, pad(text, wide, "right" if title in _NUMBERS else "left"), style)
        x += wide + GAP


# -- the strips -------------------------------------------------------------------------------------------------------


def _put_strip(grid: Grid, y: int, history: HeadHistory, frame: Frame, surface: Surface) -> None:
    """Paint one head's cells; nothing stands before its first snapshot and after its last."""
    last: Mapping[int, float | None] = {
        frame.cell(step, frame.y_axis.low)[0]: lift for step, lift in zip(history.steps, history.lifts, strict=False)
    }
    places = sorted(last)
    for place, stop in zip(places, [*places[1:], places[-1] + 1] if places else [], strict=True):
        text, style = _cell(last[place], surface)
        for x in range(place, stop):
            grid.put(x, y, text, style)


def _cell(lift: float | None, surface: Surface) -> Piece:
    if lift is None or not math.isfinite(lift):
        return "?", DIM
    if lift < AVOIDS:
        return "-", ink_style(0, surface.depth) if surface.paints else PLAIN
    if surface.paints:
        return " ", heat_style(None, level_of(lift), surface.depth)
    if _has_eighths(surface):
        return _EIGHTHS[min(7, int(clamp(lift) * 8))], PLAIN
    text = digit(lift)
    return (text, PLAIN) if text else (surface.glyphs.dot, DIM)


def _has_eighths(surface: Surface) -> bool:
    return set(_EIGHTHS) <= set(surface.glyphs.bars)


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
    phrases += [_MEANING[name] for name in _NUMBERS if name in side.titles]
    if "lead" in side.titles and (apart := _apart(histories)):
        phrases.append(f"an onset may be up to {step_text(apart)} steps earlier, where no snapshot was taken")
    if any(dash in row for row in side.rows):
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
    if _has_eighths(surface):
        return f"{name}: {_EIGHTHS[0]} 0 as uniform, {_EIGHTHS[-1]} 1 perfect"
    dot = surface.glyphs.dot
    return f"{name} in tenths: 0 as uniform, 1 perfect; 9 is 0.85 or more, {dot} is under 0.05"
