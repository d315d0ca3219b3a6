"""`mhsa train`: train a model from a config and save the run."""

from __future__ import annotations

import sys
from typing import Annotated

from mhsa_cli.commands.options import (
    AttentionOption,
    ConfigOption,
    JsonOption,
    Overrides,
    RunsOption,
    SetOption,
    all_overrides,
    flag,
    option,
)
from mhsa_cli.errors import UsageError
from mhsa_cli.runs.names import runs_root
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import escape

NameOption = Annotated[str | None, option("--name", "NAME", "The run's name; left out, a free one is chosen.")]
ResumeOption = Annotated[
    str | None, option("--resume", "RUN", "Go on with a run from its newest checkpoint (`newest` = that run).")
]
InexactOption = Annotated[
    bool, flag("--allow-inexact", "Resume although this device, torch or thread count changes the bits.")
]


def train(
    overrides: Overrides = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    name: NameOption = None,
    resume: ResumeOption = None,
    attention: AttentionOption = None,
    allow_inexact: InexactOption = False,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa train`."""
    changes = all_overrides("train", overrides, settings, runs)
    root = runs_root(runs)
    if attention is not None and resume is None:
        raise UsageError("--attention goes with --resume", f"a new run: mhsa train model.attention={escape(attention)}")
    if resume is None:
        from mhsa_cli.config.load import load_config  # help needs none

        wanted = load_config(config, changes)
        from mhsa_cli.commands.train_output import show_training  # torch: not before the config is known to be good
        from mhsa_cli.jobs.train import new_run

        show_training(new_run(wanted, root, name, ["mhsa", *sys.argv[1:]]), as_json)
        return
    if config is not None or name is not None:
        raise UsageError("--resume goes on with a run's own config and name", "leave out --config and --name")
    found = RunDir.open(root, resume)
    from mhsa_cli.commands.train_output import show_training, tell_done  # torch comes with it
    from mhsa_cli.jobs.resume import read_resume_point, resumed_run

    where = read_resume_point(found, changes)  # only read: of a run that is done not even the lock file changes
    if where.is_done(found):
        tell_done(found, where, as_json)
    else:
        show_training(resumed_run(root, found.path, changes, attention, allow_inexact), as_json)
