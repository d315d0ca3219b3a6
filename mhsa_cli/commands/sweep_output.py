"""Output of `mhsa sweep`: curves while it trains, the report, and what to do about failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.commands.pictures import PictureFile, write_picture
from mhsa_cli.config.own_file import OwnCodes
from mhsa_cli.config.own_task import options_to_name
from mhsa_cli.errors import MhsaError, NonFiniteError, RunError, StorageError
from mhsa_cli.jobs.messages import LOWER_MEMORY, saying_kept, tell
from mhsa_cli.jobs.signals import StopSignal
from mhsa_cli.jobs.sweep.plan import EngineOptions
from mhsa_cli.records.sweep import UNREAD, Cause, SweepReport
from mhsa_cli.renderers.figures.sheet_options import Page
from mhsa_cli.renderers.kit.console import Surface, make_console, surface_of
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.pictures.live_sweep import LiveSweep
from mhsa_cli.renderers.pictures.sweep import curves_of, sweep_picture
from mhsa_cli.renderers.pictures.sweep_words import pair_words
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.sweep_dir import SweepDir, report_document
from mhsa_cli.text import plural

if TYPE_CHECKING:
    from mhsa_cli.jobs.sweep.report import SweepResults
    from mhsa_cli.jobs.sweep.run import SweepResult
    from mhsa_cli.renderers.figures.sheet import PaperFigure

# What a sweep with such failed trials ends with, the worst first.
EXIT_CODES: Mapping[int, set[Cause]] = {
    MhsaError.exit_code: {"crashed"},
    StorageError.exit_code: {"memory", "killed"},
    NonFiniteError.exit_code: {"nonfinite"},
}
_REASONS: Mapping[Cause, str] = {
    "nonfinite": "loss or gradient not finite",
    "memory": "out of memory",
    "killed": "process killed by the system",
    "crashed": "process crashed",
}


def show_training(
    folder: SweepDir,
    options: EngineOptions,
    named: OwnCodes,
    file: PictureFile | None,
    as_json: bool,
    *,
    resumed: bool,
) -> None:
    """Train the missing trials of a sweep, redrawing curves; then write and print the report of all trials."""
    console = make_console(stderr=True)
    surface = surface_of(console)

    def watch(*, trials: int, done: int, started: int, work: int, slots: int) -> LiveSweep:
        counts = [f"{done} finished"] if done else []
        counts += [f"{started} started"] if started else []
        tell(", ".join([plural(trials, "trial"), *counts]))
        return LiveSweep(console, surface, trials=trials, done=done, work=work, slots=slots)

    with folder as owned, StopSignal(animated=surface.animate) as stop:
        from mhsa_cli.jobs.sweep.run import run_sweep  # torch comes with it

        ended = run_sweep(owned, options, stop, watch, named, resumed)
        owned.write_report(ended.plan, ended.results.report, pair_words)
    stop.forgive_lost_output()
    with saying_kept(owned.path):
        can_draw = stop.caught is None and any(trial.is_finished for trial in ended.results.report.trials)
        show_sweep(owned, ended.results, file if can_draw else None, as_json, offered="wrote")
    _tell_ends(ended, owned, options)
    if stop.caught is not None:
        raise typer.Exit(128 + stop.caught)
    if code := MhsaError.exit_code if ended.faults else exit_code(ended.results.report):
        raise typer.Exit(code)


def _tell_ends(ended: SweepResult, sweep: SweepDir, options: EngineOptions) -> None:
    """Print notes, missing results and failures, each with its way out."""
    report, again = ended.results.report, run_argument(sweep.path)
    for note in ended.results.notes:
        tell(note)
    left = sum(trial.is_pending for trial in report.trials)
    if left:
        missing = f"{plural(left, 'trial')} {'has' if left == 1 else 'have'} no result yet"
        own = options_to_name(*(ended.plan.get(key) or () for key in ("attention", "tasks", "scores")))
        tell(f"stopped; {missing}; continue: mhsa sweep --resume {again}{own}")
    tell_failed(report, again, alone=options.engine == "local" and options.processes == 1)


def show_sweep(
    folder: SweepDir, results: SweepResults, file: PictureFile | None, as_json: bool, offered: str = "folder:"
) -> None:
    """Print the report: the curves of each setting, the table, the folder and the next command."""
    report = results.report

    def picture(surface: Surface) -> Lines:
        return sweep_picture(report, results.curves, surface, folder.name)

    def figure(page: Page) -> PaperFigure:
        from mhsa_cli.renderers.figures.sweep import sweep_figure  # matplotlib comes with it

        return sweep_figure(report, curves_of(report, results.curves, folder.name), page)

    write_picture(file, picture, figure, f"sweep {folder.name}")
    if as_json:
        print_json({"sweep": str(folder.path), **report_document(report, pair_words)})
        return
    paper = Paper()
    paper.draw(picture(paper.surface))
    paper.offer(f"\n{offered} {folder.path}")
    if first := next((trial for trial in report.trials if trial.is_finished), None):
        paper.offer(f"next: mhsa explain {run_argument(folder.path / Path(first.run).name)}")


def tell_failed(report: SweepReport, sweep: str, alone: bool) -> None:
    """Print how many trials failed, by cause, and the way out. `alone`: one process trained them all."""
    for cause, count in _causes(report).items():
        reason = f"{_REASONS[cause]}; {_way_out(cause, sweep, alone)}"
        tell(f"failed: {plural(count, 'trial')} of {len(report.trials)}, {reason}")


def _way_out(cause: Cause, sweep: str, alone: bool) -> str:
    if cause == "nonfinite":
        return "lower train.lr or set train.grad_clip=1.0"
    if not alone:
        return f"to try again with fewer at a time: mhsa sweep --resume {sweep} --jobs 1"
    return f"to try again: mhsa sweep --resume {sweep}" if cause == "crashed" else f"{LOWER_MEMORY} in a new sweep"


def exit_code(report: SweepReport) -> int:
    """Return the exit code of the worst failure; without a failure, 0 if all trials could be read."""
    causes = _causes(report).keys()
    unread = any(trial.status in UNREAD for trial in report.trials)
    return next((code for code, kinds in EXIT_CODES.items() if causes & kinds), RunError.exit_code if unread else 0)


def _causes(report: SweepReport) -> Counter[Cause]:
    return Counter(trial.cause for trial in report.trials if trial.cause is not None)
