"""Output of `mhsa train`: the curve while it trains, and the summary of the run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import typer

from mhsa_cli.commands.options import Live
from mhsa_cli.commands.output import print_json
from mhsa_cli.commands.run_summary import result_document, show_run
from mhsa_cli.jobs.messages import saying_kept, tell
from mhsa_cli.jobs.resume import ResumePoint
from mhsa_cli.jobs.signals import StopSignal
from mhsa_cli.jobs.train import TrainingSetup, training
from mhsa_cli.renderers.kit.console import make_console, surface_of
from mhsa_cli.renderers.pictures.curve import levels
from mhsa_cli.renderers.pictures.live import LiveTraining
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import from_file


def show_training(prepared: AbstractContextManager[TrainingSetup], as_json: bool, live: Live = Live.CURVE) -> None:
    """Train, redrawing the curve; then print the summary."""
    console = make_console(stderr=True)
    surface = surface_of(console)
    if live is Live.NONE:
        surface = replace(surface, animate=False)
    with prepared as setup:
        with StopSignal(animated=surface.animate) as stop, training(setup, stop) as active:
            view = LiveTraining(
                console,
                surface,
                total_steps=active.group.total,
                levels=levels(setup.task.chance_loss, setup.task.baselines),
                trained=active.group.trained,
                history=active.history.series(),
                maps=active.maps if live is Live.HEADS else None,
            )
            with view if setup.config.origin is None else nullcontext():
                for record in active.records():
                    if setup.config.origin is None:
                        view.add(record)
            active.finish()
        stop.forgive_lost_output()
        with saying_kept(setup.run.path):
            if as_json:
                print_json(result_document(setup.run))
            else:
                show_run(setup.run, view.series(), active.history.epochs)
        if stop.caught is not None:
            if active.stopped:
                tell(active.way_on)
            raise typer.Exit(128 + stop.caught)


def tell_done(run: RunDir, where: ResumePoint, as_json: bool) -> None:
    """Print that a run has no steps left, and how to train it further."""
    step, config = where.checkpoint.step, where.config
    resume = f"mhsa train --resume {run_argument(run.path)}"
    if by := where.ended_by(run):
        rule = f"train.{by} ({getattr(config.train, by)})"
        tell(f"{run.name} is complete: it ended by {rule} at step {step}; continue: {resume} train.{by}=null")
    elif config.origin is not None:
        tell(f"{run.name} is {from_file(config.origin)}; to train it: {resume} train.epochs=1")
    else:
        epochs = max(config.train.epochs, -(-step // config.train.steps_per_epoch)) + 1
        beyond = f", {config.total_steps} planned" if step > config.total_steps else ""
        more = f"{resume} train.epochs={epochs}"
        tell(f"{run.name} is complete: {step} steps trained{beyond}; continue: {more}")
    if as_json:
        print_json(result_document(run))
