"""The result of a trial, written when it ends, and the report of a sweep, read from all its trials."""

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
from mhsa_cli.text import plural

CURVE = 60  # points of a trial's loss curve in its run.json, for the sweep's picture


def trial_entry(trial: Trial, steps: Sequence[StepRecord], maps: HeadMaps | None, goal: float) -> dict[str, Any]:
    """Build the entry for the sweep in a trial's run.json."""
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
    """Thin a loss curve to the mean loss of equal parts, at the last step of each."""
    size = max(1, -(-len(steps) // CURVE))
    parts = [steps[i : i + size] for i in range(0, len(steps), size)]
    return [[part[-1].step, sum(r.loss for r in part) / len(part)] for part in parts]


def _read_result(sweep: SweepDir, trial: Trial, info: Mapping[str, Any], goal: float) -> dict[str, Any]:
    """Read a trial's result; that of a trial finished by `mhsa train --resume` is computed from its files.

    Raises: RunError, StorageError.
    """
    entry = info.get("sweep")
    if info.get("status") == "finished" and entry is None:
        run = RunDir(sweep.path / trial.name)
        steps = [record for record in records_of(run.records(METRICS)) if isinstance(record, StepRecord)]
        entry = trial_entry(trial, steps, stored_maps(run), goal)
    result = {**(entry or {}), **(info.get("final") or {})}
    if info.get("status") == "failed" and result.get("cause") not in get_args(Cause):  # of an older version
        result["cause"] = "memory" if result.get("again") else "nonfinite"
    return result


def read_report(
    sweep: SweepDir, plan: Mapping[str, Any], trials: Sequence[Trial], excluded: Mapping[str, str]
) -> tuple[SweepReport, list[Any], list[str]]:
    """Read all results into a report; also returns curves by cell, and notes on the machines they are from."""
    results: list[TrialResult] = []
    machines: Counter[tuple[str, str]] = Counter()
    curves: list[list[Any]] = [[] for _ in plan["cells"]]
    reported = reported_weights(plan)
    for trial in trials:
        info, result = dict[str, Any](), dict[str, Any]()
        weights = reported.get(trial.name)
        try:
            if trial.name in excluded:
                status, result = EXCLUDED, {"message": excluded[trial.name]}
            else:
                read = sweep.info(trial.name)
                result = _read_result(sweep, trial, read, plan["goal"])
                info, status = read, read.get("status", "missing")
                weights = info.get(WEIGHTS) if status == "finished" else None
        except MhsaError as error:
            status, result = DAMAGED, {"message": error.message}
        if {"torch", "cpu"} <= info.keys():
            machines[str(info["torch"]), str(info["cpu"])] += 1
        if result.get("curve") and status == "finished":
            curves[trial.cell].append(result["curve"])
        results.append(
            TrialResult(
                run=str(sweep.path / trial.name),
                cell=trial.cell,
                seed=trial.config.train.seed,
                status=status,
                final_loss=result.get("eval_loss"),
                final_accuracy=result.get("eval_accuracy"),
                steps_to_goal=result.get("steps_to_goal"),
                seconds=info.get("seconds"),
                labels=[label for text in result.get("label_ids") or () if (label := Label.from_id(text))],
                message=result.get("message") or "",
                cause=result.get("cause"),
                weights_sha256=weights,
            )
        )
    here = torch_version(), cpu_kind()
    notes = [
        f"{plural(count, 'trial')} trained with torch {torch} on {cpu}; "
        f"torch {here[0]} on {here[1]}, used here, may give other bits"
        for (torch, cpu), count in machines.items()
        if (torch, cpu) != here
    ]
    cells = [cell["overrides"] for cell in plan["cells"]]
    return report(cells, results, plan["goal"], trials[0].config.train.seed), curves, notes
