"""The task of a run: built in, or in a file, which runs only if the config or --task names it.

A file installed with the recipes needs no --task, if it is the one that the run was trained on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from mhsa_cli.config.own_file import split
from mhsa_cli.config.own_task import KEY, digest, find_task, installed_task, located, recorded_digest
from mhsa_cli.config.own_task import OwnTask as OwnTaskConfig
from mhsa_cli.config.schema import Config
from mhsa_cli.core.tasks import IGNORE, Batch, Task, TrainBatches, build_task, fixed_batch
from mhsa_cli.core.tasks.own import OwnTask
from mhsa_cli.core.training.overlap import shared_rows
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.own_source import OwnSource, check_unchanged, local_file
from mhsa_cli.text import escape

NEXT_ROWS = 64  # that show what a task asks for


def make_task(config: Config) -> Task:
    """Build the task of a config; of the user's own, its file runs here. Raises: UsageError."""
    if not isinstance(config.task, OwnTaskConfig):
        return build_task(config.task)
    return _load(config.task, config.task.name)


def _load(task: OwnTaskConfig, name: str) -> OwnTask:
    from mhsa_cli.check.source.load import load_whole

    return OwnTask(name, load_whole(located(name)), task.settings)


def new_task(config: Config) -> Task:
    """Build the task of a new training, and compare its evaluation rows with those it trains on. Raises: UsageError."""
    task = make_task(config)
    if isinstance(task, OwnTask):
        _tell_which(task.file)
        _ = task.baselines  # checked now, not after the training
        if config.model.causal:
            task.check_causal()
        check_overlap(task, config)
    if not config.model.causal and asks_next_token(fixed_batch(task, config.train.seed, "eval", NEXT_ROWS)):
        tell(f"note: without a causal mask every query sees the next token, which is its answer in {task.name}")
    return task


def asks_next_token(batch: Batch) -> bool:
    """Whether every scored target, but at the last position, is the next token of its row."""
    asked = batch.targets[:, :-1] != IGNORE
    return bool(asked.any()) and bool((batch.targets[:, :-1] == batch.inputs[:, 1:])[asked].all())


def _tell_which(name: str) -> None:
    """Say that a file here goes before another one installed under its name."""
    other = installed_task(name)
    if other is not None and located(name) == name and digest(name) != digest(other):
        file = escape(split(name)[0])
        tell(f"note: {file} is the file in this folder, not the one installed with the recipes")


def check_overlap(task: OwnTask, config: Config) -> None:
    """Refuse held-out rows that the first training rows have too; note it where none are held out."""
    train, n = config.train, config.train.eval_sequences
    shared = shared_rows(TrainBatches.of(task, train), n)
    if shared and task.holds_back:
        message = f"{escape(task.file)}: {shared} of {n} rows of held_out are also rows of sample"
        raise UsageError(message, "split the rows once, as by a rule on their content")
    if shared:
        tell(f"note: {shared} of {n} evaluation rows are also among the first training rows: {escape(task.name)} does")
        tell("  not hold rows back; held_out(generator, rows) would")


def task_facts(config: Config, sent: OwnSource | None = None) -> dict[str, Any]:
    """Describe the user's own task for run.json; empty for a built-in one. `sent` is its file in a sweep."""
    if not isinstance(config.task, OwnTaskConfig):
        return {}
    file, name = split(config.task.name)
    found = digest(config.task.name) if sent is None else sha256(sent.text).hexdigest()
    return {KEY: {"file": file, "name": name, "sha256": found}}


def load_task(
    config: Config, info: Mapping[str, Any], given: str | None, *, who: str, allow_changed: bool | None
) -> Task:
    """Load the task of a run; the user's own only if `given` names it.

    With `allow_changed` None a changed file gives a note; with False it is refused.
    Raises: UsageError if it is not named, or another one is; RunError if its file changed.
    """
    if not isinstance(config.task, OwnTaskConfig):
        if given is not None:
            raise UsageError(f"{who} was trained on a built-in task, {config.task.name}", "remove --task")
        return build_task(config.task)
    recorded = recorded_digest(info)
    given = find_task(config.task.name, [] if given is None else [given], who, recorded)
    task, found = _load(config.task, given), digest(given)
    check_unchanged(split(given)[0], found, recorded, f"{who} was trained on", allow_changed)
    return task


def task_digests(configs: Sequence[Config]) -> dict[str, str]:
    """Map the names of a new sweep's own tasks to the sha256 of their files; each is built once. Raises: UsageError."""
    own = [config for config in configs if isinstance(config.task, OwnTaskConfig)]
    asked = {
        (
            str(one.task),
            one.model.causal,
            one.train.seed,
            one.train.batch_stream,
            one.train.batch_size,
            one.train.eval_sequences,
        ): one
        for one in own
    }
    for config in asked.values():  # what the checks depend on
        new_task(config)
    return {config.task.name: digest(config.task.name) for config in own}


def goal_accuracy(configs: Sequence[Config]) -> float:
    """Return the accuracy at which a run has learned its task; of several tasks the lowest. Raises: UsageError."""
    own = {str(config.task): config for config in configs if isinstance(config.task, OwnTaskConfig)}
    goals = [make_task(config).goal_accuracy for config in own.values()]
    return min(goals + [Task.goal_accuracy] * any(not isinstance(config.task, OwnTaskConfig) for config in configs))


def name_tasks(
    configs: Sequence[Config], recorded: Mapping[str, str], given: Sequence[str] | None, who: str
) -> dict[str, str]:
    """Map the own tasks in a sweep's configs to the name to import; `given` is None in a new sweep.

    Raises: UsageError if `given` lacks one; RunError if its file changed since the sweep began.
    """
    names = dict.fromkeys(config.task.name for config in configs if isinstance(config.task, OwnTaskConfig))
    found = {name: name if given is None else find_task(name, given, who, recorded.get(name)) for name in names}
    for name, other in found.items():
        if Path(split(located(other))[0]).is_file() and digest(other) != recorded.get(name):
            raise RunError(f"{escape(split(other)[0])} is not the file {who} began with", "restore the file")
    return found


@contextlib.contextmanager
def task_of_chunk(config: Config, own: OwnSource | None) -> Iterator[Task]:
    """Build the task of a sweep's trials, of the user's own from the file as the sweep sends it to any machine."""
    if own is None or not isinstance(config.task, OwnTaskConfig):
        yield build_task(config.task)
        return
    with local_file(own) as name:
        yield _load(config.task, name)
