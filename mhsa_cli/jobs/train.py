"""One training, new or resumed: records written as they come, and results at the end."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.dump import dump_yaml
from mhsa_cli.config.estimate import estimate, step_flop
from mhsa_cli.config.own_task import is_own, options_to_name, short_name
from mhsa_cli.config.schema import Config
from mhsa_cli.config.threads import best_threads
from mhsa_cli.core.devices import Device, resolve_device, self_check, torch_version
from mhsa_cli.core.heads.own_scores import OwnScore
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, TrainBatches
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.lockstep import Group, records_of
from mhsa_cli.core.training.overlap import rows_sha256, seen_in_training
from mhsa_cli.errors import MhsaError, NonFiniteError, StorageError
from mhsa_cli.jobs.custom_attention import block_facts
from mhsa_cli.jobs.history import History
from mhsa_cli.jobs.initial import first_model, keep_init
from mhsa_cli.jobs.load_heads import NO_MAPS
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.own_score import new_scores, score_facts, with_own_scores
from mhsa_cli.jobs.own_task import new_task, task_facts
from mhsa_cli.jobs.run_config import keep_text
from mhsa_cli.jobs.signals import StopSignal
from mhsa_cli.jobs.trained_run import measure_model
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.records.training import EvalRecord, Record, SaveRecord
from mhsa_cli.runs.heads import maps_to_dict, snapshot_maps, snapshot_to_dict
from mhsa_cli.runs.listing import CONFIG, ENDED_BY, METRICS, SCORES, WEIGHTS, run_argument
from mhsa_cli.runs.metrics import record_to_dict
from mhsa_cli.runs.names import prepare_root
from mhsa_cli.runs.new_folder import check_disk_space
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import quoted

NUMBERS_PER_PARAMETER = 3  # a checkpoint holds a weight and two moments
# Facts of a run's end that no longer hold once it is resumed.
RESUMED: Mapping[str, Any] = {"status": "running", WEIGHTS: None, "final": None, "sweep": None, ENDED_BY: None}
BLOCKS = 4 * 4096  # bytes: each of its four files may waste nearly a block of the disk


def prepare_device(config: Config) -> Device:
    """Resolve the device and test attention on it, unless it is the CPU. Raises: UsageError."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts, for equal bits
    device = resolve_device(config.train.device)
    if device.type != "cpu":
        self_check(device)
    return device


def machine(config: Config, device: Device) -> dict[str, Any]:
    """Return what the bits of a run depend on besides its config."""
    return {"device": str(device), "threads": config.train.threads, "torch": torch_version()}


def tell_threads(config: Config, device: Device) -> None:
    """Say that more threads would shorten a step, unless the config chooses their number."""
    best = best_threads(config.task, config.model, config.train)
    if device.type == "cpu" and best > config.train.threads and "threads" not in config.train.model_fields_set:
        size = f"{step_flop(config.task, config.model, config.train) / 1e9:.1f} GFLOP"
        tell(f"note: a step takes {size}; train.threads={best} is usually faster (results differ in the last bits)")


def check_room(config: Config, folder: Path) -> None:
    """Check that the disk has room for the kept checkpoints and the one being written. Raises: StorageError."""
    train, total = config.train, config.total_steps
    size = 8 if train.dtype == "float64" else 4
    saves = total // (train.save_every or train.steps_per_epoch) + 2  # with the first and the last
    count = estimate(config.task, config.model, train).parameters
    check_disk_space(folder, (NUMBERS_PER_PARAMETER * size * count + BLOCKS) * (min(train.keep, saves) + 1))


@dataclass(frozen=True)
class TrainingSetup:
    """The parts of a training: `files` is the checkpoint to resume, `model` the initial one where the seed
    alone does not give it.

    `scores` are the user's own.
    """

    config: Config
    task: Task
    device: Device
    run: RunDir
    files: Mapping[str, bytes] | None = None
    model: TransformerLM | None = None
    scores: Sequence[OwnScore] = ()


@contextlib.contextmanager
def new_run(
    config: Config, root: Path, name: str | None, command: list[str], scores: Sequence[str] = ()
) -> Iterator[TrainingSetup]:
    """Create and lock the folder of a new run. `scores` names the user's own. Raises: UsageError, StorageError."""
    device, task = prepare_device(config), new_task(config)
    tell_threads(config, device)
    model = first_model(config, task)
    own = new_scores(scores, config, task, model)
    check_room(config, prepare_root(root))
    with RunDir.create(
        root, name, stem=f"{short_name(config.task.name).lower()}-h{config.model.n_heads}", command=command
    ) as run:
        with noting_failure(run):
            run.write_config(dump_yaml(config))
            keep_text(config, run)
            keep_init(config, run)
            run.update(**block_facts(model), **task_facts(config), **score_facts(own))
        yield TrainingSetup(config, task, device, run, model=model, scores=own)


@contextlib.contextmanager
def noting_failure(run: RunDir) -> Iterator[None]:
    """Record a failure before the training itself begins in the run folder."""
    try:
        yield
    except Exception:
        with contextlib.suppress(MhsaError):
            if run.read_run_json()["status"] == "running":
                run.update(status="failed", step=saved_step(run) or 0)
        raise


@contextlib.contextmanager
def training(setup: TrainingSetup, stop: StopSignal) -> Iterator[Training]:
    """Start a training. An error inside the block is recorded in the run folder."""
    run, device, group = setup.run, setup.device, None
    before, began = run.read_run_json().get("seconds") or 0.0, time.monotonic()

    def seconds() -> float:
        return round(before + time.monotonic() - began, 3)

    try:
        models = None if setup.model is None else [setup.model]
        files = None if setup.files is None else [setup.files]
        group = Group([setup.config], setup.task, device, models=models, resume=files, stop=stop, scores=setup.scores)
        run.update(**RESUMED, **group.facts(0), **machine(setup.config, device))
        yield Training(setup, group, History(run), seconds)
    except BaseException as error:
        stop.hold()
        if not isinstance(error, StorageError):  # else the folder cannot be written either
            _record_failure(setup, group, error, seconds())
        raise


@dataclass(frozen=True)
class Training:
    """One training: iterate `records()`, then call `finish()`. `seconds()` is its duration, resumes included."""

    setup: TrainingSetup
    group: Group
    history: History
    seconds: Callable[[], float]
    kept: list[SnapshotRecord] = field(default_factory=list)  # the last snapshot with maps

    @property
    def stopped(self) -> bool:
        """Whether it stopped before its last step."""
        return self.group.step < self.group.total and not self.group.ended

    @property
    def way_on(self) -> str:
        """How to resume it after a stop."""
        config, scores = self.setup.config, [score.name for score in self.setup.scores]
        attentions = [config.model.attention] if is_file(config.model.attention) else []
        own = options_to_name(attentions, [config.task.name] if is_own(config.task.name) else [], scores)
        more = f"mhsa train --resume {run_argument(self.setup.run.path)}{own}"
        return f"stopped after step {self.group.step} of {self.group.total}; continue: {more}"

    def records(self) -> Iterator[Record]:
        """Train and write every record; yields those that are new to the run folder."""
        for record in train_and_keep(self.group, self.setup.run, self.history):
            if isinstance(record, SnapshotRecord) and record.maps:
                self.kept[:] = [record]
            yield record

    def maps(self) -> HeadMaps | None:
        """Return every head's attention map of this moment, or of the last snapshot where none can be taken."""
        found = self.group.capture() or next(iter(self.kept), None)
        return None if found is None else snapshot_maps(found, self.setup.task.name, (), self.group.stack.model.parts)

    def finish(self) -> None:
        setup, group, seconds = self.setup, self.group, self.seconds()
        status = "stopped" if self.stopped else "finished"
        last = group.last_eval[0] if group.last_eval[0].step == group.step else group.evaluate()[0]
        model = group.model(0)
        maps = measure_model(setup.config, setup.task, model, group.step)
        maps = with_own_scores(maps, setup.config, setup.task, model, setup.scores)
        by = group.ended[0][0].by if group.ended else None
        write_results(setup.run, setup.config, setup.task, model, maps, last, seconds, status, **{ENDED_BY: by})


def _record_failure(setup: TrainingSetup, group: Group | None, error: BaseException, seconds: float) -> None:
    """Record how a training ended early, if the run folder can still be written."""
    run, failed = setup.run, isinstance(error, Exception)  # else a second Ctrl-C
    if not failed and group is not None:
        saved = saved_step(run)
        resume = f"step {saved} is saved; continue: mhsa train --resume {run_argument(run.path)}"
        tell(f"stopped after step {group.step} of {group.total}; {'nothing is saved' if saved is None else resume}")
    try:
        nonfinite = isinstance(error, NonFiniteError)  # such a state is not saved
        step = (saved_step(run) or 0) if group is None or nonfinite else group.step
        if isinstance(error, NonFiniteError):
            hints = [error.hint, f"the last finite weights, of step {step}, are kept: {run.path}"]
            if setup.files is not None:  # a resume cannot change these settings
                command = f"mhsa train --config {quoted(run.path / CONFIG)} train.grad_clip=1.0"
                hints.insert(1, f"in a new run: {command}")
            error.hint = "\n  ".join(filter(None, hints))
        run.update(status="failed" if failed else "interrupted", step=step, seconds=seconds)
    except MhsaError as second:
        tell(f"note: {second}")


def saved_step(run: RunDir) -> int | None:
    """Return the step of a run's newest checkpoint, or None."""
    return max((item.step for item in run.checkpoints()), default=None)


def train_and_keep(group: Group, run: RunDir, history: History) -> Iterator[Record]:
    """Train and write every record to the run folder; yields those that are new to it."""
    for record in records_of(group):
        if isinstance(record, SaveRecord):
            run.commit_checkpoint(record.step, record.files, group.train.keep)
        elif isinstance(record, SnapshotRecord):
            run.append(SCORES, [snapshot_to_dict(record)])
        else:
            if (type(record), record.step) in history.last:  # a resume evaluates its first step again
                continue
            run.append(METRICS, [record_to_dict(record)])
            history.add(record)
        yield record


def write_results(
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
    """Write the results of a run; its status last, when all else is on the disk."""
    train, digest = config.train, weights_sha256(model)
    trained = TrainBatches.of(task, train)
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
        eval_rows_seen=None if config.origin else seen_in_training(trained, maps.step, train.eval_sequences),
        eval_rows_sha256=rows_sha256(task, train.seed, train.eval_sequences),
        chance={"loss": task.chance_loss, "accuracy": task.chance_accuracy},
        baselines=dict(task.baselines),
        **{WEIGHTS: digest, **more},
    )
