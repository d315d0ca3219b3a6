"""What a sweep showed: every trial's result read and summed up, and kept as JSON and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from mhsa_cli.core.devices import cpu_kind, torch_version
from mhsa_cli.core.statistics.sweep_report import report
from mhsa_cli.errors import MhsaError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.sweep.membership import reported_weights
from mhsa_cli.jobs.sweep.outcome import labels_of, outcome
from mhsa_cli.jobs.sweep.trial import Trial
from mhsa_cli.records import SweepReport, TrialResult
from mhsa_cli.runs.sweep_dir import SweepDir

LEFT_OUT = "left out"  # the status of a trial whose folder holds another training than the plan's


def read_report(
    folder: SweepDir, plan: dict[str, Any], trials: list[Trial], left_out: Mapping[str, str]
) -> tuple[SweepReport, list[Any], Counter[tuple[str, str]]]:
    """Read every trial's result and sum them up; also count the kinds of torch and processor they were trained on."""
    results: list[TrialResult] = []
    machines: Counter[tuple[str, str]] = Counter()
    curves: list[list[Any]] = [[] for _ in plan["cells"]]
    reported = reported_weights(plan)
    for trial in trials:
        if trial.name in left_out:
            results.append(_without_result(folder, trial, LEFT_OUT, left_out[trial.name], reported.get(trial.name)))
            continue
        info = folder.info(trial.name)
        try:
            own = outcome(folder, trial, info, plan["target"])
        except MhsaError as error:
            results.append(_without_result(folder, trial, "damaged", error.message, reported.get(trial.name)))
            continue
        machines.update([(str(info["torch"]), str(info["cpu"]))] if {"torch", "cpu"} <= info.keys() else [])
        status = info.get("status", "missing")
        results.append(
            TrialResult(
                run=str(folder.path / trial.name),
                cell=trial.cell,
                seed=trial.config.train.seed,
                status=status if isinstance(status, str) else "damaged",
                final_loss=own.get("eval_loss"),
                final_accuracy=own.get("eval_accuracy"),
                steps_to_target=own.get("steps_to_target"),
                seconds=info.get("seconds"),
                labels=labels_of(own),
                message=own.get("message", ""),
                cause=own.get("cause"),
                weights_sha256=info.get("weights_sha256") if status == "finished" else None,
            )
        )
        if own.get("curve") and status == "finished":
            curves[trial.cell].append(own["curve"])
    cells = [cell["overrides"] for cell in plan["cells"]]
    return report(cells, results, plan["target"], trials[0].config.train.seed), curves, machines


def _without_result(folder: SweepDir, trial: Trial, status: str, why: str, weights: str | None) -> TrialResult:
    """Make the row of a trial whose folder tells nothing of it; `weights` is the digest that was reported of it."""
    run, seed = str(folder.path / trial.name), trial.config.train.seed
    return TrialResult(run, trial.cell, seed, status, None, None, None, None, message=why, weights_sha256=weights)


def tell_machines(machines: Counter[tuple[str, str]]) -> None:
    """Say which trials may have other bits than they would have here."""
    here = torch_version(), cpu_kind()
    for (torch, cpu), count in machines.items():
        if (torch, cpu) != here:
            told = f"{count} trials were trained with torch {torch} on {cpu}"
            tell(f"{told}; here is torch {here[0]} on {here[1]}: their bits may differ from what this machine gives")
