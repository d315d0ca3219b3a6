"""`mhsa tasks`: the tasks, each drawn as an input row over its target row, and a file to begin one's own with."""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from mhsa_cli.commands.options import JsonOption, argument
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.config.own_task import is_own
from mhsa_cli.config.spelling import nearest
from mhsa_cli.config.tasks import DATA_FILES, TASK_SCHEMAS
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.records.task_examples import EXAMPLES
from mhsa_cli.renderers.pictures.task import task_picture
from mhsa_cli.runs.names import NEW
from mhsa_cli.runs.output_files import check_new, write_new
from mhsa_cli.text import escape, quoted

TEMPLATE = "core/tasks/template.py"


def tasks(
    names: Annotated[
        list[str] | None,
        argument("[TASK | new FILE.py]", "a task, or your own as FILE.py:NAME [default: all]\nfile that new writes"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa tasks`."""
    name = names[0] if names else None
    more = (names or [])[1:]
    if name == NEW:  # write a file to begin a task with
        if len(more) != 1 or as_json:
            raise UsageError("tasks new: wanted one file", "mhsa tasks new mytask.py")
        _write_template(Path(more[0]))
        return
    if more:
        raise UsageError(f"found {len(more) + 1} tasks, wanted one or none", f"mhsa tasks {escape(name or '')}")
    if name is not None and not is_own(name) and name not in TASK_SCHEMAS:
        close = nearest(name, TASK_SCHEMAS)
        hint = f"did you mean: mhsa tasks {close}" if close else f"tasks: {', '.join(TASK_SCHEMAS)}, or FILE.py:NAME"
        raise UsageError(f"there is no task `{escape(name)}`", hint)
    if name is not None and is_own(name):
        from mhsa_cli.config.load import load_config
        from mhsa_cli.jobs.untrained import example_of  # imports torch

        found = [example_of(load_config(None, [f"task.name={name}"]))]
    else:
        found = [info for info in EXAMPLES.values() if name in (None, info.name)]
    if as_json:
        print_json([asdict(info) for info in found] if name is None else asdict(found[0]))
        return
    paper = Paper()
    for info in found:
        paper.draw(task_picture(info, paper.surface))
        paper.say()
    file = f" task.{DATA_FILES[name]}=FILE" if name in DATA_FILES else ""
    own = "\nor write your own: mhsa tasks new mytask.py" if name is None else ""
    paper.offer(f"next: mhsa train task.name={name or 'reverse'}{file}\nor: mhsa config init my.yaml{own}")


def _write_template(path: Path) -> None:
    """Write a task that runs, as a new file. Raises: UsageError, StorageError."""
    if path.suffix != ".py":
        raise unwanted("tasks new", str(path), "a name that ends in .py", "mhsa tasks new mytask.py")
    check_new(path, "mhsa tasks new FILE.py")
    write_new(path, {"": (files("mhsa_cli") / TEMPLATE).read_bytes()})
    name = quoted(f"{path}:MyTask")
    Paper().offer(f"wrote {escape(path)}\nnext: mhsa tasks {name}\nor: mhsa train task.name={name}")
