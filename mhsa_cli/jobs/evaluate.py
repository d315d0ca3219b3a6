"""Evaluate a run's model on held-out rows, also of its task with other settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.config.scalars import write
from mhsa_cli.config.schema import SCHEMES, Config
from mhsa_cli.config.task_changes import changed_tasks
from mhsa_cli.core.evaluation import evaluate, with_rows_of
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.statistics import median_of
from mhsa_cli.core.tasks import Batch, Task, TrainBatches, fixed_batch
from mhsa_cli.core.training.overlap import rows_seen
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.own_task import load_task
from mhsa_cli.jobs.trained_run import TrainedRun, load_trained_run
from mhsa_cli.records.evaluation import GroupEvaluation, RunEvaluation
from mhsa_cli.records.sweep import Median, SweepReport
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir


def evaluate_run(
    folder: RunDir,
    own: OwnCode,
    changes: Sequence[str] = (),
    *,
    step: int | None = None,
    rows: int | None = None,
    seed: int | None = None,
) -> RunEvaluation:
    """Evaluate a checkpoint, by default the newest, on its own task and on each combination of `changes` to it.

    `rows` and `seed` are those of the training by default. Raises: UsageError for rows that the model cannot take.
    """
    run = load_trained_run(folder, own, step)
    return evaluate_trained(run, folder, own, changes, rows, seed)


def evaluate_trained(
    run: TrainedRun, folder: RunDir, own: OwnCode, changes: Sequence[str], rows: int | None, seed: int | None
) -> RunEvaluation:
    """Evaluate a run that is loaded; see `evaluate_run`."""
    model, task, config, at = run
    train = config.train
    n, seed = train.eval_sequences if rows is None else rows, train.seed if seed is None else seed
    tasks: list[tuple[Mapping[str, Any], Task]] = [({}, task)]
    for settings, changed in changed_tasks(config, changes):
        one = config.model_copy(update={"task": changed})
        made = load_task(one, folder.read_run_json(), own.task, who=folder.name, allow_changed=None)
        _check_ids(settings, made, model, task)
        _check_length(settings, made, model, config)
        tasks.append((settings, made))
    batches: list[Batch] = [fixed_batch(each, seed, "eval", n) for _, each in tasks]
    inputs = [batch.inputs for batch in batches]
    seen = rows_seen(TrainBatches.of(task, train), at, inputs) if config.origin is None else [None] * len(inputs)
    results = [
        evaluate(
            model if _takes(model, each.seq_len) else with_rows_of(model, config, task, each.seq_len),
            each,
            batch,
            settings,
            count,
            train,
        )  # fmt: skip
        for (settings, each), batch, count in zip(tasks, batches, seen, strict=True)
    ]
    return RunEvaluation(folder.name, at, seed, results)


def evaluate_sweep(
    sweep: SweepDir, report: SweepReport, own: OwnCode, changes: Sequence[str], rows: int | None, seed: int | None
) -> list[GroupEvaluation]:
    """Evaluate every finished trial as `evaluate_run` does: for each setting a record for each task."""
    found: list[GroupEvaluation] = []
    for cell, group in enumerate(report.groups):
        trials = [Path(trial.run).name for trial in report.trials if trial.cell == cell and trial.is_finished]
        folders = [RunDir.open(sweep.path, sweep.path / trial) for trial in trials]
        runs = [evaluate_run(folder, own, changes, rows=rows, seed=seed).results for folder in folders]
        for column in zip(*runs, strict=True):
            first = column[0]
            loss = _median(one.loss for one in column)
            accuracy = _median(one.accuracy for one in column)
            exact = _median(one.exact_match for one in column)
            chance = first.chance_loss, first.chance_accuracy
            medians = GroupEvaluation(group.overrides, first.settings, len(column), loss, accuracy, exact, *chance)
            found.append(medians)
    return found


def _median(values: Iterable[float]) -> Median:
    return median_of([(value, value) for value in values])


def _typed(settings: Mapping[str, Any]) -> str:
    return " ".join(f"task.{key}={write(value)}" for key, value in settings.items())


def _check_ids(settings: Mapping[str, Any], task: Task, model: TransformerLM, trained: Task) -> None:
    """Refuse rows whose ids the model does not have, or which it knows as something else. Raises: UsageError."""
    known = model.tok_emb.weight.size(-2)
    if task.vocab_size > known:
        message = f"{_typed(settings)}: rows have {task.vocab_size} ids, the model has {known}"
        raise UsageError(message, f"use task.vocab_size={known} or less", "ids")
    if task.separator != trained.separator:
        of_rows, learned = ("none" if one is None else f"the id {one}" for one in (task.separator, trained.separator))
        message = f"{_typed(settings)}: the separator of these rows is {of_rows}, the model has learned {learned}"
        raise UsageError(message, "train another run with them", "ids")


def _takes(model: TransformerLM, seq_len: int) -> bool:
    """Return whether a model takes rows of this length as it is: of an encoder-decoder it sets where a source ends."""
    return seq_len == model.max_seq_len if model.source else seq_len <= model.max_seq_len


def _check_length(settings: Mapping[str, Any], task: Task, model: TransformerLM, config: Config) -> None:
    """Refuse rows that are longer than a model which has learned or been built for a length. Raises: UsageError."""
    longest = model.max_seq_len
    if _takes(model, task.seq_len):
        return
    found = f"{_typed(settings)}: rows have {task.seq_len} tokens"
    less = "" if model.source else " or less"
    way = f"use task.seq_len={longest}{less}, or train with model.max_seq_len={task.seq_len}"
    if model.custom is not None:
        raise UsageError(f"{found}, its custom attention was built for {longest}", way, "length")
    if config.model.positions == "learned":
        others = ", ".join(scheme for scheme in SCHEMES if scheme != "learned")
        message = f"{found}, the model has learned a vector for {longest} positions and none for those after"
        raise UsageError(message, f"{way}; {others} need no vectors", "length")
