"""One training, new or resumed: records on their way to the disk and to the picture, and the results at the end."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mhsa_cli.commands.run_summary import show_run
from mhsa_cli.config.estimate import estimate
from mhsa_cli.config.load import Config
from mhsa_cli.errors import MhsaError, NonFiniteError, StorageError
from mhsa_cli.jobs.custom_attention import NO_MAPS
from mhsa_cli.jobs.history import History
from mhsa_cli.jobs.messages import saying_kept, tell
from mhsa_cli.jobs.signals import StopSignal
from mhsa_cli.records import EpochRecord, EvalRecord, HeadMaps, Record, SaveRecord, Series, SnapshotRecord
from mhsa_cli.renderers.kit.console import make_console, surface_of
from mhsa_cli.renderers.pictures.live import LiveTraining
from mhsa_cli.runs.heads import maps_to_dict
from mhsa_cli.runs.listing import CONFIG, WEIGHTS, run_argument
from mhsa_cli.runs.metrics import record_to_dict
from mhsa_cli.runs.new_folder import check_disk_space
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.snapshots import snapshot_to_dict

if TYPE_CHECKING:
    from mhsa_cli.core.model.transformer import TransformerLM
    from mhsa_cli.core.tasks import Task
    from mhsa_cli.core.training.engine import Trainer

NUMBERS_PER_PARAMETER = 3  # a checkpoint holds a weight and two moments
# What a run says of the end that it had, if it had one, no longer holds once it goes on.
GOING_ON: Mapping[str, Any] = {"status": "running", WEIGHTS: None, "final": None, "sweep": None}
BLOCKS = 4 * 4096  # bytes: each of its four files may leave nearly a block of the disk empty


def prepare_device(config: Config) -> Any:
    """Find the device and check attention on it; a CPU needs no check. Raises: UsageError."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # must stand before CUDA starts, for equal bits
    from mhsa_cli.core.devices import resolve_device, self_check

    device = resolve_device(config.train.device)
    if device.type != "cpu":
        self_check(device)
    return device


def machine(config: Config, device: Any) -> dict[str, Any]:
    """Describe what the bits of a run depend on besides its config."""
    from mhsa_cli.core.devices import torch_version

    return {"device": str(device), "threads": config.train.threads, "torch": torch_version()}


def check_room(config: Config, folder: Path) -> None:
    """Make sure the checkpoints fit on the disk: those that will be kept and the one being written.

    Raises: StorageError.
    """
    train, total = config.train, config.total_steps
    size = 8 if train.dtype == "float64" else 4
    saves = total // (train.save_every or train.steps_per_epoch) + 2  # with the first and the last
    count = estimate(config.task, config.model, train).parameters
    check_disk_space(folder, (NUMBERS_PER_PARAMETER * size * count + BLOCKS) * (min(train.keep, saves) + 1))


def run_training(
    config: Config,
    task: Task,
    device: Any,
    run: RunDir,
    as_json: bool,
    files: Mapping[str, bytes] | None = None,
    model: TransformerLM | None = None,
) -> None:
    """Train, keep everything in the run folder, and show what came of it. `files` is the checkpoint to go on from.

    `model` is the untrained one where its attention is not ours.
    """
    from mhsa_cli.core.training.engine import Trainer

    with StopSignal(animated=surface_of(make_console(stderr=True)).animate) as stop:
        earlier = run.read_run_json().get("seconds")
        before = earlier if isinstance(earlier, int | float) else 0.0
        started = time.monotonic()
        trainer: Trainer | None = None
        try:
            trainer = Trainer(config, task, device, model=model, resume=files, stop=stop)
            facts = {"task": task.name, "n_heads": config.model.n_heads, "parameters": trainer.parameters}
            facts |= {"seed": config.train.seed, "total_steps": trainer.total, **machine(config, device)}
            run.update(**GOING_ON, **facts)
            series, epochs = _loop(trainer, run)
            seconds = round(before + time.monotonic() - started, 3)
            stopped = trainer.step < trainer.total
            last = trainer.last_eval if trainer.last_eval.step == trainer.step else trainer.evaluate()
            model = trainer.model()
            maps = look(config, task, model, trainer.step)
            finish(run, config, task, model, maps, last, seconds, "stopped" if stopped else "finished")
        except BaseException as error:
            stop.hold()
            _leave(error, trainer, run, before + time.monotonic() - started, resumed=files is not None)
            raise
    stop.forgive_lost_output()
    with saying_kept(run.path):
        show_run(run, series, epochs, as_json)
    if stop.caught is not None:
        if stopped:
            more = f"mhsa train --resume {run_argument(run.path)}"
            tell(f"stopped after step {trainer.step} of {trainer.total}; to go on: {more}")
        raise typer.Exit(128 + stop.caught)


@contextlib.contextmanager
def preparing(run: RunDir) -> Iterator[None]:
    """Note it in the run folder where something goes wrong before the training itself begins."""
    try:
        yield
    except Exception:
        with contextlib.suppress(MhsaError):
            if run.read_run_json().get("status") == "running":
                run.update(status="failed", step=_saved_step(run) or 0)
        raise


def _leave(error: BaseException, trainer: Trainer | None, run: RunDir, seconds: float, resumed: bool) -> None:
    """Note how a training broke off, where the run folder can still be written."""
    if isinstance(error, StorageError):
        return
    failed = isinstance(error, Exception)  # else a second Ctrl-C
    if not failed and trainer is not None:
        _tell_cut_off(trainer, run)
    try:
        whole = None if isinstance(error, NonFiniteError) else trainer  # a state that is not finite is not saved
        step = (_saved_step(run) or 0) if whole is None else whole.step
        if isinstance(error, NonFiniteError):
            kept = f"the weights of step {step}, the last finite ones, are kept: {run.path}"
            more = f"mhsa train --config {shlex.quote(str(run.path / CONFIG))} train.grad_clip=1.0"
            hints = [error.hint, f"a run goes on as it began, so in a new one: {more}" if resumed else None, kept]
            error.hint = "\n  ".join(hint for hint in hints if hint is not None)
        run.update(status="failed" if failed else "interrupted", step=step, seconds=round(seconds, 3))
    except MhsaError as second:
        tell(f"note: {second}")


def _saved_step(run: RunDir) -> int | None:
    """Find the step of a run's newest checkpoint; None where there is none."""
    return max((item.step for item in run.checkpoints()), default=None)


def _tell_cut_off(trainer: Trainer, run: RunDir) -> None:
    """Say after a second Ctrl-C which step is saved, and how to go on from it."""
    saved = _saved_step(run)
    kept = "none is saved yet" if saved is None else f"saved is step {saved}"
    more = "" if saved is None else f"; to go on: mhsa train --resume {run_argument(run.path)}"
    tell(f"stopped at once after step {trainer.step} of {trainer.total}; {kept}{more}")


def _loop(trainer: Trainer, run: RunDir) -> tuple[list[Series], Sequence[EpochRecord | None]]:
    """Pass every record on to the disk and to the picture; returns the curve and the epochs to be shown."""
    console, history = make_console(stderr=True), History(run)
    task = trainer.task
    view = LiveTraining(
        console,
        surface_of(console),
        total_steps=trainer.total,
        baseline=(task.chance_loss, f"guessing {task.chance_loss:.2f}"),
        trained=trainer.trained,
        history=history.series(),
    )
    with view:
        for record in train_and_keep(trainer, run, history):
            view.add(record)
    return view.series(), history.epochs


def train_and_keep(trainer: Trainer, run: RunDir, history: History) -> Iterator[Record]:
    """Train on, writing every record where it belongs in the run folder; yields those that it did not hold already."""
    for record in trainer.records():
        if isinstance(record, SaveRecord):
            run.commit_checkpoint(record.step, record.files, trainer.config.train.keep)
        elif isinstance(record, SnapshotRecord):
            run.append_head_scores([snapshot_to_dict(record)])
        else:
            if (type(record), record.step) in history.last:  # a resume evaluates its first step again
                continue
            run.append_metrics([record_to_dict(record)])
            history.add(record)
        yield record


def look(
    config: Config, task: Task, model: TransformerLM, step: int, limits: Mapping[str, float] | None = None
) -> HeadMaps:
    """Look at the heads of a trained model. `limits` are those of random heads, which runs of one shape share.

    Of a block that does not show its weights there are no maps, and the note says so.
    """
    from mhsa_cli.core.heads.capture import head_maps
    from mhsa_cli.core.heads.report import head_report

    if model.custom is not None and not model.custom.found.shows:
        target = model.custom.attention.target
        return HeadMaps(step, task.name, [], [], [], f"{target}: {model.custom.found.why}")
    seed = config.train.seed
    return replace(head_maps(model, task, seed, step), report=head_report(model, task, seed, limits))


def finish(
    run: RunDir,
    config: Config,
    task: Task,
    model: TransformerLM,
    maps: HeadMaps,
    last: EvalRecord,
    seconds: float,
    status: str,
    **more: Any,
) -> None:
    """Write what an ended run holds; its status comes last, when all else is on the disk."""
    from mhsa_cli.core.tasks.overlap import rows_sha256, seen_in_training
    from mhsa_cli.core.training.checkpoint import weights_sha256

    train, digest = config.train, weights_sha256(model)
    if maps.weights:
        run.write_heads({"run": run.name, WEIGHTS: digest, **maps_to_dict(maps)})
    else:
        run.update(**{NO_MAPS: maps.note})
    run.update(
        status=status,
        step=maps.step,
        seconds=seconds,
        final={"eval_loss": last.loss, "eval_accuracy": last.accuracy, "step": last.step},
        eval_rows=train.eval_sequences,
        eval_rows_seen=seen_in_training(task, train.seed, maps.step, train.batch_size, train.eval_sequences),
        eval_rows_sha256=rows_sha256(task, train.seed, train.eval_sequences),
        chance={"loss": task.chance_loss, "accuracy": task.chance_accuracy},
        **{WEIGHTS: digest, **more},
    )
