"""Compare a training with the same one stopped and resumed half-way, bit by bit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mhsa_cli.config.schema import Config
from mhsa_cli.core.devices import Device
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.training.load import first_difference
from mhsa_cli.core.training.lockstep import Group
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.history import History
from mhsa_cli.jobs.initial import first_model
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.own_task import new_task
from mhsa_cli.jobs.train import machine, prepare_device, train_and_keep
from mhsa_cli.runs.listing import METRICS
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import plural


@dataclass(frozen=True, slots=True)
class ResumeCheck:
    """The first difference of two trainings of `total` steps, or ""; `machine` is what bits depend on."""

    total: int
    half: int
    difference: str
    machine: dict[str, Any]


def check_resume(config: Config) -> ResumeCheck:
    """Train a config's steps at once and with a stop half-way, and compare. Raises: UsageError."""
    total, half = config.total_steps, config.total_steps // 2
    if half == 0:
        raise UsageError(f"found {plural(total, 'step')} of training, wanted 2 or more", "add train.epochs=2")
    device, task = prepare_device(config), new_task(config)
    model = first_model(config, task)
    tell(f"training {total} steps without a stop, then {half} + {total - half}")
    with TemporaryDirectory(prefix="mhsa-") as folder:
        runs = [RunDir.create(Path(folder), name) for name in ("at-once", "resumed")]
        for run, stop in zip(runs, (None, half), strict=True):
            with run:
                if stop is not None:
                    _train(config, task, device, run, model, stop)
                _train(config, task, device, run, model)
        return ResumeCheck(total, half, _difference(*runs), machine(config, device))


def _train(
    config: Config, task: Task, device: Device, run: RunDir, model: TransformerLM | None, stop: int | None = None
) -> None:
    """Train a run from its newest checkpoint, if any, to its end or to step `stop`."""
    files = [run.load_checkpoint().files] if run.checkpoints() else None
    models = None if model is None else [model]
    group = Group([config], task, device, models=models, resume=files, stop=lambda: group.step == stop)
    for _ in train_and_keep(group, run, History(run)):
        pass


def _difference(first: RunDir, second: RunDir) -> str:
    """Return the first difference in the last checkpoints of two runs, or in a line of their metrics."""
    if found := first_difference(first.load_checkpoint().files, second.load_checkpoint().files):
        return found
    lines = ((run.path / METRICS).read_text().splitlines() for run in (first, second))
    for number, (left, right) in enumerate(zip_longest(*lines), 1):
        if left != right:
            return f"{METRICS}, line {number}: {left} and {right}"
    return ""
