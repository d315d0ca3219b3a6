"""A sweep from its plan to its report: what is missing is trained, what is there is left as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mhsa_cli.jobs.custom_attention import name_blocks
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.signals import StopSignal
from mhsa_cli.jobs.sweep.membership import find_left_out, forget_weights
from mhsa_cli.jobs.sweep.plan import EngineOptions, Trial, planned_trials
from mhsa_cli.jobs.sweep.report import read_report
from mhsa_cli.jobs.sweep.scheduler import Watcher, train_missing
from mhsa_cli.records.sweep import SweepReport
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.sweep_dir import SweepDir

CHECKED = 1000  # trials that a resume reads whole; of larger sweeps that is left to `mhsa verify`


@dataclass(frozen=True, slots=True)
class SweepResult:
    """How a sweep ended: `curves` are losses by cell, `notes` what a reader must know of the trials.

    `faults` counts chunks that met an error of ours.
    """

    plan: dict[str, Any]
    report: SweepReport
    curves: list[Any]
    notes: list[str]
    faults: int


def run_sweep(
    owned: SweepDir,
    options: EngineOptions,
    stop: StopSignal,
    show: Callable[..., Watcher],
    attention: list[str] | None,
    resumed: bool,
) -> SweepResult:
    """Train what has no result yet, and read what all trials came to. `show` makes what shows how far it is.

    `attention` names the blocks of one's own that a resumed sweep needs. Raises: RunError, UsageError, StorageError.
    """
    plan = owned.read()
    trials = planned_trials(plan)
    left_out = find_left_out(owned, plan, trials) if resumed else {}
    ours = [trial for trial in trials if trial.name not in left_out]
    if resumed:
        _tell_damage(owned, ours)
    missing = [trial for trial in ours if not owned.is_done(trial.name)]
    if forget_weights(plan, {trial.name for trial in missing}):
        owned.write(plan)  # else what is trained now would not be known again, were it not reported
    configs, recorded = [trial.config for trial in missing], plan.get("attention") or {}
    blocks = name_blocks(configs, recorded, (attention or []) if resumed else None, owned.name)
    try:
        faults = train_missing(owned, plan, ours, missing, options, stop, show, blocks) if missing else 0
    except SystemExit:  # a second Ctrl-C
        stop.hold()
        tell(f"stopped at once; continue: mhsa sweep --resume {run_argument(owned.path)}")
        raise
    report, curves, notes = read_report(owned, plan, trials, left_out)
    return SweepResult(plan, report, curves, notes, faults)


def _tell_damage(folder: SweepDir, trials: list[Trial]) -> None:
    """Name the finished trials that are not what they ended with: their figures are read all the same."""
    if len(trials) > CHECKED:
        return
    found = [trial.name for trial in trials if folder.is_done(trial.name) and folder.is_damaged(trial.name)]
    if found:
        which = f"{found[0]}{f' and {len(found) - 1} more' if len(found) > 1 else ''}"
        tell(
            f"note: damaged since it ended: {which}; see mhsa verify {folder.name}; delete its folder to train it anew"
        )
