"""Heads over training: when each formed, and whether that was before the drop of the loss. Plain Python.

Every figure is relative to a head's own end, and what lies between two snapshots is an interval. A snapshot is taken
after `step` updates, and losses must use the same count. Definitions: docs/reference/heads.md.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mhsa_cli.records.claims import Claim, Status
from mhsa_cli.records.timeline import HeadHistory, HeadSnapshot, Interval, LossDrop, SnapshotRecord
from mhsa_cli.text import Head

LAST = 3  # snapshots whose mean is a head's final lift
FORMED = 0.2  # the least final lift of a head that has formed
HALF, IN_A_ROW = 0.5, 3  # of the final lift, and for how many snapshots in a row
LOW, HIGH = 0.2, 0.8  # the parts of the final lift that the rise lies between
PER_DOUBLING = 4  # cells of the log-step grid per doubling of the step
CLEAR = 2  # standard errors by which a drop of the loss is smaller than the largest

Lifts = Sequence[float | None]


def histories(
    snapshots: Sequence[SnapshotRecord],
    losses: Iterable[tuple[int, float]],
    labels: Mapping[Head, tuple[str, str]] | None = None,
    target: str | None = None,
) -> list[HeadHistory]:
    """Follow every head's lift on one target over the snapshots, in order of steps; None where not measured.

    The target is `target`, else the head's in `labels` (values are target and label), else the one of largest lift at
    the end. An offset is followed at its last distance. `losses` are (step, nats).
    """
    drop = largest_drop(losses)
    steps = [snapshot.step for snapshot in snapshots]
    found = []
    for number, last in enumerate(snapshots[-1].heads if snapshots else ()):
        labelled, label = (labels or {}).get(last.address, (None, ""))
        goal = target if target is not None else labelled if labelled is not None else closest(last)
        lifts = [_lift(snapshot.heads[number], goal, last.distance) for snapshot in snapshots]
        formation = formation_of(steps, lifts)
        found.append(
            HeadHistory(
                *last.address,
                target=goal,
                label=label if labelled == goal else "",
                steps=steps,
                lifts=lifts,
                final=final_lift(lifts),
                onset=None if formation is None else formation.onset,
                rise=None if formation is None else formation.rise,
                width=None if formation is None else formation.width,
                lead=None if drop is None or formation is None else drop.interval.minus(formation.rise),
                distance=last.distance if goal == "offset" else None,
            )
        )
    return found


def closest(head: HeadSnapshot) -> str:
    """Return the target of largest lift, "" if none was measured."""
    measured = {name: lift for name, lift in head.lifts.items() if math.isfinite(lift)}
    return max(measured, key=lambda name: measured[name], default="")


def _lift(head: HeadSnapshot, target: str, distance: int | None) -> float | None:
    lift = head.lifts.get(target, math.nan)
    if target == "offset" and distance is not None and distance in head.offsets:
        lift = head.offsets[distance]
    elif target == "offset" and head.distance != distance:  # only the lift of the best distance is stored
        return None
    return lift if math.isfinite(lift) else None


# -- when a head formed -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Formation:
    """When a head formed: its onset, its rise from 20% to 80% of its final lift, and how many steps that took."""

    onset: Interval
    rise: Interval
    width: int


def final_lift(lifts: Lifts) -> float | None:
    """Average the last three lifts, without those not measured; None if none was."""
    measured = [lift for lift in lifts[-LAST:] if lift is not None]
    return math.fsum(measured) / len(measured) if measured else None


def formation_of(steps: Sequence[int], lifts: Lifts) -> Formation | None:
    """Find when a head formed; None if its final lift is below 0.2, or 80% of it was there from the start.

    The onset is the first of three snapshots in a row with at least half of the final lift; a missing lift breaks the
    row. It lies after the last snapshot below half, the rise between the last one below 20% and the first from the
    onset on with 80%. The width is interpolated.
    """
    end, start = final_lift(lifts), next((lift for lift in lifts if lift is not None), None)
    if end is None or start is None or end < FORMED or start >= HIGH * end:
        return None
    row = 0
    for place, lift in enumerate(lifts):
        row = row + 1 if lift is not None and lift >= HALF * end else 0
        if row == IN_A_ROW:
            return _formation(steps, lifts, place - IN_A_ROW + 1, end)
    return None


def _formation(steps: Sequence[int], lifts: Lifts, onset: int, end: float) -> Formation:
    points = [(step, lift) for step, lift in zip(steps, lifts, strict=True) if lift is not None]
    before = [(step, lift) for step, lift in points if step < steps[onset]]
    below_half = [step for step, lift in before if lift < HALF * end]
    below_low = [step for step, lift in before if lift < LOW * end]
    high = next((step for step, lift in points if step >= steps[onset] and lift >= HIGH * end), steps[-1])
    low = below_low[-1] if below_low else steps[0]
    after_low = next(step for step, _ in points if step > low) if below_low else low
    width = _crossing(points, high, HIGH * end) - _crossing(points, after_low, LOW * end)
    half = Interval(below_half[-1] if below_half else steps[0], steps[onset])
    return Formation(half, Interval(low, high), round(width))


def _crossing(points: Sequence[tuple[int, float]], step: int, level: float) -> float:
    """Interpolate where the lift crossed a level between the snapshot before `step` and the one there."""
    for (first, before), (second, after) in pairwise(points):
        if second == step and before < level <= after:
            return first + (level - before) / (after - before) * (second - first)
    return step


# -- the drop of the loss ---------------------------------------------------------------------------------------------


def largest_drop(losses: Iterable[tuple[int, float]]) -> LossDrop | None:
    """Find the largest drop of the loss between neighbouring cells of a log-step grid; None if it never falls.

    The grid has four cells per doubling of the step, and a cell's loss is the mean in it. The step is where the lower
    cell begins. The interval is both cells, with those of every drop that is not smaller by two standard errors.
    """
    cells: dict[int, array[float]] = {}
    last = 0
    for step, loss in losses:
        if step >= 0 and math.isfinite(loss):
            cells.setdefault(_cell_start(step), array("d")).append(loss)
            last = max(last, step)
    starts = sorted(cells)
    means = [math.fsum(cells[start]) / len(cells[start]) for start in starts]
    drops = [before - after for before, after in pairwise(means)]
    if max(drops, default=0.0) <= 0:
        return None
    errors = [sum(pair) for pair in pairwise(_squared_errors([cells[start] for start in starts]))]
    best = drops.index(max(drops))
    near = [
        place
        for place, (drop, error) in enumerate(zip(drops, errors, strict=True))
        if drop >= drops[best] - CLEAR * math.sqrt(error + errors[best])
    ]
    ends = [*(start - 1 for start in starts[1:]), last]
    return LossDrop(starts[best + 1], drops[best], Interval(starts[near[0]], ends[near[-1] + 1]))


def _squared_errors(cells: Sequence[array[float]]) -> list[float]:
    """Estimate the squared standard error of each cell's mean from the differences of successive losses.

    These do not contain the trend within a cell (von Neumann 1941). A cell of one loss takes the next one's variance.
    """
    found, variance = [], 0.0
    for cell in reversed(cells):
        if len(cell) > 1:
            variance = math.fsum((b - a) ** 2 for a, b in pairwise(cell)) / (2 * (len(cell) - 1))
        found.append(variance / len(cell))
    return found[::-1]


def _cell_start(step: int) -> int:
    """Round a step down to the grid 0, 1, ..., 8, 10, 12, 14, 16, 20 ...: linear within a doubling."""
    width = max(1, (1 << step.bit_length() >> 1) // PER_DOUBLING)
    return step - step % width


# -- what may be said -------------------------------------------------------------------------------------------------


def head_claims(history: HeadHistory) -> list[Claim]:
    """State when a head formed, and whether that was before the largest drop of the loss."""
    if history.onset is None:
        return [Claim(history.name, "onset", history.final, reference=FORMED, status=Status.NOT_SHOWN)]
    found = [Claim(history.name, "onset", history.final, evidence=_ends(history.onset))]
    if history.lead is not None:
        found.append(Claim(history.name, "lead", status=status_of(history.lead), evidence=_ends(history.lead)))
    return found


def order_claims(found: Sequence[HeadHistory]) -> list[Claim]:
    """Compare each previous-token head with the induction heads of later layers: which formed first, if either.

    Heads must have the label. An order is shown only where one head's rise ended before the other's began; the
    interval holds how much later all `second` heads of a claim formed.
    """
    claims = []
    risen = [(history, history.rise) for history in found if history.label and history.rise is not None]
    for first, rise in risen:
        later = [(h, r.minus(rise)) for h, r in risen if h.target == "induction" and h.layer > first.layer]
        for status in Status if first.target == "previous" else ():
            group = [(history.name, apart) for history, apart in later if status_of(apart) is status]
            if group:
                both = Interval(min(apart.low for _, apart in group), max(apart.high for _, apart in group))
                evidence = {"first": first.name, "second": [name for name, _ in group], **_ends(both)}
                claims.append(Claim(first.name, "order", status=status, evidence=evidence))
    return claims


def status_of(apart: Interval) -> Status:
    """Judge a number of steps between two moments by its interval: shown if all of it is on one side of 0."""
    return Status.SHOWN if apart.low > 0 else Status.OPPOSITE if apart.high < 0 else Status.NOT_SHOWN


def _ends(interval: Interval) -> dict[str, int]:
    return {"low": interval.low, "high": interval.high}
