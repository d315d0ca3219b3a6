"""When every head of a run became what it is: its lifts over training, beside the loss."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mhsa_cli.core.heads.history import histories, largest_drop
from mhsa_cli.errors import MhsaError, RunError, UsageError
from mhsa_cli.jobs.history import History
from mhsa_cli.jobs.load_heads import check_maps, is_stale
from mhsa_cli.jobs.messages import tell
from mhsa_cli.records import HeadHistory, Series, SnapshotRecord
from mhsa_cli.runs.listing import HEADS, run_argument
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.snapshots import snapshots_from_lines
from mhsa_cli.text import Head


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run's heads over training. `series` is its loss, each at the number of updates before it.

    `drop` is the step at which the loss fell most, and by how much; `stored` is heads.json, `notes` what it says of the
    task as long as training did not go on after it.
    """

    snapshots: Sequence[SnapshotRecord]
    histories: Sequence[HeadHistory]
    series: Sequence[Series]
    drop: tuple[int, float] | None
    stored: Mapping[str, Any]
    notes: Sequence[str]


def timeline_of(folder: RunDir, target: str | None) -> Timeline:
    """Read a run's snapshots and follow each head's lift on `target`, or on the target that names it.

    Raises: RunError if the run has no snapshots, UsageError if there is no such target.
    """
    snapshots = _snapshots(folder)
    _check_target(target, snapshots)
    stored, series = _stored(folder), _losses(folder)
    found = histories(snapshots, _points(series), _labels(folder, stored), target)
    notes = [] if is_stale(folder, stored) else _notes(stored)
    return Timeline(snapshots, found, series, largest_drop(_points(series)), stored, notes)


def _snapshots(folder: RunDir) -> list[SnapshotRecord]:
    """Read the run's snapshots. Raises: RunError if there is none, UsageError if its block shows no weights."""
    check_maps(folder)
    found = snapshots_from_lines(folder.read_head_scores())
    if not found:
        hint = "runs of older versions have none; train it again, under a new name, to have them"
        raise RunError(f"{run_argument(folder.path)} has no scores of its heads over training in heads.jsonl", hint)
    return found


def _check_target(target: str | None, snapshots: Sequence[SnapshotRecord]) -> None:
    known = list(dict.fromkeys(name for one in snapshots for head in one.heads for name in head.lifts))
    if target is not None and target not in known:
        raise UsageError(
            f"--target {target}: there is no such score in this run",
            f"there is: {', '.join(known)}" if known else "these rows are too short for any",
        )


def _losses(folder: RunDir) -> list[Series]:
    """Read the losses, each at the number of updates before it, as the snapshots are counted.

    A training step's loss is measured before its own update.
    """
    return [
        replace(one, steps=array("q", (step - 1 for step in one.steps))) if one.role == "train" else one
        for one in History(folder, whole=True).series()
    ]


def _points(series: Sequence[Series]) -> Iterator[tuple[int, float]]:
    """Go through the training losses, one after the other."""
    for one in series:
        if one.role == "train":
            yield from ((step, loss) for step, loss in zip(one.steps, one.values, strict=True) if loss is not None)


def _stored(folder: RunDir) -> dict[str, Any]:
    """Read heads.json; nothing where it is missing, and a word where it cannot be read: the timeline stands alone."""
    if not (folder.path / HEADS).exists():
        return {}
    try:
        return folder.read_heads()
    except MhsaError as error:
        tell(f"note: {error.message}; labels and tokens are left out")
        return {}


def _labels(folder: RunDir, stored: Mapping[str, Any]) -> dict[Head, tuple[str, str]]:
    """Find the heads that were named, as (target, label), unless training went on after that."""
    heads = stored.get("heads")
    if not isinstance(heads, list) or is_stale(folder, stored):
        return {}
    found: dict[Head, tuple[str, str]] = {}
    for head in heads:
        if isinstance(head, dict):
            layer, number, target, label = (head.get(key) for key in ("layer", "head", "target", "label"))
            if not isinstance(layer, int) or not isinstance(number, int):
                continue
            if isinstance(target, str) and target and isinstance(label, str) and label:
                found[Head(layer, number)] = (target, label)
    return found


def _notes(stored: Mapping[str, Any]) -> list[str]:
    """Collect what a reader must know of the task, and that the patterns do not matter, where that was measured."""
    verdict = stored.get("verdict")
    idle = isinstance(verdict, dict) and verdict.get("pattern_matters") is False
    texts = [verdict.get("text") if isinstance(verdict, dict) and idle else None, stored.get("note")]
    return [text for text in texts if isinstance(text, str) and text]
