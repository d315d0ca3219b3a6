"""Heads over training: onset and width of their lift, and whether they precede the drop of the loss. Plain Python.

A snapshot is taken after `step` updates, and losses must use the same count. Definitions: docs/heads.md.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence

from mhsa_cli.records.heads import HeadHistory, HeadSnapshot, SnapshotRecord
from mhsa_cli.text import Head

ONSET, IN_A_ROW = 0.5, 3  # the least lift, and for how many snapshots in a row
LOW, HIGH = 0.2, 0.8  # the lifts that the width lies between
PER_DOUBLING = 4  # cells of the log-step grid per doubling of the step


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
        onset = onset_of(steps, lifts)
        lead = None if drop is None or onset is None else drop[0] - onset
        distance = last.distance if goal == "offset" else None
        own = label if labelled == goal else ""
        found.append(HeadHistory(*last.address, goal, own, steps, lifts, onset, width_of(steps, lifts), lead, distance))
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


def onset_of(steps: Sequence[int], lifts: Sequence[float | None]) -> int | None:
    """Find the first of three snapshots in a row with lift >= 0.5; a missing lift breaks the row."""
    row = 0
    for place, lift in enumerate(lifts):
        row = row + 1 if lift is not None and lift >= ONSET else 0
        if row == IN_A_ROW:
            return steps[place - IN_A_ROW + 1]
    return None


def width_of(steps: Sequence[int], lifts: Sequence[float | None]) -> int | None:
    """Compute the steps from the first crossing of lift 0.2 to the first of 0.8; None if 0.8 was never reached.

    Lifts are interpolated linearly between snapshots. After a missing lift, and at the first snapshot, the crossing is
    at the snapshot itself.
    """
    low, high = (_crossing(steps, lifts, level) for level in (LOW, HIGH))
    return None if low is None or high is None else round(high - low)


def _crossing(steps: Sequence[int], lifts: Sequence[float | None], level: float) -> float | None:
    for place, lift in enumerate(lifts):
        if lift is None or lift < level:
            continue
        before = lifts[place - 1] if place else None
        if before is None:
            return steps[place]
        part = (level - before) / (lift - before)
        return steps[place - 1] + part * (steps[place] - steps[place - 1])
    return None


def largest_drop(losses: Iterable[tuple[int, float]]) -> tuple[int, float] | None:
    """Find the largest drop of the loss between neighbouring cells of a log-step grid: (step, nats), or None.

    The grid has four cells per doubling of the step, and a cell's loss is the mean in it. The step is where the lower
    cell begins.
    """
    cells: dict[int, array[float]] = {}
    for step, loss in losses:
        if step >= 0 and math.isfinite(loss):
            cells.setdefault(_cell_start(step), array("d")).append(loss)
    starts = sorted(cells)
    means = [math.fsum(cells[start]) / len(cells[start]) for start in starts]
    drops = [(before - after, step) for before, after, step in zip(means, means[1:], starts[1:], strict=False)]
    size, step = max(drops, key=lambda drop: drop[0], default=(0.0, 0))
    return (step, size) if size > 0 else None


def _cell_start(step: int) -> int:
    """Round a step down to the grid 0, 1, ..., 8, 10, 12, 14, 16, 20 ...: linear within a doubling."""
    width = max(1, (1 << step.bit_length() >> 1) // PER_DOUBLING)
    return step - step % width
