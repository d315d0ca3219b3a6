"""What crosses the walls between rooms: plain frozen data, no torch, no rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One training step, measured on its own batch before the update. `loss` in nats; `step` counts from 1."""

    step: int
    loss: float
    accuracy: float
    lr: float


@dataclass(frozen=True, slots=True)
class EvalRecord:
    """Loss (nats) and accuracy over the fixed evaluation sequences after `step` updates."""

    step: int
    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The end of an epoch (from 1): `loss` is the mean of its steps' training losses, in nats."""

    epoch: int
    step: int
    loss: float
    eval_loss: float
    eval_accuracy: float


@dataclass(frozen=True, slots=True)
class SaveRecord:
    """A checkpoint to be committed: file names and their bytes. `reason`: "start", "periodic", "end" or "stop"."""

    step: int
    files: Mapping[str, bytes]
    reason: str


Record = StepRecord | EvalRecord | EpochRecord | SaveRecord


@dataclass(frozen=True, slots=True)
class HeadSummary:
    """One head on the shown sample. `entropy`: mean over queries q >= 1 of H(A_q)/ln(q+1), so 1 is uniform.

    `source_weight` is the mean weight on the position that holds the answer, over a probe batch; `source_chance` is
    what a uniform head puts there. Both are None where the task has no such position.
    """

    layer: int
    head: int
    entropy: float | None
    source_weight: float | None = None
    source_chance: float | None = None

    @property
    def name(self) -> str:
        """The head's address in text, for example `L0.H3`."""
        return f"L{self.layer}.H{self.head}"


@dataclass(frozen=True, slots=True)
class HeadMaps:
    """Every head's attention weights on one sample: `weights[layer][head][query][key]`, before dropout, eval mode.

    `note` is what a reader of the maps must know about the task.
    """

    step: int
    task: str
    tokens: Sequence[str]
    weights: Sequence[Sequence[Sequence[Sequence[float]]]]
    heads: Sequence[HeadSummary]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a curve: values at steps. `role` is "train" or "eval"; NaN and None are gaps."""

    name: str
    steps: Sequence[int]
    values: Sequence[float | None]
    role: str = "train"


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task as `mhsa tasks` shows it: one sentence, and an input row over its target row (`·` = not scored)."""

    name: str
    summary: str
    inputs: Sequence[str]
    targets: Sequence[str]
    chance_loss: float
    chance_accuracy: float
