"""The lifts of a run's heads over training, with the loss."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mhsa_cli.core.heads.history import head_claims, histories, largest_drop, order_claims
from mhsa_cli.errors import MhsaError, RunError, unwanted
from mhsa_cli.jobs.history import History
from mhsa_cli.jobs.kept_scores import TARGET, VALUE, kept_score
from mhsa_cli.jobs.load_heads import check_maps, is_stale
from mhsa_cli.jobs.messages import tell
from mhsa_cli.records.claim_words import sentences
from mhsa_cli.records.claims import Claim
from mhsa_cli.records.heads import HeadMaps, HeadReport
from mhsa_cli.records.timeline import HeadHistory, LossDrop, SnapshotRecord
from mhsa_cli.records.training import Series
from mhsa_cli.runs.heads import maps_from_dict, snapshot_maps, snapshots_from_lines
from mhsa_cli.runs.listing import HEADS, SCORES, run_argument
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head, either


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run's heads over training. `series` are its losses, each at the number of updates before it.

    `drop` is the largest drop of the loss. `claims` are those of each head, and `orders` those of pairs of heads.
    `maps` are those of heads.json, `notes` its notes on the task unless training continued after it. `scale` is the
    least and the largest value of a score of the user's own that is followed and is no weight on a target.
    """

    snapshots: Sequence[SnapshotRecord]
    histories: Sequence[HeadHistory]
    series: Sequence[Series]
    drop: LossDrop | None
    claims: Sequence[Sequence[Claim]]
    orders: Sequence[Claim]
    maps: HeadMaps | None
    notes: Sequence[str]
    scale: tuple[float, float] | None = None

    @property
    def in_context(self) -> list[tuple[int, float | None]]:
        """The in-context scores of the model with their steps."""
        return [(one.step, one.in_context) for one in self.snapshots]


def timeline_of(folder: RunDir, target: str | None, score: str | None = None) -> Timeline:
    """Read a run's snapshots and follow each head's lift on `target`, by default the target of its label.

    `score` names a score of the user's own that the run keeps, to be followed instead; its file does not run.
    Raises: RunError if the run has no snapshots, UsageError for an unknown target, or a score that is not kept.
    """
    snapshots = _snapshots(folder)
    if score is not None:
        return _of_score(folder, snapshots, score)
    known = dict.fromkeys(name for snapshot in snapshots for head in snapshot.heads for name in head.lifts)
    if target is not None and target not in known:
        raise unwanted("--target", target, either(known) if known else "none: the rows are too short for targets")
    (maps, stale), series = _stored(folder), losses_of(folder)
    report = None if maps is None or stale else maps.report
    found = histories(snapshots, points_of(series), labels_of(report), target)
    notes = [sentences(report.verdict.claims)] if report is not None and report.verdict.pattern_matters is False else []
    notes += [maps.note] if maps is not None and not stale and maps.note else []
    claims, drop = [head_claims(history) for history in found], largest_drop(points_of(series))
    return Timeline(snapshots, found, series, drop, claims, order_claims(found), maps, notes)


def _of_score(folder: RunDir, snapshots: Sequence[SnapshotRecord], score: str) -> Timeline:
    """Follow each head's lift on an own target, or its value; nothing is claimed of it."""
    name, form = kept_score(folder, score)
    series, followed = losses_of(folder), []
    for one in snapshots:
        uniform = one.own_uniform.get(name, math.nan)
        values = [head.own_scores.get(name, math.nan) for head in one.heads]
        levels = [(value - uniform) / (1 - uniform) for value in values] if form == TARGET else values
        heads = [replace(head, lifts={name: level}) for head, level in zip(one.heads, levels, strict=True)]
        followed.append(replace(one, heads=heads))
    points = list(points_of(series))
    found, scale = histories(followed, points, target=name), None
    if form == VALUE:
        known = [value for history in found for value in history.lifts if value is not None]
        scale = (min(known, default=0.0), max(known, default=0.0))
        found = [replace(one, onset=None, rise=None, width=None, lead=None) for one in found]
    maps, drop, none = _stored(folder)[0], largest_drop(points), list[Sequence[Claim]]([()] * len(found))
    return Timeline(snapshots, found, series, drop, none, [], maps, [], scale)


def _snapshots(folder: RunDir) -> list[SnapshotRecord]:
    check_maps(folder)
    snapshots = snapshots_from_lines(folder.records(SCORES))
    if not snapshots:
        message = f"{run_argument(folder.path)} has no head scores over training (heads.jsonl)"
        raise RunError(message, "older versions recorded none; train it again under a new name")
    return snapshots


def labels_of(report: HeadReport | None) -> dict[Head, tuple[str, str]]:
    """Return the target and the label of every head that has both."""
    heads = [] if report is None else report.heads
    return {h.address: (h.target, h.label.text) for h in heads if h.label is not None and h.target is not None}


def losses_of(folder: RunDir) -> list[Series]:
    """Read the losses at the number of updates before them: a training loss is measured before its step's update."""
    return [
        replace(curve, steps=array("q", (step - 1 for step in curve.steps))) if curve.role == "train" else curve
        for curve in History(folder, whole=True).series()
    ]


def points_of(series: Sequence[Series]) -> Iterator[tuple[int, float]]:
    """Yield the training losses that were recorded, each with its step."""
    for curve in series:
        if curve.role == "train":
            yield from ((step, loss) for step, loss in curve.points if loss is not None)


def loss_at(step: int, series: Sequence[Series]) -> float | None:
    """Return the last training loss recorded up to a step; None if there is none, or it is not finite."""
    points = (point for one in series if one.role == "train" for point in reversed(one.points))
    loss = next((loss for at, loss in points if at <= step), None)
    return loss if loss is not None and math.isfinite(loss) else None


def frames_of(
    snapshots: Sequence[SnapshotRecord], series: Sequence[Series], maps: HeadMaps | None
) -> list[tuple[HeadMaps, float | None]]:
    """Return the maps over training, each with the loss; task, tokens and parts are those of the maps at the end."""
    task, tokens, parts = ("heads", (), ()) if maps is None else (maps.task, maps.tokens, maps.parts)
    shown = (snapshot_maps(one, task, tokens, parts) for one in snapshots if one.maps)
    return [(one, loss_at(one.step, series)) for one in shown]


def _stored(folder: RunDir) -> tuple[HeadMaps | None, bool]:
    """Read heads.json, and whether training continued after it; None, with a note, if it cannot be read."""
    if not (folder.path / HEADS).exists():
        return None, False
    try:
        content = folder.read_heads()
        return maps_from_dict(content), is_stale(folder, content)
    except MhsaError as error:
        tell(f"note: {error.message}; labels and tokens are not shown")
        return None, False
