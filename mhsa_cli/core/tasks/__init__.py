"""The tasks: one file each, one line in TASKS."""

from __future__ import annotations

from collections.abc import Callable

from mhsa_cli.config.schema import TaskConfig
from mhsa_cli.core.tasks.base import IGNORE, Batch, Task, TrainBatches, fixed_batch
from mhsa_cli.core.tasks.copy import Copy
from mhsa_cli.core.tasks.induction import Induction
from mhsa_cli.core.tasks.repeat import Repeat
from mhsa_cli.core.tasks.reverse import Reverse
from mhsa_cli.core.tasks.shift import Shift
from mhsa_cli.core.tasks.text import Text

__all__ = ["IGNORE", "TASKS", "Batch", "Task", "TrainBatches", "build_task", "fixed_batch"]

TASKS: dict[str, Callable[..., Task]] = {
    "repeat": Repeat,
    "copy": Copy,
    "reverse": Reverse,
    "induction": Induction,
    "shift": Shift,
    "text": Text,
}


def build_task(config: TaskConfig) -> Task:
    """Make the task that a config names, with its knobs."""
    return TASKS[config.name](**config.model_dump(exclude={"name"}))
