"""Buffered records of a trial, and the step a resumed trial starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from mhsa_cli.config.estimate import log_every
from mhsa_cli.core.training.checkpoint import digest, weights_of
from mhsa_cli.core.training.snapshots import map_steps, snapshot_steps
from mhsa_cli.core.training.state import read_state
from mhsa_cli.errors import OtherVersionError, RunError
from mhsa_cli.jobs.load_run import check_weights
from mhsa_cli.jobs.run_config import check_same_machine, check_same_steps, check_unedited
from mhsa_cli.jobs.sweep.plan import Trial, name_trials
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.records.training import EpochRecord, EvalRecord, FailRecord, Record, SaveRecord, StepRecord
from mhsa_cli.runs.heads import snapshot_to_dict, snapshots_from_lines
from mhsa_cli.runs.listing import METRICS, SCORES
from mhsa_cli.runs.metrics import record_to_dict, records_of
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir


class TrialJournal:
    """The records of one trial, and which of them are not written yet: a folder is written at checkpoints only."""

    def __init__(
        self, metrics: Sequence[StepRecord | EvalRecord | EpochRecord] = (), snapshots: Sequence[SnapshotRecord] = ()
    ) -> None:
        self.metrics, self.snapshots = list(metrics), [*map(_without_maps, snapshots)]
        self._kept, self._known = len(self.metrics), {(type(record), record.step) for record in metrics}
        self._heads: list[SnapshotRecord] = []
        self._save: SaveRecord | None = None

    @property
    def steps(self) -> list[StepRecord]:
        return [record for record in self.metrics if isinstance(record, StepRecord)]

    def add(self, record: Record | FailRecord) -> None:
        if isinstance(record, SaveRecord):
            self._save = record
        elif isinstance(record, SnapshotRecord):
            self._heads.append(record)
            self.snapshots.append(_without_maps(record))
        elif not isinstance(record, FailRecord) and (type(record), record.step) not in self._known:
            self.metrics.append(record)  # a resume repeats the evaluation of its first step

    def keep(self, run: RunDir, checkpoints: int = 1) -> None:
        """Write the new records, then the checkpoint, keeping `checkpoints` of those."""
        run.append(METRICS, [record_to_dict(record) for record in self.metrics[self._kept :]])
        run.append(SCORES, [snapshot_to_dict(record) for record in self._heads])
        self._kept, self._heads = len(self.metrics), []
        if self._save is not None:
            run.commit_checkpoint(self._save.step, self._save.files, checkpoints)
            self._save = None


def _without_maps(record: SnapshotRecord) -> SnapshotRecord:
    return replace(record, maps=())


@dataclass(frozen=True, slots=True)
class ChunkStart:
    """Where a chunk resumes: a step that all its trials have, their checkpoints and records up to it."""

    step: int
    files: Sequence[dict[str, bytes]]
    journals: Sequence[TrialJournal]
    seconds: float


def find_start(
    sweep: SweepDir, trials: Sequence[Trial], here: Mapping[str, Any], send: Callable[[str], None]
) -> ChunkStart | None:
    """Find the newest step of which all trials have a whole checkpoint; None if they start from step 0.

    `here` is what bits depend on: trials of another machine start from step 0. A message gives the reason.
    Raises: OtherVersionError, StorageError, so that files which cannot be read are not overwritten.
    """
    steps = [set(sweep.steps(trial.name)) for trial in trials]
    problems = []
    for step in sorted(set.intersection(*steps), reverse=True):
        try:
            start = _load(sweep, trials, step, here)
        except OtherVersionError:
            raise
        except RunError as error:
            problems.append(error.message)
            continue
        if problems:
            send(f"{name_trials(trials)}: resumed from step {step}, not from the last one: {problems[0]}")
        return start
    if any(steps):
        reason = problems[0] if problems else "they have no step in common"
        send(f"{name_trials(trials)}: trained from step 0: {reason}")
    return None


def _load(sweep: SweepDir, trials: Sequence[Trial], step: int, here: Mapping[str, Any]) -> ChunkStart:
    """Read what a chunk needs to resume at a step. Raises: RunError, StorageError."""
    files, journals, seconds = [], [], 0.0
    for trial in trials:
        run = RunDir(sweep.path / trial.name)
        info = run.read_run_json()
        check_same_machine(info, here, allow=False)
        loaded = run.load_checkpoint(step)
        trained_with = read_state(loaded.files, step)["config"]
        check_unedited(trial.config, trained_with, run)
        if 0 < step < trial.config.total_steps:
            check_same_steps(trial.config, trained_with, allow=False)
        check_weights(run, step, digest(weights_of(loaded.files)))
        snapshots = [record for record in snapshots_from_lines(run.records(SCORES)) if record.step <= step]
        journal = TrialJournal(
            [record for record in records_of(run.records(METRICS)) if record.step <= step], snapshots
        )
        logged = [0, *(record.step for record in journal.steps), step]
        every = log_every(trial.config.train)
        if any(not 0 <= later - earlier <= every for earlier, later in pairwise(logged)):
            raise RunError(f"its metrics have gaps before its checkpoint of step {step}")
        measured = {record.step for record in snapshots}
        total = trial.config.total_steps
        wanted = [{at for at in steps(total) if at <= step} for steps in (snapshot_steps, map_steps)]
        if measured and measured not in wanted:  # older versions recorded those with maps alone
            raise RunError(f"its head scores have gaps before its checkpoint of step {step}")
        files.append(loaded.files)
        journals.append(journal)
        seconds += info.get("seconds") or 0.0
    return ChunkStart(step, files, journals, seconds)
