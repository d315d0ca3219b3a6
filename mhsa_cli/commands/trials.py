"""The trials of a sweep: one model each, trained in stacks and written as runs of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhsa_cli.config.load import Config, dump_yaml
from mhsa_cli.records import EpochRecord, EvalRecord, FailRecord, SaveRecord, SnapshotRecord, StepRecord
from mhsa_cli.runs.metrics import record_to_dict
from mhsa_cli.runs.rundir import RunDir
from mhsa_cli.runs.snapshots import snapshot_to_dict
from mhsa_cli.runs.sweepdir import SweepDir

if TYPE_CHECKING:
    from mhsa_cli.core.group import Group

CURVE = 60  # points of a trial's loss that its run.json keeps for the sweep's picture


@dataclass(frozen=True, slots=True)
class Trial:
    """One model to be trained: its cell's number in the grid, its folder's name, its config."""

    cell: int
    name: str
    config: Config


def train_chunk(path: Path, chunk: Sequence[Trial], target: float, stop: Callable[[], bool]) -> int:
    """Train trials of one shape as one stack and write their run folders; returns how many have a result."""
    from mhsa_cli.commands.training import machine, prepare_device
    from mhsa_cli.core.group import Group
    from mhsa_cli.core.heads.null import null_limits
    from mhsa_cli.core.tasks import build_task

    sweep, config = SweepDir(path), chunk[0].config
    device, task = prepare_device(config), build_task(config.task)
    order = time.time_ns() // 1000
    runs = [sweep.begin(trial.name, order + i, ["mhsa", "sweep"]) for i, trial in enumerate(chunk)]
    try:
        for run, trial in zip(runs, chunk, strict=True):
            run.write_config(dump_yaml(trial.config))
        group = Group([trial.config for trial in chunk], task, device, stop=stop)
        facts = {"task": task.name, "n_heads": config.model.n_heads, "parameters": group.stack.size // group.stack.M}
        facts |= {"total_steps": group.total, **machine(config, device)}
        for run, trial in zip(runs, chunk, strict=True):
            run.update(**facts, seed=trial.config.train.seed)
        started = time.monotonic()
        books = _train(group, len(chunk))
        seconds = round((time.monotonic() - started) / len(chunk), 3)
        limits = null_limits(group.model(group.runs[0]), task) if group.runs else {}  # one null for all of a shape
        return sum(
            _write(run, trial, book, group, number, seconds, target, limits)
            for number, (run, trial, book) in enumerate(zip(runs, chunk, books, strict=True))
        )
    finally:
        for run in runs:
            run.close()


class Book:
    """What was recorded of one trial, kept in memory until it ends: a sweep writes each folder once."""

    def __init__(self) -> None:
        self.metrics: list[StepRecord | EvalRecord | EpochRecord] = []
        self.heads: list[SnapshotRecord] = []
        self.save: SaveRecord | None = None
        self.fail: FailRecord | None = None

    @property
    def steps(self) -> list[StepRecord]:
        """The training steps."""
        return [record for record in self.metrics if isinstance(record, StepRecord)]


def _train(group: Group, count: int) -> list[Book]:
    books = [Book() for _ in range(count)]
    for number, record in group.records():
        book = books[number]
        if isinstance(record, SaveRecord):
            book.save = record
        elif isinstance(record, SnapshotRecord):
            book.heads.append(record)
        elif isinstance(record, FailRecord):
            book.fail = record
        else:
            book.metrics.append(record)
    return books


def _write(
    run: RunDir,
    trial: Trial,
    book: Book,
    group: Group,
    number: int,
    seconds: float,
    target: float,
    limits: Mapping[str, float],
) -> bool:
    """Write a trial's folder; a stopped one stays without a result and is trained again by --resume."""
    from mhsa_cli.commands.training import finish, look
    from mhsa_cli.core.statistics import steps_to_target

    run.append_metrics([record_to_dict(record) for record in book.metrics])
    run.append_head_scores([snapshot_to_dict(record) for record in book.heads])
    if book.save is not None:
        run.commit_checkpoint(book.save.step, book.save.files, trial.config.train.keep)
    own: dict[str, Any] = {"cell": trial.cell, "seed": trial.config.train.seed}
    if book.fail is not None:
        run.update(status="failed", step=book.fail.step, seconds=seconds, sweep={**own, "message": book.fail.message})
        return True
    steps, model = book.steps, group.model(number)
    maps = look(trial.config, group.task, model, group.step, limits)
    labels = [] if maps.report is None else [head.label for head in maps.report.heads if head.label is not None]
    reached = steps_to_target([r.step for r in steps], [r.accuracy for r in steps], target)
    own |= {"steps_to_target": reached, "labels": labels, "curve": _curve(steps)}
    status, last = "finished" if group.step == group.total else "stopped", group.last_eval[number]
    finish(run, trial.config, group.task, model, maps, last, seconds, status, sweep=own)
    return status == "finished"


def _curve(steps: Sequence[StepRecord]) -> list[list[float]]:
    """Thin a loss curve: the mean loss of equal parts, at the step each part ends."""
    size = max(1, -(-len(steps) // CURVE))
    parts = [steps[i : i + size] for i in range(0, len(steps), size)]
    return [[part[-1].step, sum(r.loss for r in part) / len(part)] for part in parts]


def outcome(info: dict[str, Any]) -> dict[str, Any]:
    """Read what a finished trial left in its run.json."""
    own, final = info.get("sweep"), info.get("final")
    return {**(own if isinstance(own, dict) else {}), **(final if isinstance(final, dict) else {})}
