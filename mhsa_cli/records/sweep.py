"""Progress and results of a sweep: trials, statistics of each group, differences of neighbouring groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from mhsa_cli.records.claims import LEVEL, Status
from mhsa_cli.records.labels import Label
from mhsa_cli.records.timeline import Interval, LossDrop
from mhsa_cli.records.training import EndedBy

# Why a trial failed: loss or gradient; out of memory; its process was killed, or crashed.
Cause = Literal["nonfinite", "memory", "killed", "crashed"]
# Status of a trial whose folder has another training than the plan's, and of one with damaged files.
EXCLUDED, DAMAGED = "excluded", "damaged"
UNREAD = (EXCLUDED, DAMAGED)  # trials without figures
Measure = Literal["steps", "loss", "success"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
LEAST_VALUES = 6  # of n values, all lie on one side of their median in 2 / 2**n of cases: above 5% up to n = 5
ROUNDING = 1e-9  # of a p-value
TrialCurve = tuple[float, Sequence[Sequence[float]]]  # a trial's final loss, and (step, loss) while it trained
Bounds = tuple[float, float]  # a value that lies between two numbers: equal ones if it is known, or infinite


def least_for_ranks(comparisons: int) -> int:
    """Return the fewest seeds that can show one of so many differences in steps or loss.

    If all n differences of the seeds have one sign, the signed-rank test's p is 2 / 2^n; Holm's first step multiplies
    it by the number of comparisons. LEAST_VALUES at least, as a difference that is shown has an interval.
    """
    return max(LEAST_VALUES, math.ceil(1 + math.log2(max(1, comparisons) / LEVEL) - ROUNDING))


@dataclass(frozen=True, slots=True)
class Median:
    """The median of n values and its 95% interval.

    None is what is not known: an estimate that may have several values, and the interval below LEAST_VALUES values. An
    end is infinite where nothing bounds it, and so is a median of runs that diverged.
    """

    estimate: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Formed:
    """When a model's heads formed: the onset of the first head of each label, by the label's id.

    `drop` is the largest drop of the loss. An onset is an interval of steps; None if it cannot be told.
    `circuit` is the label's id of the last heads of its circuit, "" if it has none.
    """

    onsets: Mapping[str, Interval | None]
    drop: LossDrop | None
    circuit: str = ""


@dataclass(frozen=True, slots=True)
class OwnRange:
    """A score of the user's own in a model: the `smallest` and `largest` value of its heads; else as OwnFigure."""

    smallest: float | None
    largest: float | None
    uniform: float | None
    null_low: float | None = None
    null: float | None = None


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trial: `run` is its folder, `cell` the number of its group.

    `status` is "finished", "failed" (with `cause`), "excluded" or another, with the reason in `message`. `final_loss`
    is in nats; `steps_to_goal` is None if the goal was not reached, which its plan shows up to the step `watched`.
    `labels` are those of its heads, empty if withheld; `formed` says when. `own_scores` are the user's, by name.
    `ended_by`: the setting that ended it before the last step of its plan.
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
    watched: int = 0
    formed: Formed | None = None
    own_scores: Mapping[str, OwnRange] = field(default_factory=dict)
    ended_by: EndedBy | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the trial ran to its end, so that its figures are comparable."""
        return self.status == "finished"

    @property
    def is_pending(self) -> bool:
        """Whether its result is still to come: it trains, or it was stopped or not started."""
        return self.status not in ("finished", "failed", *UNREAD)

    @property
    def has_result(self) -> bool:
        """Whether training ended by itself: at its last step, or because loss or gradient were not finite."""
        return self.is_finished or (self.status == "failed" and self.cause == "nonfinite")


@dataclass(frozen=True, slots=True)
class FormedStats:
    """How many of a group's `of` models have a head with a label, and the onset of the first such head of each.

    Without a label: the largest drop of the loss. With `is_circuit`: of the models whose circuit ends in such heads.
    """

    label: Label | None
    models: int
    of: int
    step: Median
    is_circuit: bool = False


@dataclass(frozen=True, slots=True)
class LabelShare:
    """How many of a group's `of` finished models have a head with a label; Wilson interval `wilson95`.

    Without a label: those whose heads have none. With `is_circuit`: those whose circuit ends in such heads.
    """

    label: Label | None
    models: int
    of: int
    wilson95: tuple[float, float]
    is_circuit: bool = False


@dataclass(frozen=True, slots=True)
class OwnStats:
    """A score of the user's own in a group: medians over its models of all that an OwnRange has."""

    name: str
    smallest: Median
    largest: Median
    uniform: float | None
    null_low: float | None
    null: float | None


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One cell of the grid over its seeds, `pending` trials of which have no result yet.

    `k` of `n` trials succeeded: they reached the goal and ended there; Wilson interval `wilson95`. `models` of them
    finished. `steps_to_goal` were watched up to the step `watched`. `label_sets`: the labels of a model's heads and the
    number of models with them, most frequent first. `shares`: the models with each label. `formed`: when they formed.
    `own_scores` are the user's.
    """

    overrides: Mapping[str, str]
    models: int
    k: int
    n: int
    wilson95: tuple[float, float]
    steps_to_goal: Median
    watched: int
    final_loss: Median
    label_sets: Sequence[tuple[Sequence[Label], int]] = ()
    formed: Sequence[FormedStats] = ()
    pending: int = 0
    shares: Sequence[LabelShare] = ()
    own_scores: Sequence[OwnStats] = ()


@dataclass(frozen=True, slots=True)
class PairStats:
    """Two groups with neighbouring values of one key, compared: second minus first.

    `measure` is "steps" (to the goal), "loss" (final, in nats) or "success". `difference` is the median of the paired
    differences and `mean` their mean, None where one is not known exactly; both None for success, which compares
    `counts`, k of n of both groups. `p` is that of Wilcoxon's or Fisher's test, `adjusted` with Holm's correction over
    all that were measured; SHOWN: the second is larger, and the interval excludes 0. `unfinished` seeds have a trial
    without a result; while one of them is `pending`, nothing is compared.
    """

    first: int
    second: int
    key: str
    measure: Measure
    p: float
    adjusted: float
    status: Status
    difference: Median | None = None
    mean: float | None = None
    counts: tuple[tuple[int, int], tuple[int, int]] | None = None
    unfinished: int = 0
    pending: bool = False

    @property
    def is_shown(self) -> bool:
        """Whether a difference is shown, in either direction."""
        return self.status in (Status.SHOWN, Status.OPPOSITE)


@dataclass(frozen=True, slots=True)
class SweepReport:
    """A sweep: groups in the order of the grid, their pairs, all trials, and the goal, an accuracy (0..1)."""

    groups: Sequence[GroupStats]
    pairs: Sequence[PairStats]
    trials: Sequence[TrialResult]
    goal: float

    def median_trial(self, cell: int) -> TrialResult | None:
        """Return the finished trial of median final loss of a group, the lower of two in the middle."""
        own = [trial for trial in self.trials if trial.cell == cell and trial.is_finished]
        own.sort(key=lambda trial: math.inf if trial.final_loss is None else trial.final_loss)
        return own[(len(own) - 1) // 2] if own else None


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


@dataclass(frozen=True, slots=True)
class SeedPower:
    """What `seeds` of each setting can show in `comparisons` of neighbouring settings, Holm's correction at 5%.

    `least_for_ranks` and `least_for_success`: the fewest seeds that can show a difference in steps or loss, and in
    success. All successes can be shown to differ from up to `most_successes`; None: from none. `power`: the chance that
    one standard deviation in steps or loss is shown.
    """

    seeds: int
    pairs: int
    comparisons: int
    least_for_ranks: int
    least_for_success: int
    most_successes: int | None
    power: float | None = None


@dataclass(frozen=True, slots=True)
class SweepTime:
    """The time of a sweep in seconds, extrapolated from training `measured` of its `shapes` for a moment."""

    seconds: float
    shapes: int
    measured: int


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The arithmetic of a sweep before it starts; memory and disk in bytes.

    `processes` train `together` trials each at a time; None if a cluster decides: then `memory` is that of one process,
    and `time` unknown. `power` is None where no two settings are compared.
    """

    settings: int
    skipped: int
    seeds: int
    trials: int
    processes: int | None
    together: int
    memory: int
    memory_free: int | None
    disk: int
    disk_free: int
    time: SweepTime | None
    power: SeedPower | None
