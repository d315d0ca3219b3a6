"""What the page of `mhsa report` shows: runs over training, and the trials that stand for a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.records.sweep import SweepReport, TrialCurve, TrialResult
from mhsa_cli.records.timeline import HeadHistory, SnapshotRecord
from mhsa_cli.records.training import Series


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The figures in run.json; None where it has none. Losses in nats; `step` is the last one of `total_steps`.

    `origin` is the file of a model that was made elsewhere; `seen` of `rows` evaluation rows are also in the training.
    """

    status: str
    task: str = ""
    origin: str | None = None
    parameters: int | None = None
    step: int | None = None
    total_steps: int | None = None
    ended_by: str | None = None
    seconds: float | None = None
    device: str | None = None
    loss: float | None = None
    accuracy: float | None = None
    chance_loss: float | None = None
    chance_accuracy: float | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    seen: int | None = None
    rows: int | None = None
    weights_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run: its facts, `settings` unlike the defaults, losses, heads over training, and the maps at the end.

    `maps` are None for a run without any, for the reason `no_maps` if that is known. Without a report they are of the
    last snapshot: no checkpoint could be measured. `other_weights`: the checkpoint holds others than were measured.
    `series` are at the number of updates before each loss.
    """

    name: str
    facts: RunFacts
    settings: Sequence[tuple[str, str]]
    series: Sequence[Series]
    snapshots: Sequence[SnapshotRecord]
    histories: Sequence[HeadHistory]
    maps: HeadMaps | None
    no_maps: str = ""
    other_weights: bool = False


Reason = Literal["median", "best", "worst", "failed"]


@dataclass(frozen=True, slots=True)
class ShownTrial:
    """A trial that stands for its setting, and why; `run` is None if nothing of it can be read, for `problem`."""

    trial: TrialResult
    reason: Reason
    run: RunReport | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ShownSweep:
    """A sweep: its report, the curves of each setting's finished trials, and the trials that are shown of it."""

    name: str
    report: SweepReport
    curves: Sequence[Sequence[TrialCurve]]
    shown: Sequence[ShownTrial]
