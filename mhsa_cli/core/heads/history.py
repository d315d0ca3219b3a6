"""When a head became what it is: its lift over training, and whether it came before the loss fell. Plain Python.

A snapshot is measured after `step` updates; losses must be placed the same way. Definitions: docs/heads.md.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence

from mhsa_cli.records.heads import HeadHistory, HeadSnapshot, SnapshotRecord
from mhsa_cli.text import Head

ONSET, IN_A_ROW = 0.5, 3  # the lift that a head must keep for so many snapshots
LOW, HIGH = 0.2, 0.8  # the lifts that the width lies between
PER_DOUBLING = 4  # cells of the log-step grid for each doubling of the step


def histories(
    snapshots: Sequence[SnapshotRecord],
    losses: Iterable[tuple[int, float]],
    labels: Mapping[Head, tuple[str, str]] | None = None,
    target: str | None = None,
) -> list[HeadHistory]:
    """Follow every head's lift on one target over the snapshots, which come in order of their steps.

    The target is `target` if given, else the one that `labels` names by (layer, head) as (target, label), else the one
    of largest lift at the last snapshot; the label is "" where `labels` does not name that target. `losses` are (step,
    nats). An offset's lift is that of the last snapshot's distance. What was not measured is None.
    """
    drop = largest_drop(losses)
    found = []
    for number, last in enumerate(snapshots[-1].heads if snapshots else ()):
        own = (labels or {}).get(last.address)
        aim = target if target is not None else own[0] if own is not None else closest(last)
        label = own[1] if own is not None and own[0] == aim else ""
        heads = [snapshot.heads[number] for snapshot in snapshots]
        steps = [snapshot.step for snapshot in snapshots]
        lifts = [_lift(head, aim, last.distance) for head in heads]
        onset = onset_of(steps, lifts)
        lead = None if drop is None or onset is None else drop[0] - onset
        distance = last.distance if aim == "offset" else None
        width = width_of(steps, lifts)
        found.append(HeadHistory(last.layer, last.head, aim, label, steps, lifts, onset, width, lead, distance))
    return found


def closest(head: HeadSnapshot) -> str:
    """Name the target of largest lift, "" if none was measured."""
    measured = {name: lift for name, lift in head.lifts.items() if math.isfinite(lift)}
    return max(measured, key=lambda name: measured[name], default="")


def _lift(head: HeadSnapshot, target: str, distance: int | None) -> float | None:
    """Read one lift. Of an offset whose distance is not kept, a snapshot tells only whether it was the best."""
    lift = head.lifts.get(target, math.nan)
    another = target == "offset" and head.distance != distance
    if target == "offset" and distance is not None and distance in head.offsets:
        lift, another = head.offsets[distance], False
    return None if another or not math.isfinite(lift) else lift


def onset_of(steps: Sequence[int], lifts: Sequence[float | None]) -> int | None:
    """Find the first of three snapshots in a row with a lift of 0.5 or more; what was not measured breaks the row."""
    row = 0
    for place, lift in enumerate(lifts):
        row = row + 1 if lift is not None and lift >= ONSET else 0
        if row == IN_A_ROW:
            return steps[place - IN_A_ROW + 1]
    return None


def width_of(steps: Sequence[int], lifts: Sequence[float | None]) -> int | None:
    """Count the steps from the first crossing of lift 0.2 to the first of 0.8; None if it never reached 0.8.

    Between two snapshots the lift is taken to rise in a straight line, so a rise faster than they lie apart is not
    told as 0 steps. After a gap, and at the first snapshot, the crossing is at the snapshot itself.
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
    """Find where the loss fell most on a grid of log steps: (step, nats), None if it never fell.

    The grid has four cells for each doubling of the step. A cell's loss is the mean of those in it; the step is where
    the lower of two neighbouring cells begins.
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
    """Round a step down to the grid 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 ...: linear within a doubling."""
    width = max(1, (1 << step.bit_length() >> 1) // PER_DOUBLING)
    return step - step % width
