"""One small row of every task, for people to look at."""

from __future__ import annotations

from mhsa_cli.core.tasks import IGNORE, TASKS
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.records import TaskInfo


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
