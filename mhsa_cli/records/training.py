"""Records of training, and the curves drawn from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mhsa_cli.records.timeline import SnapshotRecord


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One training step, measured on its batch before the update. `loss` in nats; `step` counts from 1."""

    step: int
    loss: float
    accuracy: float
    lr: float


@dataclass(frozen=True, slots=True)
class EvalRecord:
    """Loss (nats) and accuracy on the evaluation rows after `step` updates."""

    step: int
    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The end of an epoch (from 1); `loss` is the mean training loss of its steps, in nats."""

    epoch: int
    step: int
    loss: float
    eval_loss: float
    eval_accuracy: float


@dataclass(frozen=True, slots=True)
class SaveRecord:
    """A checkpoint to be committed, as bytes by file name. `reason`: "start", "periodic", "end" or "stop"."""

    step: int
    files: Mapping[str, bytes]
    reason: str


EndedBy = Literal["stop_at", "patience"]  # the setting of `train` that ended a run


@dataclass(frozen=True, slots=True)
class EndRecord:
    """The end of a run at `step`, before the last one planned, by a setting."""

    step: int
    by: EndedBy


Record = StepRecord | EvalRecord | EpochRecord | SaveRecord | SnapshotRecord


@dataclass(frozen=True, slots=True)
class FailRecord:
    """The end of a run at `step`, as the next loss or gradient was not finite."""

    step: int
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot: values at steps; NaN and None are gaps. `run` is set if several runs are drawn together."""

    name: str
    steps: Sequence[int]
    values: Sequence[float | None]
    role: str = "train"
    run: str | None = None

    @property
    def points(self) -> list[tuple[int, float | None]]:
        """The points (step, value)."""
        return list(zip(self.steps, self.values, strict=True))


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task as `mhsa tasks` shows it: a summary, an input row and its target row (`·` = not scored), and levels.

    `baselines` are losses in nats by their names.
    """

    name: str
    summary: str
    inputs: Sequence[str]
    targets: Sequence[str]
    chance_loss: float
    chance_accuracy: float
    baselines: Mapping[str, float]
