"""The tasks: one file each, its name in TASKS, and its settings in config.tasks."""

from __future__ import annotations

from mhsa_cli.config.tasks import TaskConfig
from mhsa_cli.core.tasks.base import IGNORE, Batch, Task, TrainBatches, fixed_batch
from mhsa_cli.core.tasks.copy import Copy
from mhsa_cli.core.tasks.induction import Induction
from mhsa_cli.core.tasks.repeat import Repeat
from mhsa_cli.core.tasks.reverse import Reverse
from mhsa_cli.core.tasks.shift import Shift
from mhsa_cli.core.tasks.text import Text

__all__ = ["IGNORE", "TASKS", "Batch", "Task", "TrainBatches", "build_task", "fixed_batch"]

TASKS: dict[str, type[Task]] = {task.name: task for task in (Repeat, Copy, Reverse, Induction, Shift, Text)}


def build_task(config: TaskConfig) -> Task:
    """Make the task that a config names, with its knobs."""
    return TASKS[config.name](**config.model_dump(exclude={"name"}))
