"""`mhsa train`: train a model from a config and save the run."""

from __future__ import annotations

import sys
from typing import Annotated

from mhsa_cli.commands.options import (
    AttentionOption,
    ConfigOption,
    Detail,
    JsonOption,
    Live,
    Overrides,
    RunsOption,
    ScoresOption,
    SetOption,
    TaskOption,
    all_overrides,
    flag,
    option,
)
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.config.own_score import check_names
from mhsa_cli.errors import UsageError
from mhsa_cli.runs.names import runs_root
from mhsa_cli.text import quoted


def train(
    overrides: Overrides = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    name: Annotated[str | None, option("--name", "NAME", "name of the run [default: TASK-hN, such as copy-h4]")] = None,
    resume: Annotated[str | None, option("--resume", "RUN", "continue a run from its newest checkpoint")] = None,
    attention: AttentionOption = None,
    task: TaskOption = None,
    score: ScoresOption = None,
    allow_inexact: Annotated[bool, flag("--allow-inexact", "resume even if this machine changes the bits")] = False,
    live: Annotated[
        Live, flag("--live", "on a terminal, redraw: the curve, or also every head's map; none: lines, as in a file")
    ] = Live.CURVE,
    runs: RunsOption = None,
    verbose: Annotated[bool, flag("--verbose, -v", "print all results, also on a low terminal")] = False,
    quiet: Annotated[bool, flag("--quiet, -q", "print one line: the run and its result")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa train`."""
    if verbose and quiet:
        raise UsageError("--verbose and --quiet exclude each other", "keep one of them")
    detail: Detail = "verbose" if verbose else "quiet" if quiet else "usual"
    changes, root = all_overrides("train", overrides, settings, runs), runs_root(runs)
    if resume is None:
        for option_name, key, given in (("--attention", "model.attention", attention), ("--task", "task.name", task)):
            if given is not None:
                raise UsageError(f"{option_name} needs --resume", f"in a new run: mhsa train {key}={quoted(given)}")
        from mhsa_cli.config.load import load_config  # not for help

        check_names(score or ())
        new_config = load_config(config, changes)
        from mhsa_cli.commands.train_output import show_training  # imports torch: only after the config is checked
        from mhsa_cli.jobs.train import new_run

        show_training(new_run(new_config, root, name, ["mhsa", *sys.argv[1:]], score or ()), as_json, detail, live)
        return
    if config is not None or name is not None:
        raise UsageError("--resume excludes --config and --name", "a resumed run keeps its config and its name")
    from mhsa_cli.runs.run_dir import RunDir  # after the first words, which its imports would delay

    folder = RunDir.open(root, resume)
    from mhsa_cli.commands.train_output import show_training, tell_done  # imports torch
    from mhsa_cli.jobs.resume import read_resume_point, resumed_run

    point = read_resume_point(folder, changes)  # reads only: of a finished run not even the lock file changes
    if point.is_done(folder):
        tell_done(folder, point, as_json)
    else:
        own = OwnCode(attention, task, score or ())
        show_training(resumed_run(root, folder.path, changes, own, allow_inexact), as_json, detail, live)
