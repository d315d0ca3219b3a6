"""When every head of a run became what it is: its lifts over training, beside the loss."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mhsa_cli.core.heads.history import histories, largest_drop
from mhsa_cli.errors import MhsaError, RunError, UsageError
from mhsa_cli.jobs.history import History
from mhsa_cli.jobs.load_heads import check_maps, is_stale
from mhsa_cli.jobs.messages import tell
from mhsa_cli.records.claim_words import sentences
from mhsa_cli.records.heads import HeadHistory, HeadMaps, SnapshotRecord
from mhsa_cli.records.training import Series
from mhsa_cli.runs.heads import maps_from_dict, snapshots_from_lines
from mhsa_cli.runs.listing import HEADS, SCORES, run_argument
from mhsa_cli.runs.run_dir import RunDir


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run's heads over training. `series` is its loss, each at the number of updates before it.

    `drop` is the step at which the loss fell most, and by how much; `maps` are those of heads.json, `notes` what it
    says of the task as long as training did not go on after it.
    """

    snapshots: Sequence[SnapshotRecord]
    histories: Sequence[HeadHistory]
    series: Sequence[Series]
    drop: tuple[int, float] | None
    maps: HeadMaps | None
    notes: Sequence[str]


def timeline_of(folder: RunDir, target: str | None) -> Timeline:
    """Read a run's snapshots and follow each head's lift on `target`, or on the target that names it.

    Raises: RunError if the run has no snapshots, UsageError if there is no such target.
    """
    snapshots = _snapshots(folder)
    _check_target(target, snapshots)
    (maps, stale), series = _stored(folder), _losses(folder)
    report = None if maps is None or stale else maps.report
    heads = [] if report is None else report.heads
    labels = {h.address: (h.target, h.label.text) for h in heads if h.label is not None and h.target is not None}
    found = histories(snapshots, _points(series), labels, target)
    notes = [sentences(report.verdict.claims)] if report is not None and report.verdict.pattern_matters is False else []
    notes += [maps.note] if maps is not None and not stale and maps.note else []
    return Timeline(snapshots, found, series, largest_drop(_points(series)), maps, notes)


def _snapshots(folder: RunDir) -> list[SnapshotRecord]:
    """Read the run's snapshots. Raises: RunError if there is none, UsageError if its block shows no weights."""
    check_maps(folder)
    found = snapshots_from_lines(folder.records(SCORES))
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
            yield from ((step, loss) for step, loss in one.points if loss is not None)


def _stored(folder: RunDir) -> tuple[HeadMaps | None, bool]:
    """Read heads.json, and tell whether training went on after it.

    None where it is missing, or cannot be read, which is told: the timeline stands alone.
    """
    if not (folder.path / HEADS).exists():
        return None, False
    try:
        content = folder.read_heads()
        return maps_from_dict(content), is_stale(folder, content)
    except MhsaError as error:
        tell(f"note: {error.message}; labels and tokens are left out")
        return None, False
