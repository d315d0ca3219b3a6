"""`mhsa train`: train a model from a config and save the run."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

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
from mhsa_cli.commands.output import print_json
from mhsa_cli.commands.run_summary import guessing, result_document, show_run
from mhsa_cli.config.load import load_config
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.messages import saying_kept, tell
from mhsa_cli.jobs.signals import StopSignal
from mhsa_cli.renderers.kit.console import make_console, surface_of
from mhsa_cli.renderers.pictures.live import LiveTraining
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.names import runs_root
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import escape

if TYPE_CHECKING:  # torch comes with it: not before the config is known to be good
    from mhsa_cli.jobs.resume import ResumePoint
    from mhsa_cli.jobs.train import Training, TrainingSetup

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
        wanted = load_config(config, changes)
        from mhsa_cli.jobs.train import new_run  # torch: not before the config is known to be good

        _train(new_run(wanted, root, name, ["mhsa", *sys.argv[1:]]), as_json)
        return
    if config is not None or name is not None:
        raise UsageError("--resume goes on with a run's own config and name", "leave out --config and --name")
    found = RunDir.open(root, resume)
    from mhsa_cli.jobs.resume import read_resume_point, resumed_run  # torch comes with it

    where = read_resume_point(found, changes)  # only read: of a run that is done not even the lock file changes
    if where.is_done(found):
        _tell_done(found, where, as_json)
    else:
        _train(resumed_run(root, found.path, changes, attention, allow_inexact), as_json)


def _train(prepared: AbstractContextManager[TrainingSetup], as_json: bool) -> None:
    """Train, drawing the curve as it comes; then show the run."""
    from mhsa_cli.jobs.train import training  # torch comes with it

    console = make_console(stderr=True)
    surface = surface_of(console)
    with prepared as setup:
        with StopSignal(animated=surface.animate) as stop, training(setup, stop) as begun:
            view = LiveTraining(
                console,
                surface,
                total_steps=begun.group.total,
                baseline=guessing(setup.task.chance_loss),
                trained=begun.group.trained,
                history=begun.history.series(),
            )
            with view:
                for record in begun.records():
                    view.add(record)
            begun.finish()
        stop.forgive_lost_output()
        with saying_kept(setup.run.path):
            if as_json:
                print_json(result_document(setup.run))
            else:
                show_run(setup.run, view.series(), begun.history.epochs)
        if stop.caught is not None:
            _tell_stopped(begun)
            raise typer.Exit(128 + stop.caught)


def _tell_stopped(training: Training) -> None:
    """Say how to go on with a training that a signal stopped."""
    if training.stopped:
        more = f"mhsa train --resume {run_argument(training.setup.run.path)}"
        tell(f"stopped after step {training.group.step} of {training.group.total}; to go on: {more}")


def _tell_done(run: RunDir, where: ResumePoint, as_json: bool) -> None:
    """Say that a run has nothing left to do, and how it goes on all the same."""
    step, config = where.checkpoint.step, where.config
    epochs = max(config.train.epochs, -(-step // config.train.steps_per_epoch)) + 1
    more = f"mhsa train --resume {run_argument(run.path)} train.epochs={epochs}"
    tell(f"{run.name} is already at step {step} of {config.total_steps}; to go on: {more}")
    if as_json:
        print_json(result_document(run))
