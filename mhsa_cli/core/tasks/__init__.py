"""The tasks: one file and one entry of TASKS each; their settings are in config.tasks."""

from __future__ import annotations

from mhsa_cli.config.own_task import OwnTask
from mhsa_cli.config.tasks import TaskConfig
from mhsa_cli.core.tasks.base import IGNORE, Batch, Task, TrainBatches, fixed_batch, stream_generator
from mhsa_cli.core.tasks.copy import Copy
from mhsa_cli.core.tasks.induction import Induction
from mhsa_cli.core.tasks.repeat import Repeat
from mhsa_cli.core.tasks.reverse import Reverse
from mhsa_cli.core.tasks.rows import Rows
from mhsa_cli.core.tasks.shift import Shift
from mhsa_cli.core.tasks.text import Text
from mhsa_cli.errors import UsageError
from mhsa_cli.records.training import TaskInfo
from mhsa_cli.text import escape

__all__ = ["IGNORE", "TASKS", "Batch", "Task", "TrainBatches", "build_task", "drawn", "fixed_batch"]

TASKS: dict[str, type[Task]] = {
    "repeat": Repeat,
    "copy": Copy,
    "reverse": Reverse,
    "induction": Induction,
    "shift": Shift,
    "text": Text,
    "rows": Rows,
}


def build_task(config: TaskConfig | OwnTask) -> Task:
    """Build a built-in task. Raises: UsageError for the user's own, whose file only some commands run."""
    if isinstance(config, OwnTask):
        same = f"task.name=copy task.vocab_size={config.vocab_size} task.seq_len={config.seq_len}"
        message = f"{escape(config.name)} is no built-in task, which is wanted here: speed depends on sizes alone"
        raise UsageError(message, f"of the same sizes: {same}")
    return TASKS[config.name](**config.model_dump(exclude={"name"}))


def drawn(task: Task) -> TaskInfo:
    """Draw one row of a task: inputs, targets, and the chance level and baselines at its size."""
    row = task.sample(stream_generator(6, "show", 0), 1)
    targets = ["·" if t == IGNORE else task.symbols([t])[0] for t in row.targets[0].tolist()]
    inputs = task.symbols(row.inputs[0].tolist())
    chance = task.chance_loss, task.chance_accuracy
    return TaskInfo(task.name, task.summary, inputs, targets, *chance, dict(task.baselines))
