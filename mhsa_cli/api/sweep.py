"""Sweeps from Python: a grid of settings with many seeds, and the report of what they show."""

from __future__ import annotations

import os
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhsa_cli.api.plot import File, file_of, page_of, written
from mhsa_cli.api.progress import SweepLine
from mhsa_cli.api.settings import Settings, Source, check_kinds, command_line, config_and_changes
from mhsa_cli.api.shown import InFolder
from mhsa_cli.api.tables import Table, table
from mhsa_cli.config.own_file import OwnCodes
from mhsa_cli.jobs.guest import as_guest, warn
from mhsa_cli.jobs.signals import Interrupt
from mhsa_cli.jobs.sweep.plan import EngineOptions
from mhsa_cli.records.sweep import PairStats, SweepReport
from mhsa_cli.renderers.figures.sheet_options import SWEEP_PARTS
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.pictures.sweep import curves_of, sweep_picture
from mhsa_cli.renderers.pictures.sweep_plan import too_few
from mhsa_cli.renderers.pictures.sweep_words import group_name, pair_words
from mhsa_cli.runs.names import runs_root
from mhsa_cli.runs.sweep_dir import SweepDir, trial_table
from mhsa_cli.text import escape, plural

if TYPE_CHECKING:
    from mhsa_cli.jobs.sweep.report import SweepResults
    from mhsa_cli.renderers.figures.sheet import PaperFigure


def sweep(
    source: Source = None,
    settings: Settings = None,
    /,
    *,
    seeds: int | None = None,
    jobs: int = 1,
    goal: float | None = None,
    name: str | None = None,
    runs: str | os.PathLike[str] | None = None,
    skip_invalid: bool = False,
    quiet: bool = False,
    **more: Any,
) -> Sweep:
    """Train a grid of settings with many seeds, as `mhsa sweep` does. Example: `sweep("copy", n_heads=[2, 4])`.

    A list holds the values of a setting, `lr={"from": 1e-3, "to": 1e-2, "steps": 5, "scale": "log"}` a range; for the
    rest see `train`. `seeds` are those of each setting [default: the config's, or 8], `goal` is the accuracy that
    counts as success [default: the task's, which is 0.99 for built-in tasks], `jobs` the number of processes.
    Raises: UsageError, StorageError.
    """
    root, options = runs_root(None if runs is None else Path(runs)), EngineOptions(jobs=jobs)
    with as_guest():
        number = "a whole number"
        check_kinds({"name": (name, str, "a text"), "seeds": (seeds, int, number), "jobs": (jobs, int, number)})
        path, changes = config_and_changes(source, settings, more, grid=True)
        from mhsa_cli.jobs.sweep.new import check_goal, expand_grid, new_sweep

        check_goal(goal)
        grid = expand_grid(path, changes, seeds, skip_invalid)
    with as_guest(trains=True):
        from mhsa_cli.jobs.sweep.arithmetic import grid_power  # imports torch: only after the grid is checked
        from mhsa_cli.jobs.sweep.run import run_sweep

        if note := too_few(grid_power(grid)):
            warn(note)
        command = [*command_line("sweep", path, changes), "--seeds", str(grid.seeds)]
        folder = new_sweep(grid, name=name, goal=goal, root=root, options=options, command=command)
        with folder as owned, Interrupt() as stop:
            ended = run_sweep(owned, options, stop, partial(SweepLine, quiet), OwnCodes(), False)
            owned.write_report(ended.plan, ended.results.report, pair_words)
        for text in ended.results.notes:
            warn(text)
        if stop.caught is not None:
            raise KeyboardInterrupt
    found = Sweep(SweepDir(owned.path), ended.results)
    if failed := [trial for trial in found.report.trials if not trial.is_finished]:
        warn(f"{plural(len(failed), 'trial')} of {len(found.report.trials)} did not finish: see `trials`")
    return found


def load_sweep(name: str | os.PathLike[str], *, runs: str | os.PathLike[str] | None = None) -> Sweep:
    """Open a sweep by its name or path; one in training is read as it is now. Raises: RunError."""
    with as_guest():
        return Sweep(SweepDir.open(runs_root(None if runs is None else Path(runs)), os.fspath(name)))


class Sweep(InFolder):
    """A sweep: its report, its trials, and what its seeds show. Tables are those of a Run."""

    _folder: SweepDir

    def __init__(self, folder: SweepDir, results: SweepResults | None = None) -> None:
        self._folder = folder
        if results is not None:
            self._results = results

    @cached_property
    def _results(self) -> SweepResults:
        with as_guest():
            from mhsa_cli.jobs.sweep.run import read_sweep

            results = read_sweep(self._folder)
            for note in results.notes:
                warn(note)
            return results

    @property
    def report(self) -> SweepReport:
        """The statistics of each setting over its seeds, the comparisons, and all trials, as records."""
        return self._results.report

    @cached_property
    def trials(self) -> Table:
        """A row for each trial, as in sweep.csv; `load(row["run"])` opens its run."""
        columns, rows = trial_table(self.report)
        return table(dict(zip(columns, row, strict=True)) for row in rows)

    @cached_property
    def differences(self) -> Table:
        """A row for each comparison of neighbouring settings: its figures, and what it shows as a sentence."""
        return table(map(self._difference, self.report.pairs))

    def plot(
        self, path: File = None, *, only: str | None = None, width: str | float | None = None, theme: str = "light"
    ) -> PaperFigure:
        """Return a matplotlib Figure of the settings: bands of the loss, success, steps, final loss, onsets.

        `only`: one of "curve", "success", "steps", "loss" and "onsets"; the others are those of `Run.plot`.
        Raises: UsageError.
        """
        file, page = file_of(path), page_of(SWEEP_PARTS, only, width, theme)
        from mhsa_cli.renderers.figures.sweep import sweep_figure

        curves = curves_of(self.report, self._results.curves, self.name)
        return written(sweep_figure(self.report, curves, page), file, repr(self).strip("<>"))

    def _difference(self, pair: PairStats) -> dict[str, Any]:
        plain = ("key", "measure", "status", "p", "adjusted")
        median = pair.difference
        return {
            **{name: group_name(self.report, self.report.groups[getattr(pair, name)]) for name in ("first", "second")},
            **{key: getattr(pair, key) for key in plain},
            **{key: None if median is None else getattr(median, key) for key in ("estimate", "low", "high", "n")},
            "text": pair_words(self.report, pair),
        }

    def __repr__(self) -> str:
        report = self.report
        done = sum(trial.is_finished for trial in report.trials)
        settings = plural(len(report.groups), "setting")
        return f"<sweep {escape(self.name)}: {settings}, {done} of {plural(len(report.trials), 'trial')} finished>"

    def _picture(self, surface: Surface) -> Lines:
        return sweep_picture(self.report, self._results.curves, surface, self.name)
