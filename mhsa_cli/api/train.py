"""Train a model from Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mhsa_cli.api.progress import TrainingLine
from mhsa_cli.api.run import Run
from mhsa_cli.api.settings import Settings, Source, check_kinds, command_line, config_and_changes
from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.load import load_config
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.config.own_task import is_own
from mhsa_cli.jobs.guest import as_guest
from mhsa_cli.jobs.signals import Interrupt
from mhsa_cli.runs.names import runs_root
from mhsa_cli.runs.run_dir import RunDir


def train(
    source: Source = None,
    settings: Settings = None,
    /,
    *,
    name: str | None = None,
    runs: str | os.PathLike[str] | None = None,
    quiet: bool = False,
    **more: Any,
) -> Run:
    """Train a model and save the run, as `mhsa train` does. Example: `train("copy", n_heads=8, lr=1e-3)`.

    `source`: a config file, a recipe, a task by its name, or one of your own, "FILE.py:Name". Settings are keywords
    where their name is unique, else `{"model.n_heads": 8}`. `name` is that of the run, `runs` the folder of runs.
    Ctrl-C saves the step, then raises
    KeyboardInterrupt: `mhsa train --resume NAME` goes on. Raises: UsageError, NonFiniteError, StorageError.
    """
    root = runs_root(None if runs is None else Path(runs))
    with as_guest():
        check_kinds({"name": (name, str, "a text")})
        path, changes = config_and_changes(source, settings, more)
        config = load_config(path, changes)
        from mhsa_cli.jobs.train import new_run, training  # imports torch: only after the config is checked
    with (
        as_guest(trains=True),
        new_run(config, root, name, command_line("train", path, changes)) as setup,
        Interrupt() as stop,
    ):
        with training(setup, stop) as active:
            with TrainingLine(active.group.total, quiet) as line:
                for record in active.records():
                    line.add(record)
            active.finish()
        if stop.caught is not None:
            raise KeyboardInterrupt(*([active.way_on] if active.stopped else []))
    attention, task = config.model.attention, config.task.name
    own = OwnCode(attention if is_file(attention) else None, task if is_own(task) else None)
    return Run(RunDir.open(root, setup.run.path), own)
