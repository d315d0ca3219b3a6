"""Run a sweep from its plan to its report: train only the trials without a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mhsa_cli.config.own_file import OwnCodes
from mhsa_cli.config.own_task import options_to_name
from mhsa_cli.jobs.custom_attention import name_blocks
from mhsa_cli.jobs.kept_scores import name_again
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.own_task import name_tasks
from mhsa_cli.jobs.signals import StopSignal
from mhsa_cli.jobs.sweep.membership import find_excluded, forget_weights
from mhsa_cli.jobs.sweep.plan import EngineOptions, Trial, name_trials, planned_trials
from mhsa_cli.jobs.sweep.report import SweepResults, read_report
from mhsa_cli.jobs.sweep.scheduler import Watcher, train_missing
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.sweep_dir import SweepDir

CHECKED = 1000  # a resume reads up to so many trials whole; larger sweeps are left to `mhsa verify`


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The end of a sweep: `faults` counts internal errors."""

    plan: dict[str, Any]
    results: SweepResults
    faults: int


def read_sweep(sweep: SweepDir) -> SweepResults:
    """Read the report of a sweep as it is now, also of one that is training. Raises: RunError, StorageError."""
    plan = sweep.read()
    trials = planned_trials(plan)
    return read_report(sweep, plan, trials, find_excluded(sweep, plan, trials))


def run_sweep(
    sweep: SweepDir,
    options: EngineOptions,
    stop: StopSignal,
    show: Callable[..., Watcher],
    named: OwnCodes,
    resumed: bool,
) -> SweepResult:
    """Train the trials without a result, and read the report. `show` makes the progress display.

    `named` is the user's code that a resumed sweep may import. Raises: RunError, UsageError, StorageError.
    """
    plan = sweep.read()
    trials = planned_trials(plan)
    excluded = find_excluded(sweep, plan, trials) if resumed else {}
    included = [trial for trial in trials if trial.name not in excluded]
    if resumed:
        _note_damage(sweep, included)
    missing = [trial for trial in included if not sweep.is_done(trial.name)]
    if forget_weights(plan, {trial.name for trial in missing}):
        sweep.write(plan)  # or the trials trained now would not match the report if this sweep is killed
    configs = [trial.config for trial in missing]
    attentions, tasks = (named.attentions, named.tasks) if resumed else (None, None)
    kept = plan.get("scores") or {}
    scores = name_again(kept, named.scores, sweep.name) if resumed and missing else list(kept)
    blocks = name_blocks(configs, plan.get("attention") or {}, attentions, sweep.name)
    blocks |= name_tasks(configs, plan.get("tasks") or {}, tasks, sweep.name)
    try:
        faults = 0
        if missing:
            faults = train_missing(sweep, plan, included, missing, options, stop, show, blocks, scores)
    except SystemExit:  # a second Ctrl-C
        stop.hold()
        own = options_to_name(*(plan.get(key) or () for key in ("attention", "tasks", "scores")))
        tell(f"stopped at once; continue: mhsa sweep --resume {run_argument(sweep.path)}{own}")
        raise
    return SweepResult(plan, read_report(sweep, plan, trials, excluded), faults)


def _note_damage(sweep: SweepDir, trials: list[Trial]) -> None:
    """Note the finished trials that were damaged later; their results are still read."""
    if len(trials) > CHECKED:
        return
    damaged = [trial for trial in trials if sweep.is_done(trial.name) and sweep.is_damaged(trial.name)]
    if damaged:
        hint = f"see mhsa verify {run_argument(sweep.path)}; delete a folder to train its trial again"
        tell(f"note: damaged since the end of training: {name_trials(damaged)}; {hint}")
