"""`mhsa verify --resume-check`: a training against the same one with a stop and a resume, compared bit by bit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from mhsa_cli.errors import ANSWERED_NO, UsageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import escape

if TYPE_CHECKING:
    from mhsa_cli.config.load import Config
    from mhsa_cli.core.model.transformer import TransformerLM
    from mhsa_cli.core.tasks import Task


def check_resume(file: str, overrides: Sequence[str], as_json: bool) -> None:
    """Train a config's steps at once and with a stop half-way; say whether all bits are equal, exit 7 if not."""
    from mhsa_cli.commands.output import Paper, print_json
    from mhsa_cli.config.load import load_config
    from mhsa_cli.config.overrides import is_override
    from mhsa_cli.core.tasks import build_task
    from mhsa_cli.jobs.custom_attention import begin
    from mhsa_cli.jobs.train import machine, prepare_device

    if is_override(file) and not Path(file).exists():
        more = " ".join(map(shlex.quote, [file, *overrides]))
        raise UsageError(
            f"--resume-check {escape(file)}: a config file comes first, then its settings",
            f"mhsa verify --resume-check FILE {escape(more)}",
        )
    config = load_config(file, overrides)
    total, half = config.total_steps, config.total_steps // 2
    if half == 0:
        raise UsageError(f"{total} steps cannot be stopped half-way", "ask for more: train.epochs=2")
    device, task = prepare_device(config), build_task(config.task)
    model = begin(config, task)
    tell(f"training {total} steps at once, then {half} and {total - half} more")
    with TemporaryDirectory(prefix="mhsa-") as folder:
        runs = [RunDir.create(Path(folder), name) for name in ("at-once", "resumed")]
        for run, stop in zip(runs, (None, half), strict=True):
            with run:
                if stop is not None:
                    _train(config, task, device, run, model, stop)
                _train(config, task, device, run, model)
        difference = _difference(*runs)
    own = machine(config, device)
    if as_json:
        document = {"equal": not difference, "steps": total, "stopped_at": half, "difference": difference or None}
        print_json({**document, **own})
    else:
        where = f"{own['device']}, threads: {own['threads']}, torch {own['torch']}"
        said = f"not equal: {difference}" if difference else "equal, bit for bit: weights, moments, state and metrics"
        Paper().say(f"{said}\n{total} steps against {half} + {total - half} after a resume; {where}")
    if difference:
        raise typer.Exit(ANSWERED_NO)


def _train(
    config: Config, task: Task, device: Any, run: RunDir, model: TransformerLM | None, stop: int | None = None
) -> None:
    """Train a run on from its newest checkpoint, if it has one, to its end or up to a step."""
    from mhsa_cli.core.training.engine import Trainer
    from mhsa_cli.jobs.history import History
    from mhsa_cli.jobs.train import train_and_keep

    files = run.load_checkpoint().files if run.checkpoints() else None
    trainer = Trainer(config, task, device, model=model, resume=files, stop=lambda: trainer.step == stop)
    for _ in train_and_keep(trainer, run, History(run)):
        pass


def _difference(first: RunDir, second: RunDir) -> str:
    """Say where two runs differ first: in the files of their last checkpoints, or in a line of their metrics."""
    from mhsa_cli.core.training.load import first_difference
    from mhsa_cli.runs.listing import METRICS

    found = first_difference(first.load_checkpoint().files, second.load_checkpoint().files)
    if found:
        return found
    lines = ((run.path / METRICS).read_text().splitlines() for run in (first, second))
    for number, (one, other) in enumerate(zip_longest(*lines), 1):
        if one != other:
            return f"{METRICS}, line {number}: {one} and {other}"
    return ""
