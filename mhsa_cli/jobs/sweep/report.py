"""What a trial of a sweep came to, written when it ends; and what all showed, read again and summed up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from mhsa_cli.core.devices import cpu_kind, torch_version
from mhsa_cli.core.statistics import report, steps_to_goal
from mhsa_cli.errors import MhsaError
from mhsa_cli.jobs.load_heads import stored_maps
from mhsa_cli.jobs.sweep.membership import reported_weights
from mhsa_cli.jobs.sweep.plan import Trial
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.records.labels import Label
from mhsa_cli.records.sweep import DAMAGED, EXCLUDED, Cause, SweepReport, TrialResult
from mhsa_cli.records.training import StepRecord
from mhsa_cli.runs.listing import METRICS, WEIGHTS
from mhsa_cli.runs.metrics import records_of
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir

CURVE = 60  # points of a trial's loss that its run.json keeps for the sweep's picture


def trial_entry(trial: Trial, steps: Sequence[StepRecord], maps: HeadMaps | None, goal: float) -> dict[str, Any]:
    """Write what a trial's run.json keeps for the sweep."""
    heads = [] if maps is None or maps.report is None else maps.report.heads
    labels = [head.label for head in heads if head.label is not None]
    return {
        "cell": trial.cell,
        "seed": trial.config.train.seed,
        "steps_to_goal": steps_to_goal([r.step for r in steps], [r.accuracy for r in steps], goal),
        "labels": [label.text for label in labels],
        "label_ids": [label.id for label in labels],
        "curve": _curve(steps),
    }


def _curve(steps: Sequence[StepRecord]) -> list[list[float]]:
    """Thin a loss curve: the mean loss of equal parts, at the step each part ends."""
    size = max(1, -(-len(steps) // CURVE))
    parts = [steps[i : i + size] for i in range(0, len(steps), size)]
    return [[part[-1].step, sum(r.loss for r in part) / len(part)] for part in parts]


def _read_outcome(sweep: SweepDir, trial: Trial, info: Mapping[str, Any], goal: float) -> dict[str, Any]:
    """Read what a trial that ended left; one that `mhsa train --resume` brought to its end is measured from its files.

    Raises: RunError, StorageError if those are damaged.
    """
    own = info.get("sweep")
    if info.get("status") == "finished" and own is None:
        run = RunDir(sweep.path / trial.name)
        steps = [record for record in records_of(run.records(METRICS)) if isinstance(record, StepRecord)]
        own = trial_entry(trial, steps, stored_maps(run), goal)
    found = {**(own or {}), **(info.get("final") or {})}
    if info.get("status") == "failed" and found.get("cause") not in get_args(Cause):  # as older versions left it
        found["cause"] = "memory" if found.get("again") else "nonfinite"
    return found


def read_report(
    sweep: SweepDir, plan: Mapping[str, Any], trials: Sequence[Trial], left_out: Mapping[str, str]
) -> tuple[SweepReport, list[Any], list[str]]:
    """Read every trial's result and sum them up; also gives curves by cell, and notes on where they were trained."""
    results: list[TrialResult] = []
    machines: Counter[tuple[str, str]] = Counter()
    curves: list[list[Any]] = [[] for _ in plan["cells"]]
    reported = reported_weights(plan)

    def row(trial: Trial, status: str, info: Mapping[str, Any], own: Mapping[str, Any], weights: Any) -> TrialResult:
        return TrialResult(
            run=str(sweep.path / trial.name),
            cell=trial.cell,
            seed=trial.config.train.seed,
            status=status,
            final_loss=own.get("eval_loss"),
            final_accuracy=own.get("eval_accuracy"),
            steps_to_goal=own.get("steps_to_goal"),
            seconds=info.get("seconds"),
            labels=[label for text in own.get("label_ids") or () if (label := Label.from_id(text))],
            message=own.get("message") or "",
            cause=own.get("cause"),
            weights_sha256=weights,
        )

    for trial in trials:
        if trial.name in left_out:
            why = {"message": left_out[trial.name]}
            results.append(row(trial, EXCLUDED, {}, why, reported.get(trial.name)))
            continue
        info = sweep.info(trial.name)
        try:
            own = _read_outcome(sweep, trial, info, plan["goal"])
        except MhsaError as error:
            results.append(row(trial, DAMAGED, {}, {"message": error.message}, reported.get(trial.name)))
            continue
        if {"torch", "cpu"} <= info.keys():
            machines[str(info["torch"]), str(info["cpu"])] += 1
        status = info.get("status", "missing")
        results.append(row(trial, status, info, own, info.get(WEIGHTS) if status == "finished" else None))
        if own.get("curve") and status == "finished":
            curves[trial.cell].append(own["curve"])
    cells = [cell["overrides"] for cell in plan["cells"]]
    return report(cells, results, plan["goal"], trials[0].config.train.seed), curves, _elsewhere(machines)


def _elsewhere(machines: Mapping[tuple[str, str], int]) -> list[str]:
    """Say which trials may have other bits than they would have here."""
    here = torch_version(), cpu_kind()
    return [
        f"{count} trials were trained with torch {torch} on {cpu}; here is torch {here[0]} on {here[1]}: "
        "their bits may differ from what this machine gives"
        for (torch, cpu), count in machines.items()
        if (torch, cpu) != here
    ]
