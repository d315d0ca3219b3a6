"""One small row of every task, for people to look at."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mhsa_cli.core.tasks import IGNORE, TASKS, Task
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.core.tasks.text import Text
from mhsa_cli.records import TaskInfo

SMALL = {"vocab_size": 10, "seq_len": 8}


def small_task(name: str) -> Task:
    """Build a task at a size that fits on a line."""
    if name != "text":
        return TASKS[name](**SMALL)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "example.txt"
        file.write_text("hello attention " * 10, encoding="utf-8")
        return Text(path=str(file), seq_len=8, eval_fraction=0.5)


def example(name: str) -> TaskInfo:
    """Draw one row of a task: what goes in, what must come out, and what guessing scores at that size."""
    task = small_task(name)
    row = task.sample(1, stream_generator(1, "show", 0))
    targets = ["·" if t == IGNORE else task.symbols([t])[0] for t in row.targets[0].tolist()]
    inputs = task.symbols(row.inputs[0].tolist())
    return TaskInfo(name, task.summary, inputs, targets, task.chance_loss, task.chance_accuracy)


def examples() -> list[TaskInfo]:
    """Draw a row of every task."""
    return [example(name) for name in TASKS]
