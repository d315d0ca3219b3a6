"""One chunk of a sweep: trials of one shape that train as one stack, with checkpoints at intervals."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mhsa_cli.config.dump import dump_yaml
from mhsa_cli.config.schema import Config
from mhsa_cli.core.devices import cpu_kind
from mhsa_cli.core.heads.own_scores import Null, OwnScore, own_nulls
from mhsa_cli.core.heads.random_baseline import Limits
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.sweep_report import reached
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.training.lockstep import Group
from mhsa_cli.errors import MhsaError
from mhsa_cli.jobs.custom_attention import block_facts
from mhsa_cli.jobs.initial import first_models, keep_init, planned_init
from mhsa_cli.jobs.own_score import score_facts, scores_of_chunk, with_own_scores
from mhsa_cli.jobs.own_source import OwnSource
from mhsa_cli.jobs.own_task import task_facts, task_of_chunk
from mhsa_cli.jobs.run_config import keep_text, planned_text
from mhsa_cli.jobs.sweep.journal import TrialJournal, find_start
from mhsa_cli.jobs.sweep.plan import Trial
from mhsa_cli.jobs.sweep.report import trial_entry
from mhsa_cli.jobs.train import RESUMED, machine, prepare_device, saved_step, write_results
from mhsa_cli.jobs.trained_run import measure_model
from mhsa_cli.jobs.untrained_limits import untrained_limits
from mhsa_cli.records.sweep import Cause, ChunkProgress
from mhsa_cli.records.training import EndRecord, FailRecord, Record, SaveRecord, StepRecord
from mhsa_cli.runs.checkpoints import prune
from mhsa_cli.runs.listing import ENDED_BY
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir

SAVE_SECONDS = 60.0  # between two checkpoints of a chunk; a shorter chunk writes only the last
PARTS = 100  # messages with losses in a chunk
MESSAGE_SECONDS = 0.5  # between two messages about its steps
KEPT = 2  # checkpoints of a trial in training: after a kill during a save, all trials still share one
COMMAND = ["mhsa", "sweep"]

Send = Callable[[ChunkProgress | str], None]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Trials that train together; `goal` is the accuracy that counts as success.

    `last_try`: it failed once, and now runs with nothing beside it. `attention` is the custom attention of its trials.
    `texts` are the digests of the plan's files of data and weights, `task` the user's own task, `scores` their scores,
    `kept` the names and digests of these in the plan.
    """

    number: int
    trials: tuple[Trial, ...]
    goal: float
    last_try: bool = False
    attention: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    task: OwnSource | None = None
    scores: tuple[OwnSource, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)


def train_chunk(path: Path, chunk: Chunk, stop: Callable[[], bool], send: Send) -> None:
    """Train a chunk of the sweep at `path` from the newest step that its trials share, and write their folders."""
    config = planned_text(chunk.trials[0].config, chunk.texts, path)
    with task_of_chunk(config, chunk.task) as task, scores_of_chunk(chunk.scores) as scores:
        _train_chunk(path, chunk, config, task, scores, stop, send)


def _train_chunk(
    path: Path,
    chunk: Chunk,
    with_text: Config,
    task: Task,
    scores: Sequence[OwnScore],
    stop: Callable[[], bool],
    send: Send,
) -> None:
    sweep, trials, config = SweepDir(path), chunk.trials, chunk.trials[0].config
    device = prepare_device(config)
    here = {**machine(config, device), "cpu": cpu_kind()}
    configs = [trial.config for trial in trials]
    start = find_start(sweep, trials, here, send)
    init = planned_init(config, chunk.texts, path) if start is None else None
    models = first_models(configs, task, chunk.attention, init)
    runs = list[RunDir]()
    try:
        for trial in trials:
            if start is None:
                runs.append(sweep.begin(trial.name, trial.order, COMMAND))
                runs[-1].write_config(dump_yaml(trial.config))
                keep_text(with_text, runs[-1])
                keep_init(config, runs[-1], init)
            else:
                runs.append(RunDir.open(path, path / trial.name, write=True))
                runs[-1].truncate_after(start.step)
        files = None if start is None else start.files
        clock = _Clock(0.0 if start is None else start.seconds, len(trials))
        group = Group(
            configs, task, device, models=models, resume=files, stop=stop, wants_save=clock.is_due, scores=scores
        )
        earlier = {} if start is None else RESUMED
        facts = {**here, **earlier, **block_facts(models[0] if models else None), **task_facts(config, chunk.task)}
        facts |= score_facts(scores, chunk.kept)
        for number, run in enumerate(runs):
            run.update(**group.facts(number), **facts)
        journals = [TrialJournal() for _ in trials] if start is None else start.journals
        training = _ChunkTraining(chunk, group, runs, journals, clock, send)
        training.train()
        training.write()
    except Exception as error:
        for run, trial in zip(runs, trials, strict=False):
            _record_error(run, trial, error)
        raise
    finally:
        for run in runs:
            run.close()


def _record_error(run: RunDir, trial: Trial, error: Exception) -> None:
    """Record why a trial was interrupted, if it has no result yet and its folder can still be written."""
    with contextlib.suppress(MhsaError, OSError, MemoryError):
        if run.read_run_json()["status"] == "running":
            message = str(error) if isinstance(error, MhsaError) else f"{type(error).__name__}: {error}"
            run.update(status="interrupted", step=saved_step(run) or 0, sweep=_failure_entry(trial, message))


def give_up(sweep: SweepDir, trial: Trial, message: str, cause: Cause) -> None:
    """Mark a trial that cannot be trained here as failed, keeping its steps; `--resume` tries it again."""
    steps = sweep.steps(trial.name) if sweep.info(trial.name) else []
    if steps:
        run = RunDir.open(sweep.path, sweep.path / trial.name, write=True)
    else:
        run = sweep.begin(trial.name, trial.order, COMMAND)
    with run:
        if not steps:
            run.write_config(dump_yaml(trial.config))
        entry = {**_failure_entry(trial, message, cause), "again": True}
        end = {"status": "failed", "step": max(steps, default=0), "sweep": entry, "seed": trial.config.train.seed}
        run.update(**{**(RESUMED if steps else {}), **end})


def _failure_entry(trial: Trial, message: str, cause: Cause | None = None) -> dict[str, Any]:
    return {"cell": trial.cell, "seed": trial.config.train.seed, "message": message, "cause": cause}


class _Clock:
    """The training time of a chunk's trials, and when their next checkpoint is due."""

    def __init__(self, before: float, trials: int) -> None:
        self._before, self._trials, self._began = before, trials, time.monotonic()
        self._saved = self._began

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def share(self) -> float:
        """One trial's share of all seconds, those before a resume included."""
        return round((self._before + self.seconds) / self._trials, 3)

    def is_due(self, step: int) -> bool:
        return time.monotonic() - self._saved >= SAVE_SECONDS

    def saved(self) -> None:
        """Restart the interval after a checkpoint was written."""
        self._saved = time.monotonic()


@dataclass(frozen=True)
class _ChunkTraining:
    """A chunk in training: its stack, and each trial's folder and journal."""

    chunk: Chunk
    group: Group
    runs: Sequence[RunDir]
    journals: Sequence[TrialJournal]
    clock: _Clock
    send: Send

    def train(self) -> None:
        """Train; save all trials when a checkpoint is due, and a failing trial at once."""
        group, losses = self.group, _Losses(self.chunk.number, self.group.total, self.clock, self.send)
        for number, record in group.records():
            run, journal = self.runs[number], self.journals[number]
            if not isinstance(record, EndRecord):
                journal.add(record)
                losses.add(number, record)
            if isinstance(record, EndRecord):
                self._keep_last(number)
                self._write_results(number, self.clock.share, **{ENDED_BY: record.by})
            elif isinstance(record, FailRecord):
                journal.keep(run)
                entry = _failure_entry(self.chunk.trials[number], record.message, "nonfinite")
                entry["reached"] = reached(journal.metrics, self.chunk.goal)
                run.update(status="failed", step=record.step, seconds=self.clock.share, sweep=entry)
            elif isinstance(record, SaveRecord) and record.reason == "periodic" and number == group.runs[-1]:
                for i in group.runs:  # all checkpoints have arrived with that of the last run
                    self.journals[i].keep(self.runs[i], KEPT)
                    self.runs[i].update(step=record.step, seconds=self.clock.share)
                self.clock.saved()
        losses.flush(group.step)

    def write(self) -> None:
        """Write all checkpoints, then all results; after a stop only checkpoints."""
        group, seconds = self.group, self.clock.share
        if group.step < group.total:
            for number in group.runs:
                self.journals[number].keep(self.runs[number], KEPT)
                self.runs[number].update(status="stopped", step=group.step, seconds=seconds)
            return
        for number in group.runs:
            self._keep_last(number)
        trained, began = self.clock.seconds, time.monotonic()
        for count, number in enumerate(group.runs, len(group.ended) + 1):
            self._write_results(number, seconds)
            self.send(ChunkProgress(self.chunk.number, group.step, (), trained, count, time.monotonic() - began))

    def _keep_last(self, number: int) -> None:
        """Write what is left of a trial, and keep its last checkpoint alone."""
        self.journals[number].keep(self.runs[number], 1)
        prune(self.runs[number].path, 1)

    def _write_results(self, number: int, seconds: float, **more: Any) -> None:
        """Measure the heads of a trial that has ended, and write its results."""
        group, trial, journal = self.group, self.chunk.trials[number], self.journals[number]
        model, last = group.model(number), group.last_eval[number]
        maps = measure_model(trial.config, group.task, model, group.step, lambda: self._limits)
        maps = with_own_scores(maps, trial.config, group.task, model, group.scores, self._nulls)
        more["sweep"] = trial_entry(trial, journal.metrics, journal.snapshots, maps, self.chunk.goal)
        write_results(self.runs[number], trial.config, group.task, model, maps, last, seconds, "finished", **more)

    @cached_property
    def _limits(self) -> Limits:
        """What untrained heads reach, the same for all trials."""
        return untrained_limits(self.chunk.trials[0].config, self.group.task, self._any_model)

    @cached_property
    def _nulls(self) -> dict[str, Null]:
        """What untrained heads reach in the user's own scores, the same for all trials."""
        return own_nulls(self._any_model, self.group.task, self.group.scores)

    @property
    def _any_model(self) -> TransformerLM:
        return self.group.model(next(iter([*self.group.ended, *self.group.runs])))


class _Losses:
    """Send the losses of a chunk's trials: means over hundredths of the training."""

    def __init__(self, chunk: int, total: int, clock: _Clock, send: Send) -> None:
        self._chunk, self._total, self._clock, self._send = chunk, total, clock, send
        self._sums: dict[int, list[float]] = {}
        self._part, self._step, self._sent = 0, 0, 0.0

    def add(self, number: int, record: Record | FailRecord) -> None:
        if not isinstance(record, StepRecord):
            return
        part = (record.step - 1) * PARTS // self._total
        if part != self._part:
            self.flush(self._step)
            self._part = part
        elif self._clock.seconds - self._sent >= MESSAGE_SECONDS:
            self._message(record.step - 1, ())
        self._sums.setdefault(number, []).append(record.loss)
        self._step = record.step

    def flush(self, step: int) -> None:
        """Send the means since the last call."""
        if self._sums:
            self._message(step, [math.fsum(losses) / len(losses) for losses in self._sums.values()])
            self._sums = {}

    def _message(self, step: int, losses: Sequence[float]) -> None:
        self._sent = self._clock.seconds
        self._send(ChunkProgress(self._chunk, step, losses, self._sent))
