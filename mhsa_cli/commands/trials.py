"""The trials of a sweep: one model each, an ordinary run with its part of the sweep in run.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from mhsa_cli.config.load import Config
from mhsa_cli.records import Cause, StepRecord
from mhsa_cli.runs.rundir import RunDir

if TYPE_CHECKING:
    from mhsa_cli.core.group import Group

CURVE = 60  # points of a trial's loss that its run.json keeps for the sweep's picture


@dataclass(frozen=True, slots=True)
class Trial:
    """One model to be trained: its cell's number in the grid, its folder's name, its config."""

    cell: int
    name: str
    config: Config


def named(trials: Sequence[Trial]) -> str:
    """Name a trial, or several by the first of them."""
    return trials[0].name if len(trials) == 1 else f"{len(trials)} trials from {trials[0].name} on"


def write_trial(
    run: RunDir,
    trial: Trial,
    steps: Sequence[StepRecord],
    group: Group,
    number: int,
    seconds: float,
    target: float,
    limits: Mapping[str, float],
) -> None:
    """Look at a trained trial and write what it came to; its checkpoint and its curve are on the disk already."""
    from mhsa_cli.commands.training import finish, look
    from mhsa_cli.core.statistics import steps_to_target

    model, last = group.model(number), group.last_eval[number]
    maps = look(trial.config, group.task, model, group.step, limits)
    labels = [] if maps.report is None else [head.label for head in maps.report.heads if head.label is not None]
    reached = steps_to_target([r.step for r in steps], [r.accuracy for r in steps], target)
    own: dict[str, Any] = {"cell": trial.cell, "seed": trial.config.train.seed}
    own |= {"steps_to_target": reached, "labels": labels, "curve": _curve(steps)}
    finish(run, trial.config, group.task, model, maps, last, seconds, "finished", sweep=own)


def _curve(steps: Sequence[StepRecord]) -> list[list[float]]:
    """Thin a loss curve: the mean loss of equal parts, at the step each part ends."""
    size = max(1, -(-len(steps) // CURVE))
    parts = [steps[i : i + size] for i in range(0, len(steps), size)]
    return [[part[-1].step, sum(r.loss for r in part) / len(part)] for part in parts]


def outcome(info: dict[str, Any]) -> dict[str, Any]:
    """Read what a trial that ended left in its run.json."""
    own, final = info.get("sweep"), info.get("final")
    found = {**(own if isinstance(own, dict) else {}), **(final if isinstance(final, dict) else {})}
    if info.get("status") == "failed" and found.get("cause") not in get_args(Cause):  # as older versions left it
        found["cause"] = "memory" if found.get("again") else "nonfinite"
    return found
