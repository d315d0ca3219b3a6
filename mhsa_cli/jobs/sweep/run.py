"""A sweep from its plan to its report: what is missing is trained, what is there is left as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mhsa_cli.jobs.custom_attention import named_again
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.signals import StopSignal
from mhsa_cli.jobs.sweep.membership import find_left_out, forget_weights
from mhsa_cli.jobs.sweep.plan import How
from mhsa_cli.jobs.sweep.report import read_report
from mhsa_cli.jobs.sweep.scheduler import Watcher, train_missing
from mhsa_cli.jobs.sweep.trial import Trial, planned
from mhsa_cli.records import SweepReport
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.sweep_dir import SweepDir

CHECKED = 1000  # trials that a resume reads whole; of larger sweeps that is left to `mhsa verify`


@dataclass(frozen=True, slots=True)
class Ended:
    """How a sweep ended: `curves` are losses by cell, `faults` counts chunks that met an error of ours."""

    plan: dict[str, Any]
    report: SweepReport
    curves: list[Any]
    machines: Counter[tuple[str, str]]
    faults: int


def run_sweep(
    owned: SweepDir,
    how: How,
    stop: StopSignal,
    show: Callable[..., Watcher],
    attention: list[str] | None,
    resumed: bool,
) -> Ended:
    """Train what has no result yet, and read what all trials came to. `show` makes what shows how far it is.

    `attention` names the blocks of one's own that a resumed sweep needs. Raises: RunError, UsageError, StorageError.
    """
    plan = owned.read()
    trials = planned(plan)
    left_out = find_left_out(owned, plan, trials) if resumed else {}
    ours = [trial for trial in trials if trial.name not in left_out]
    if resumed:
        _tell_damage(owned, ours)
    waiting = [trial for trial in ours if not owned.is_done(trial.name)]
    if forget_weights(plan, {trial.name for trial in waiting}):
        owned.write(plan)  # else what is trained now would not be known again, were it not reported
    configs = [trial.config for trial in waiting]
    blocks = named_again(configs, plan.get("attention"), (attention or []) if resumed else None, owned.name)
    try:
        faults = train_missing(owned, plan, ours, how, stop, show, blocks)
    except SystemExit:  # a second Ctrl-C
        stop.hold()
        tell(f"stopped at once; to go on: mhsa sweep --resume {run_argument(owned.path)}")
        raise
    report, curves, machines = read_report(owned, plan, trials, left_out)
    return Ended(plan, report, curves, machines, faults)


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
