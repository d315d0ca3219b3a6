"""Progress and results of a sweep: trials, statistics of each group, differences of neighbouring groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mhsa_cli.records.claims import Status
from mhsa_cli.records.labels import Label

# Why a trial failed: loss or gradient; out of memory; its process was killed, or crashed.
Cause = Literal["nonfinite", "memory", "killed", "crashed"]
# Status of a trial whose folder has another training than the plan's, and of one with damaged files.
EXCLUDED, DAMAGED = "excluded", "damaged"
UNREAD = (EXCLUDED, DAMAGED)  # trials without figures
Measure = Literal["steps", "loss"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
LEAST_PAIRS = 6  # of n differences, all have one sign by chance in 2 / 2**n of cases: above 5% up to n = 5
Quartiles = tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of n differences between paired seeds and its 95% interval; None if n is too small."""

    mean: float | None
    low: float | None
    high: float | None
    n: int

    @property
    def status(self) -> Status:
        """Whether the interval excludes 0."""
        if self.low is None or self.high is None:
            return Status.NOT_MEASURED
        return Status.NOT_SHOWN if self.low <= 0 <= self.high else Status.SHOWN


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trial: `run` is its folder, `cell` the number of its group.

    `status` is "finished", "failed" (with `cause`), "excluded" or another, with the reason in `message`. `final_loss`
    is in nats; `steps_to_goal` is None if the goal was not reached; `labels` are those of its heads, empty if withheld.
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
        """Whether the trial ran to its end, so that its figures are comparable."""
        return self.status == "finished"

    @property
    def has_result(self) -> bool:
        """Whether the trial ended by itself; one that was stopped has no result."""
        return self.status in ("finished", "failed")


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One cell of the grid over its seeds. Quartiles are (25%, median, 75%); None counts as larger than any number.

    `k` of `n` trials reached the goal, with Wilson interval `wilson95`; `models` of them finished. `label_sets`: the
    labels of a model's heads and the number of models with them, most frequent first.
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
    """Two groups with neighbouring values of one key, compared seed by seed: second minus first.

    `measure` is "steps" (to the goal) or "loss" (final, in nats). Excluded pairs: `unfinished`, with a trial that did
    not finish, and `unreached`, with one that did not reach the goal.
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
    """A sweep: groups in the order of the grid, their pairs, all trials, and the goal, an accuracy (0..1)."""

    groups: Sequence[GroupStats]
    pairs: Sequence[PairStats]
    trials: Sequence[TrialResult]
    goal: float


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """A chunk that starts: its number, group, number of trials, and the steps of each, from `first` on."""

    chunk: int
    group: str
    trials: int
    steps: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class ChunkProgress:
    """Progress of a chunk; `losses` are the trials' mean losses (nats) since the last report, or empty."""

    chunk: int
    step: int
    losses: Sequence[float] = ()
    training: float = 0.0
    written: int = 0
    writing: float = 0.0
