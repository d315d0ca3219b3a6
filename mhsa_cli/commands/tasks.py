"""`mhsa tasks`: the tasks, each drawn as an input row over its target row."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from mhsa_cli.commands.options import JsonOption, argument
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.config.spelling import nearest
from mhsa_cli.config.tasks import TASK_SCHEMAS
from mhsa_cli.errors import UsageError
from mhsa_cli.renderers.pictures.task import task_picture
from mhsa_cli.text import escape


def tasks(
    task: Annotated[str | None, argument("[TASK]", "name of one task [default: all tasks]")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa tasks`."""
    if task is not None and task not in TASK_SCHEMAS:
        close = nearest(task, TASK_SCHEMAS)
        hint = f"did you mean: mhsa tasks {close}" if close else f"tasks: {', '.join(TASK_SCHEMAS)}"
        raise UsageError(f"there is no task `{escape(task)}`", hint)
    from mhsa_cli.jobs.untrained import examples  # imports torch

    found = [info for info in examples() if task in (None, info.name)]
    if as_json:
        print_json([asdict(info) for info in found] if task is None else asdict(found[0]))
        return
    paper = Paper()
    for info in found:
        paper.draw(task_picture(info, paper.surface))
        paper.say()
    example = f"task.name={task or 'reverse'}" + (" task.path=FILE" if task == "text" else "")
    paper.offer(f"next: mhsa train {example}\nor: mhsa config init my.yaml")
