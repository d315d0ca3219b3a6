"""`mhsa train`: from a config to a run folder, with the loss falling before one's eyes."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mhsa_cli.commands.options import (
    ConfigOption,
    JsonOption,
    Overrides,
    RunsOption,
    SetOption,
    all_overrides,
)
from mhsa_cli.commands.stderr import tell
from mhsa_cli.errors import MhsaError, UsageError

if TYPE_CHECKING:
    from mhsa_cli.config.load import Config
    from mhsa_cli.core.engine import Trainer
    from mhsa_cli.core.tasks import Task
    from mhsa_cli.records import Series
    from mhsa_cli.runs.rundir import RunDir

BYTES_PER_PARAMETER = 12  # a weight and two moments, float32

NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The run's name; left out, a free one is chosen.")
]
ResumeOption = Annotated[
    str | None,
    typer.Option("--resume", metavar="RUN", help="Go on with a run from its newest checkpoint (`newest` = that run)."),
]
InexactOption = Annotated[
    bool, typer.Option("--allow-inexact", help="Resume although this device, torch or thread count changes the bits.")
]


def train(
    overrides: Overrides = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    name: NameOption = None,
    resume: ResumeOption = None,
    allow_inexact: InexactOption = False,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model on a toy task; show the loss, every head's map, and where the run is kept.

    Example: mhsa train --config configs/copy.yaml n_heads=8 train.lr=1e-3
    """
    from mhsa_cli.config.load import load_config
    from mhsa_cli.runs.names import runs_root

    changes = all_overrides(overrides, settings)
    root = runs_root(runs)
    if resume is None:
        _train_new(load_config(config, changes), root, name, as_json)
        return
    if config is not None or name is not None:
        raise UsageError("--resume goes on with a run's own config and name", "leave out --config and --name")
    _resume(root, resume, changes, allow_inexact, as_json)


def _train_new(config: Config, root: Any, name: str | None, as_json: bool) -> None:
    from mhsa_cli.config.dump import dump_yaml
    from mhsa_cli.core.tasks import build_task
    from mhsa_cli.runs.rundir import RunDir

    _prepare_device(config)
    task = build_task(config.task)
    stem = f"{config.task.name}-h{config.model.n_heads}"
    command = shlex.join(["mhsa", *sys.argv[1:]])
    with RunDir.create(root, name, stem=stem, command=[command]) as run:
        run.write_config(dump_yaml(config))
        _keep_text(config, run)
        _run(config, task, run, as_json)


def _resume(root: Any, name: str, changes: list[str], allow_inexact: bool, as_json: bool) -> None:
    from mhsa_cli.commands.resuming import check_same_machine, check_unedited, run_config
    from mhsa_cli.core.checkpoint import read_state
    from mhsa_cli.core.tasks import build_task
    from mhsa_cli.runs.rundir import RunDir

    path = RunDir.newest(root).path if name == "newest" else name
    with RunDir.open(root, path, write=True) as run:
        config = run_config(run, changes)
        step, files, notes = run.load_checkpoint()
        for note in notes:
            tell(f"note: {note}")
        check_unedited(run_config(run), read_state(files)["config"])
        if step >= config.total_steps:
            more = f"mhsa train --resume {run.name} train.epochs={config.train.epochs + 1}"
            tell(f"{run.name} is already at step {step} of {config.total_steps}; to go on: {more}")
            return
        device = _prepare_device(config)
        check_same_machine(run.read_run_json(), _machine(config, device), allow_inexact)
        run.truncate_metrics(step)
        if changes:
            from mhsa_cli.config.dump import dump_yaml

            run.write_config(dump_yaml(config))
        _run(config, build_task(config.task), run, as_json, files)


def _prepare_device(config: Config) -> Any:
    """Find the device and check attention on it; a CPU needs no check."""
    import os

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # must stand before CUDA starts, for equal bits
    from mhsa_cli.core.devices import resolve_device, self_check

    device = resolve_device(config.train.device)
    if device.type != "cpu":
        self_check(device)
    return device


def _machine(config: Config, device: Any) -> dict[str, Any]:
    from mhsa_cli.core.devices import torch_version

    return {"device": str(device), "threads": config.train.threads, "torch": torch_version()}


def _keep_text(config: Config, run: RunDir) -> None:
    """Copy a text task's file into the run folder, so that the folder needs nothing outside itself."""
    from mhsa_cli.commands.resuming import TEXT_COPY
    from mhsa_cli.config.tasks import Text
    from mhsa_cli.runs.disk import write_file_atomic

    if isinstance(config.task, Text):
        from mhsa_cli.core.tasks.text import read_text

        write_file_atomic(run.path / TEXT_COPY, read_text(config.task.path).encode())


def _run(config: Config, task: Task, run: RunDir, as_json: bool, files: Any = None) -> None:
    """Train, keep everything in the run folder, and show what came of it."""
    from mhsa_cli.commands.signals import StopSignal
    from mhsa_cli.commands.summary import show_run
    from mhsa_cli.core.engine import Trainer

    device = _prepare_device(config)
    with StopSignal() as stop:
        trainer = Trainer(config, task, device, resume=files, stop=stop)
        parameters = trainer.parameters
        run.disk_space_check(BYTES_PER_PARAMETER * parameters * (config.train.keep + 1))
        facts = {"task": task.name, "n_heads": config.model.n_heads, "parameters": parameters, "seed": config.train.seed}
        run.update(status="running", **facts, **_machine(config, device), total_steps=trainer.total)
        before = run.read_run_json().get("seconds") or 0.0
        started = time.monotonic()
        try:
            series = _loop(trainer, run)
        except BaseException as error:
            if not isinstance(error, MhsaError) or error.exit_code != 5:
                run.update(status="failed", step=trainer.step, seconds=before + time.monotonic() - started)
            raise
        seconds = round(before + time.monotonic() - started, 3)
    result = _finish(trainer, run, seconds, stopped=stop.caught is not None)
    show_run(result, run, series, as_json)
    if stop.caught is not None:
        tell(f"stopped after step {trainer.step} of {trainer.total}; to go on: mhsa train --resume {run.name}")
        raise typer.Exit(128 + stop.caught)


def _loop(trainer: Trainer, run: RunDir) -> list[Series]:
    """Pass every record on to the disk and to the picture; returns the curve."""
    from mhsa_cli.commands.summary import history
    from mhsa_cli.records import SaveRecord
    from mhsa_cli.renderers.console import make_console, surface_of
    from mhsa_cli.renderers.live import LiveTraining
    from mhsa_cli.runs.metrics import record_to_dict

    console = make_console(stderr=True)
    task, config = trainer.task, trainer.config
    view = LiveTraining(
        console,
        surface_of(console),
        total_steps=trainer.total,
        baseline=(task.chance_loss, "guessing"),
        tokens_per_step=config.train.batch_size * task.seq_len,
        history=history(run),
    )
    with view:
        for record in trainer.records():
            if isinstance(record, SaveRecord):
                run.commit_checkpoint(record.step, record.files, config.train.keep)
            else:
                run.append_metrics([record_to_dict(record)])
            view.add(record)
    return view.series()


def _finish(trainer: Trainer, run: RunDir, seconds: float, *, stopped: bool) -> dict[str, Any]:
    """Look at the heads, write what a finished run holds, and return its figures."""
    from mhsa_cli.core.checkpoint import weights_sha256
    from mhsa_cli.core.heads.capture import head_maps
    from mhsa_cli.core.tasks.overlap import seen_in_training
    from mhsa_cli.runs.heads import maps_to_dict

    train, model = trainer.config.train, trainer.model()
    run.write_heads({"run": run.name, **maps_to_dict(head_maps(model, trainer.task, train.seed, trainer.step))})
    seen = seen_in_training(trainer.task, train.seed, trainer.step, train.batch_size, train.eval_sequences)
    last = trainer.last_eval
    result = {
        "step": trainer.step,
        "seconds": seconds,
        "final": {"eval_loss": last.loss, "eval_accuracy": last.accuracy, "step": last.step},
        "eval_rows": train.eval_sequences,
        "eval_rows_seen": seen,
        "chance": {"loss": trainer.task.chance_loss, "accuracy": trainer.task.chance_accuracy},
        "weights_sha256": weights_sha256(model),
    }
    run.update(status="stopped" if stopped else "finished", **result)
    return result
