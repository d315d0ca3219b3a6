"""Output of `mhsa train`: the curve while it trains, and the summary of the run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import typer
from rich.text import Text

from mhsa_cli.commands.options import Detail, Live
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.commands.run_summary import result_document, result_line, run_end, show_run
from mhsa_cli.jobs.history import History
from mhsa_cli.jobs.messages import keeping_told, saying_kept, tell
from mhsa_cli.jobs.resume import ResumePoint
from mhsa_cli.jobs.signals import StopSignal
from mhsa_cli.jobs.train import TrainingSetup, training
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.kit.console import make_console, surface_of
from mhsa_cli.renderers.kit.text_lines import rows_of
from mhsa_cli.renderers.pictures.curve import labelled_levels
from mhsa_cli.renderers.pictures.live import LiveTraining
from mhsa_cli.renderers.pictures.training_end import training_end
from mhsa_cli.runs.listing import origin_of, run_argument
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import from_file


def show_training(
    prepared: AbstractContextManager[TrainingSetup], as_json: bool, detail: Detail, live: Live = Live.CURVE
) -> None:
    """Train, redrawing the curve; then print the results: a line, what a terminal has room for, or all."""
    console = make_console(stderr=True)
    surface = surface_of(console)
    if live is Live.NONE:
        surface = replace(surface, animate=False)
    with keeping_told() as told, prepared as setup:
        watched = setup.config.origin is None and detail != "quiet"
        with StopSignal(animated=surface.animate) as stop, training(setup, stop) as active:
            view = LiveTraining(
                console,
                surface,
                total_steps=active.group.total,
                levels=labelled_levels({"chance": setup.task.chance_loss, **setup.task.baselines}),
                trained=active.group.trained,
                history=active.history.series(),
                maps=active.maps if live is Live.HEADS else None,
            )
            with view if watched else nullcontext():
                for record in active.records():
                    if watched:
                        view.add(record)
            active.finish()
        stop.forgive_lost_output()
        stopped = [active.way_on] if stop.caught is not None and active.stopped else []
        with saying_kept(setup.run.path):
            if as_json:
                print_json(result_document(setup.run))
            elif detail == "quiet":
                Paper().offer(result_line(setup.run))
            else:
                shown = [*told, *stopped] if surface.bounded else []
                show_end(setup.run, view.series(), active.history, detail, shown)
        for line in stopped:
            tell(line)
        if stop.caught is not None:
            raise typer.Exit(128 + stop.caught)


def show_end(run: RunDir, series: Sequence[Series], history: History, detail: Detail, beside: Sequence[str]) -> None:
    """Print what a terminal has room for, with the prompt and the messages `beside`; elsewhere print all."""
    paper = Paper()
    width, rows = paper.surface.width, paper.surface.height - 1
    rows -= rows_of([Text(line) for text in beside for line in text.split("\n")], width)
    whole = detail == "verbose" or not paper.surface.animate or origin_of(run.read_run_json()) is not None
    if not whole:
        with paper.console.capture() as captured:
            show_run(run, series, history.epochs, paper)
        whole = rows_of(list(Text.from_ansi(captured.get().removesuffix("\n")).split(allow_blank=True)), width) <= rows
    if whole:
        show_run(run, series, history.epochs, paper)
    else:
        paper.draw(training_end(run_end(run, series, history.few_epochs), paper.surface, rows))


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
