"""One chunk of a sweep: trials of one shape that train as one stack, kept on the disk now and then."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mhsa_cli.config.dump import dump_yaml
from mhsa_cli.core.devices import cpu_kind
from mhsa_cli.core.heads.random_baseline import null_limits
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training.lockstep import Group
from mhsa_cli.errors import MhsaError
from mhsa_cli.jobs.custom_attention import block_facts, build_custom_models
from mhsa_cli.jobs.run_config import keep_text, planned_text
from mhsa_cli.jobs.sweep.journal import TrialJournal, find_start
from mhsa_cli.jobs.sweep.plan import Trial
from mhsa_cli.jobs.sweep.report import trial_entry
from mhsa_cli.jobs.train import RESUMED, machine, prepare_device, saved_step, write_results
from mhsa_cli.jobs.trained_run import measure_model
from mhsa_cli.records.sweep import Cause, ChunkProgress
from mhsa_cli.records.training import FailRecord, Record, SaveRecord, StepRecord
from mhsa_cli.runs.checkpoints import prune
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir

SAVE_SECONDS = 60.0  # between two checkpoints of a chunk; a chunk of seconds writes none but the last
PARTS = 100  # times that a chunk tells its losses
TOLD_SECONDS = 0.5  # between two words about its steps
KEPT = 2  # checkpoints of a trial in training: a kill while they are written leaves one that all its chunk share
COMMAND = ["mhsa", "sweep"]

Tell = Callable[[ChunkProgress | str], None]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Trials that train together; `goal` is the accuracy of a success.

    `last_try` is set for one that failed once and is tried with nothing beside it. `block` names the attention of its
    trials if it is not ours: whoever gave the sweep's command named it. `texts` are the digests of the files that the
    plan's text tasks read.
    """

    number: int
    trials: tuple[Trial, ...]
    goal: float
    last_try: bool = False
    block: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)


def train_chunk(path: Path, chunk: Chunk, stop: Callable[[], bool], tell: Tell) -> None:
    """Train a chunk in the sweep at `path`, from the newest step that its trials share, and write their folders."""
    sweep, trials, config = SweepDir(path), chunk.trials, chunk.trials[0].config
    with_text = planned_text(config, chunk.texts, path)
    device, task = prepare_device(config), build_task(with_text.task)
    own = {**machine(config, device), "cpu": cpu_kind()}
    configs = [trial.config for trial in trials]
    models = build_custom_models(configs, task, chunk.block)
    start = find_start(sweep, trials, own, tell)
    runs = list[RunDir]()
    try:
        for trial in trials:
            if start is None:
                runs.append(sweep.begin(trial.name, trial.order, COMMAND))
                runs[-1].write_config(dump_yaml(trial.config))
                keep_text(with_text, runs[-1])
            else:
                runs.append(RunDir.open(path, path / trial.name, write=True))
                runs[-1].truncate_after(start.step)
        files = None if start is None else start.files
        clock = _Clock(0.0 if start is None else start.seconds, len(trials))
        group = Group(configs, task, device, models=models, resume=files, stop=stop, wants_save=clock.is_due)
        resumed = {} if start is None else RESUMED
        for number, run in enumerate(runs):
            run.update(**group.facts(number), **own, **resumed, **block_facts(models[0] if models else None))
        journals = [TrialJournal() for _ in trials] if start is None else start.journals
        training = _ChunkTraining(chunk, group, runs, journals, clock, tell)
        training.train()
        training.write()
    except Exception as error:
        for run, trial in zip(runs, trials, strict=False):
            _break_off(run, trial, error)
        raise
    finally:
        for run in runs:
            run.close()


def _break_off(run: RunDir, trial: Trial, error: Exception) -> None:
    """Note in a trial that has no result yet why its training broke off, where its folder can still be written."""
    with contextlib.suppress(MhsaError, OSError, MemoryError):
        if run.read_run_json()["status"] == "running":
            message = str(error) if isinstance(error, MhsaError) else f"{type(error).__name__}: {error}"
            run.update(status="interrupted", step=saved_step(run) or 0, sweep=_failure_entry(trial, message))


def give_up(sweep: SweepDir, trial: Trial, message: str, cause: Cause) -> None:
    """Leave a trial that cannot be trained here as failed, with the steps that it has; `--resume` tries it again."""
    steps = sweep.steps(trial.name) if sweep.info(trial.name) else []
    if steps:
        run = RunDir.open(sweep.path, sweep.path / trial.name, write=True)
    else:
        run = sweep.begin(trial.name, trial.order, COMMAND)
    with run:
        if not steps:
            run.write_config(dump_yaml(trial.config))
        own = {**_failure_entry(trial, message, cause), "again": True}
        ended = {"status": "failed", "step": max(steps, default=0), "sweep": own, "seed": trial.config.train.seed}
        run.update(**{**(RESUMED if steps else {}), **ended})


def _failure_entry(trial: Trial, message: str, cause: Cause | None = None) -> dict[str, Any]:
    """Write what run.json keeps of a trial that failed or was broken off."""
    return {"cell": trial.cell, "seed": trial.config.train.seed, "message": message, "cause": cause}


class _Clock:
    """The time that a chunk's trials have trained, and when their next checkpoint is due."""

    def __init__(self, before: float, trials: int) -> None:
        self._before, self._trials, self._began = before, trials, time.monotonic()
        self._saved = self._began

    @property
    def seconds(self) -> float:
        """Seconds since this process began."""
        return time.monotonic() - self._began

    @property
    def share(self) -> float:
        """One trial's share of all seconds, those before a resume counted."""
        return round((self._before + self.seconds) / self._trials, 3)

    def is_due(self, step: int) -> bool:
        """Tell whether a checkpoint is wanted."""
        return time.monotonic() - self._saved >= SAVE_SECONDS

    def saved(self) -> None:
        """Note that one was written; the time that took does not count."""
        self._saved = time.monotonic()


@dataclass(frozen=True)
class _ChunkTraining:
    """A chunk in training: its stack, and of each trial the folder and what is not in it yet."""

    chunk: Chunk
    group: Group
    runs: Sequence[RunDir]
    journals: Sequence[TrialJournal]
    clock: _Clock
    tell: Tell

    def train(self) -> None:
        """Note every record; write a checkpoint of all now and then, and a trial that fails at once."""
        group, losses = self.group, _Losses(self.chunk.number, self.group.total, self.clock, self.tell)
        for number, record in group.records():
            run, journal = self.runs[number], self.journals[number]
            journal.add(record)
            losses.add(number, record)
            if isinstance(record, FailRecord):
                journal.keep(run)
                entry = _failure_entry(self.chunk.trials[number], record.message, "nonfinite")
                run.update(status="failed", step=record.step, seconds=self.clock.share, sweep=entry)
            elif isinstance(record, SaveRecord) and record.reason == "periodic" and number == group.runs[-1]:
                for own in group.runs:  # the last one's has come, so all have
                    self.journals[own].keep(self.runs[own], KEPT)
                    self.runs[own].update(step=record.step, seconds=self.clock.share)
                self.clock.saved()
        losses.flush(group.step)

    def write(self) -> None:
        """Write every checkpoint, then every result; after a stop the results are left to `--resume`."""
        group, trained, seconds, began = self.group, self.clock.seconds, self.clock.share, time.monotonic()
        ended = group.step == group.total
        for number in group.runs:
            run = self.runs[number]
            self.journals[number].keep(run, 1 if ended else KEPT)
            if ended:
                prune(run.path, 1)
            else:
                run.update(status="stopped", step=group.step, seconds=seconds)
        if not ended or not group.runs:
            return
        limits = null_limits(group.model(group.runs[0]), group.task)  # one null for all of a shape
        for count, number in enumerate(group.runs, 1):
            trial, model, last = self.chunk.trials[number], group.model(number), group.last_eval[number]
            maps = measure_model(trial.config, group.task, model, group.step, limits)
            entry = trial_entry(trial, self.journals[number].steps, maps, self.chunk.goal)
            run, status = self.runs[number], "finished"
            write_results(run, trial.config, group.task, model, maps, last, seconds, status, sweep=entry)
            self.tell(ChunkProgress(self.chunk.number, group.step, (), trained, count, time.monotonic() - began))


class _Losses:
    """The losses of a chunk's trials on their way to whoever watches: means over hundredths of the training."""

    def __init__(self, chunk: int, total: int, clock: _Clock, tell: Tell) -> None:
        self._chunk, self._total, self._clock, self._tell = chunk, total, clock, tell
        self._sums: dict[int, list[float]] = {}
        self._part, self._step, self._told = 0, 0, 0.0

    def add(self, number: int, record: Record | FailRecord) -> None:
        """Take any record of a trial."""
        if not isinstance(record, StepRecord):
            return
        part = (record.step - 1) * PARTS // self._total
        if part != self._part:
            self.flush(self._step)
            self._part = part
        elif self._clock.seconds - self._told >= TOLD_SECONDS:
            self._say(record.step - 1, ())
        self._sums.setdefault(number, []).append(record.loss)
        self._step = record.step

    def flush(self, step: int) -> None:
        """Tell the means of what has come."""
        if self._sums:
            self._say(step, [math.fsum(losses) / len(losses) for losses in self._sums.values()])
            self._sums = {}

    def _say(self, step: int, losses: Sequence[float]) -> None:
        self._told = self._clock.seconds
        self._tell(ChunkProgress(self._chunk, step, losses, self._told))
