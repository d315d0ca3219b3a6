"""The tasks: one file each, its name in TASKS, and its settings in config.tasks."""

from __future__ import annotations

from mhsa_cli.config.tasks import TaskConfig
from mhsa_cli.core.tasks.base import IGNORE, Batch, Task, TrainBatches, fixed_batch, stream_generator
from mhsa_cli.core.tasks.copy import Copy
from mhsa_cli.core.tasks.induction import Induction
from mhsa_cli.core.tasks.repeat import Repeat
from mhsa_cli.core.tasks.reverse import Reverse
from mhsa_cli.core.tasks.shift import Shift
from mhsa_cli.core.tasks.text import Text
from mhsa_cli.records.training import TaskInfo

__all__ = ["IGNORE", "TASKS", "Batch", "Task", "TrainBatches", "build_task", "example", "examples", "fixed_batch"]

TASKS: dict[str, type[Task]] = {task.name: task for task in (Repeat, Copy, Reverse, Induction, Shift, Text)}


def build_task(config: TaskConfig) -> Task:
    """Make the task that a config names, with its knobs."""
    return TASKS[config.name](**config.model_dump(exclude={"name"}))


def example(name: str) -> TaskInfo:
    """Draw one row of a task: what goes in, what must come out, and what guessing scores at that size."""
    task = TASKS[name].small()
    row = task.sample(1, stream_generator(1, "show", 0))
    targets = ["·" if t == IGNORE else task.symbols([t])[0] for t in row.targets[0].tolist()]
    inputs = task.symbols(row.inputs[0].tolist())
    return TaskInfo(name, task.summary, inputs, targets, task.chance_loss, task.chance_accuracy)


def examples() -> list[TaskInfo]:
    """Draw a row of every task."""
    return [example(name) for name in TASKS]
