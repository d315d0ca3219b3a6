"""`mhsa explore`: look at runs with keys, on a full screen."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from mhsa_cli.commands.options import RunsOption, argument
from mhsa_cli.commands.run_summary import levels_of
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.jobs.load_run import open_run_or_sweep
from mhsa_cli.jobs.report import report_run
from mhsa_cli.jobs.timeline import frames_of, loss_at
from mhsa_cli.renderers.kit.console import is_tty, make_console, surface_of
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.runs import listing
from mhsa_cli.runs.listing import RunSummary
from mhsa_cli.runs.names import runs_root
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir

if TYPE_CHECKING:
    from mhsa_cli.renderers.explorer import Explored

COLUMNS = ("run", "eval loss", "accuracy", "status")


def explore(
    run: Annotated[
        str | None, argument("[RUN]", "name or path of a run, or of a sweep for its trials [default: all runs]")
    ] = None,
    runs: RunsOption = None,
) -> None:
    """Run `mhsa explore`."""
    _check_terminal()
    try:
        from mhsa_cli.renderers.explorer import Explorer, Listed
    except ModuleNotFoundError as error:
        hint = "pip install 'mhsa-cli[tui]'; or a page without it: mhsa report RUN"
        raise UsageError("mhsa explore needs Textual", hint) from error
    opened = None if run is None else open_run_or_sweep(runs, run)
    if isinstance(opened, SweepDir):
        summaries: Sequence[RunSummary] = [listing.summarise(path) for path in listing.trial_folders(opened.path)]
    else:
        summaries = listing.newest_first(listing.run_folders(runs_root(runs)))
    if not summaries and opened is None:
        raise RunError(f"no run in {runs_root(runs)} yet", listing.TRAIN_ONE)
    listed = [Listed(one.name, _cells(one)) for one in summaries]
    root = opened.path if isinstance(opened, SweepDir) else runs_root(runs)
    first = explored(opened) if isinstance(opened, RunDir) else None
    surface = surface_of(make_console())
    Explorer(COLUMNS, listed, lambda name: explored(RunDir.open(root, name)), surface, first).run()


def _check_terminal() -> None:
    """Raise UsageError without a terminal that can be drawn on and read from."""
    if not all(map(is_tty, (sys.stdin, sys.stdout, sys.stderr))) or not surface_of(make_console()).animate:
        raise UsageError("mhsa explore needs a terminal", "as a page to look at: mhsa report RUN")


def _cells(one: RunSummary) -> list[str]:
    figures = listing.final_figures(one.info)
    loss, accuracy = figures.get("eval_loss"), figures.get("eval_accuracy")
    return [one.name, fixed(loss, 4), percents(accuracy), one.status]


def explored(folder: RunDir) -> Explored:
    """Read a run with its maps over training, each with the loss; the last are those measured at the end."""
    from mhsa_cli.renderers.explorer import Explored

    run = report_run(folder, None)
    frames = frames_of(run.snapshots, run.series, run.maps)
    if (last := run.maps) is not None:  # as measured at the end
        frames = [*(one for one in frames if one[0].step != last.step), (last, loss_at(last.step, run.series))]
    return Explored(run, levels_of([folder]), frames)
