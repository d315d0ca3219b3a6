"""What a sweep showed: every trial's result read and summed up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mhsa_cli.core.devices import cpu_kind, torch_version
from mhsa_cli.core.statistics.sweep_report import report
from mhsa_cli.errors import MhsaError
from mhsa_cli.jobs.sweep.membership import reported_weights
from mhsa_cli.jobs.sweep.outcome import labels_of, read_outcome
from mhsa_cli.jobs.sweep.trial import Trial
from mhsa_cli.records import SweepReport, TrialResult
from mhsa_cli.runs.sweep_dir import SweepDir

LEFT_OUT = "left out"  # the status of a trial whose folder holds another training than the plan's


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
            steps_to_target=own.get("steps_to_target"),
            seconds=info.get("seconds"),
            labels=labels_of(own),
            message=own.get("message") or "",
            cause=own.get("cause"),
            weights_sha256=weights,
        )

    for trial in trials:
        if trial.name in left_out:
            why = {"message": left_out[trial.name]}
            results.append(row(trial, LEFT_OUT, {}, why, reported.get(trial.name)))
            continue
        info = sweep.info(trial.name)
        try:
            own = read_outcome(sweep, trial, info, plan["target"])
        except MhsaError as error:
            results.append(row(trial, "damaged", {}, {"message": error.message}, reported.get(trial.name)))
            continue
        if {"torch", "cpu"} <= info.keys():
            machines[str(info["torch"]), str(info["cpu"])] += 1
        status = info.get("status", "missing")
        results.append(row(trial, status, info, own, info.get("weights_sha256") if status == "finished" else None))
        if own.get("curve") and status == "finished":
            curves[trial.cell].append(own["curve"])
    cells = [cell["overrides"] for cell in plan["cells"]]
    return report(cells, results, plan["target"], trials[0].config.train.seed), curves, _elsewhere(machines)


def _elsewhere(machines: Mapping[tuple[str, str], int]) -> list[str]:
    """Say which trials may have other bits than they would have here."""
    here = torch_version(), cpu_kind()
    return [
        f"{count} trials were trained with torch {torch} on {cpu}; here is torch {here[0]} on {here[1]}: "
        "their bits may differ from what this machine gives"
        for (torch, cpu), count in machines.items()
        if (torch, cpu) != here
    ]
