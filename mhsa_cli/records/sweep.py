"""How far a sweep is, and what it found: its trials, the statistics of each group, the differences of neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mhsa_cli.records.claims import Status
from mhsa_cli.records.labels import Label

# Why a trial failed: its loss or a gradient; no memory; its process ended by the system, or by a crash.
Cause = Literal["nonfinite", "memory", "killed", "crashed"]
# The status of a trial whose folder holds another training than the plan's, and of one whose files are damaged.
EXCLUDED, DAMAGED = "excluded", "damaged"
UNREAD = (EXCLUDED, DAMAGED)  # of these trials nothing is known
Measure = Literal["steps", "loss"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
LEAST_PAIRS = 6  # the mean of fewer lies outside all its differences in 2 / 2**n of cases: above 5 % up to n = 5
Quartiles = tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of n differences between paired seeds, and its interval at 95 %: None where n is too small for it."""

    mean: float | None
    low: float | None
    high: float | None
    n: int

    @property
    def status(self) -> Status:
        """Whether the interval leaves out 0."""
        if self.low is None or self.high is None:
            return Status.NOT_MEASURED
        return Status.NOT_SHOWN if self.low <= 0 <= self.high else Status.SHOWN


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trained model: `cell` is its group's number in the grid, `run` its folder.

    `status` is "finished", or what became of it instead, for which `message` has the reason in words and `cause`, where
    it failed, as a fact; "excluded" is a folder that holds another training than the plan's. `final_loss` is in nats;
    `steps_to_goal` is None if it never got there; `labels` are those of its heads, in order, empty if withheld;
    `weights_sha256` is the digest of its weights, where it finished.
    """

    run: str
    cell: int
    seed: int
    status: str
    final_loss: float | None
    final_accuracy: float | None
    steps_to_goal: int | None
    seconds: float | None
    labels: Sequence[Label] = ()
    message: str = ""
    cause: Cause | None = None
    weights_sha256: str | None = None

    @property
    def is_finished(self) -> bool:
        """Tell whether the trial ran to its end, so that its figures may be compared."""
        return self.status == "finished"

    @property
    def has_result(self) -> bool:
        """Tell whether the trial ended by itself, well or not: one that was stopped may still reach anything."""
        return self.status in ("finished", "failed")


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One cell of the grid over its seeds. Quartiles are (25 %, median, 75 %); None lies beyond those that got there.

    `k` of `n` trials ended at the goal or above, `wilson95` is the interval of that share (0..1); those that
    did not finish count in `n` only, and `models` are those that did. `label_sets`: the heads' labels of a model
    in their order, and of how many models, most first.
    """

    overrides: Mapping[str, str]
    models: int
    k: int
    n: int
    wilson95: tuple[float, float]
    steps_to_goal: Quartiles
    final_loss: Quartiles
    label_sets: Sequence[tuple[Sequence[Label], int]] = ()


@dataclass(frozen=True, slots=True)
class PairStats:
    """Two groups that differ in one key, by neighbouring values: second minus first, seed by seed.

    `measure` is "steps" (to the goal) or "loss" (the final one, in nats). Pairs left out: `unfinished`, where a trial
    did not finish, and `unreached`, where one never got to the goal.
    """

    first: int
    second: int
    key: str
    measure: Measure
    difference: Difference
    unfinished: int
    unreached: int


@dataclass(frozen=True, slots=True)
class SweepReport:
    """A whole sweep: groups in the order of the grid, pairs of them, every trial, and the goal, an accuracy (0..1)."""

    groups: Sequence[GroupStats]
    pairs: Sequence[PairStats]
    trials: Sequence[TrialResult]
    goal: float


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """A chunk that begins: its number, its group's name, its trials, and the steps each makes, from `first` on."""

    chunk: int
    group: str
    trials: int
    steps: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class ChunkProgress:
    """How far a chunk is: steps that each trial has made, and trials whose results are written.

    `losses` has each trial's mean loss (nats) since it was told last, empty if it is not told now; `training` and
    `writing` are the seconds spent so far.
    """

    chunk: int
    step: int
    losses: Sequence[float] = ()
    training: float = 0.0
    written: int = 0
    writing: float = 0.0
