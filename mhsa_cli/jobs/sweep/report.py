"""The result of a trial, written when it ends, and the report of a sweep, read from all its trials."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from mhsa_cli.config.estimate import log_every
from mhsa_cli.core.devices import cpu_kind, torch_version
from mhsa_cli.core.heads.headline import named
from mhsa_cli.core.heads.history import histories, largest_drop
from mhsa_cli.core.sweep_report import last_watched, reached, report
from mhsa_cli.errors import MhsaError, RunError
from mhsa_cli.jobs.kept_scores import KEY
from mhsa_cli.jobs.load_heads import stored_maps
from mhsa_cli.jobs.sweep.membership import reported_weights
from mhsa_cli.jobs.sweep.plan import Trial
from mhsa_cli.records.heads import HeadMaps, HeadReport
from mhsa_cli.records.labels import Label
from mhsa_cli.records.sweep import DAMAGED, EXCLUDED, Cause, Formed, OwnRange, SweepReport, TrialCurve, TrialResult
from mhsa_cli.records.timeline import Interval, SnapshotRecord
from mhsa_cli.records.training import StepRecord
from mhsa_cli.runs.codec import MALFORMED, ContentError, describe_malformed, from_plain, plain
from mhsa_cli.runs.heads import snapshots_from_lines
from mhsa_cli.runs.listing import ENDED_BY, METRICS, RUN, SCORES, WEIGHTS
from mhsa_cli.runs.metrics import MetricRecord, records_of
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import DONE, SweepDir
from mhsa_cli.text import plural

CURVE = 60  # points of a trial's loss curve in its run.json, for the sweep's picture


@dataclass(frozen=True, slots=True)
class SweepResults:
    """The report of a sweep; `curves` are each cell's finished trials, final loss and points; notes on machines."""

    report: SweepReport
    curves: list[list[TrialCurve]]
    notes: list[str]


def trial_entry(
    trial: Trial,
    metrics: Sequence[MetricRecord],
    snapshots: Sequence[SnapshotRecord],
    maps: HeadMaps | None,
    goal: float,
) -> dict[str, Any]:
    """Build the entry for the sweep in a trial's run.json."""
    found = None if maps is None else maps.report
    labels = [head.label for head in (() if found is None else found.heads) if head.label is not None]
    steps = [record for record in metrics if isinstance(record, StepRecord)]
    return {
        "cell": trial.cell,
        "seed": trial.config.train.seed,
        "reached": reached(metrics, goal),
        "labels": [label.text for label in labels],
        "label_ids": [label.id for label in labels],
        "formed": plain(formed(found, snapshots, steps)) if found is not None and snapshots else None,
        "curve": _curve(steps),
        **({KEY: plain(own)} if (own := own_ranges(found)) else {}),
    }


def own_ranges(report: HeadReport | None) -> dict[str, OwnRange]:
    """Find the range of every score of the user's own over the heads of a model."""
    heads = [] if report is None else report.heads
    found = {}
    for name, first in (heads[0].own_scores if heads else {}).items():
        figures = [head.own_scores[name] for head in heads if name in head.own_scores]
        values = [one.value for one in figures if one.value is not None]
        ends = min(values, default=None), max(values, default=None)
        found[name] = OwnRange(*ends, first.uniform, first.null_low, first.null)
    return found


def formed(found: HeadReport, snapshots: Sequence[SnapshotRecord], steps: Sequence[StepRecord]) -> Formed:
    """Find when the labelled heads of a model formed, and where its loss dropped most."""
    heads = {head.address: head.label for head in named(found.heads) if head.label is not None and head.target}
    losses = [(record.step - 1, record.loss) for record in steps]  # a training loss is measured before its update
    onsets: dict[str, Interval | None] = {}
    targets = {head.address: (head.target, "") for head in found.heads if head.address in heads and head.target}
    for history in histories(snapshots, losses, targets):
        if (label := heads.get(history.address)) is not None:
            known = [onset for onset in (onsets.get(label.plain.id), history.onset) if onset is not None]
            onsets[label.plain.id] = min(known, key=lambda onset: (onset.low, onset.high), default=None)
    headlines = [claim for claim in found.verdict.claims if claim.predicate in ("solved by", "works by")]
    circuit = headlines[0].evidence.get("circuit") if headlines else None
    readers = [label.plain.id for label in heads.values() if label.kind == circuit]
    return Formed(onsets, largest_drop(losses), readers[0] if readers else "")


def _curve(steps: Sequence[StepRecord]) -> list[list[float]]:
    """Thin a loss curve to the mean loss of equal parts, at the last step of each."""
    size = max(1, -(-len(steps) // CURVE))
    parts = [steps[i : i + size] for i in range(0, len(steps), size)]
    return [[part[-1].step, sum(r.loss for r in part) / len(part)] for part in parts]


def _read_result(sweep: SweepDir, trial: Trial, info: Mapping[str, Any], goal: float) -> dict[str, Any]:
    """Read a trial's result; what an older version or `mhsa train --resume` did not write comes from its files.

    Raises: RunError, StorageError.
    """
    entry, status = info.get("sweep"), info.get("status")
    run = RunDir(sweep.path / trial.name)
    if status == "finished" and entry is None:
        snapshots = snapshots_from_lines(run.records(SCORES))
        entry = trial_entry(trial, list(records_of(run.records(METRICS))), snapshots, stored_maps(run), goal)
    elif status in DONE and "reached" not in (entry or {}):
        entry = {**(entry or {}), "reached": reached(list(records_of(run.records(METRICS))), goal)}
    result = {**(entry or {}), **(info.get("final") or {})}
    if status == "failed" and result.get("cause") not in get_args(Cause):  # of an older version
        result["cause"] = "memory" if result.get("again") else "nonfinite"
    return result


def _formation(content: Any) -> Formed | None:
    """Read when a trial's labels formed, without those that this version does not know."""
    if not content:
        return None
    try:
        found = from_plain(Formed, content)
    except ContentError as error:
        raise RunError(f"{RUN} is damaged: {error.within('sweep.formed')}") from None
    onsets = {text: onset for text, onset in found.onsets.items() if Label.from_id(text) is not None}
    return replace(found, onsets=onsets, circuit=found.circuit if found.circuit in onsets else "")


def _own_scores(content: Any) -> dict[str, OwnRange]:
    try:
        return {name: from_plain(OwnRange, one) for name, one in content.items()}
    except MALFORMED as error:
        message = f"{RUN} is damaged: {describe_malformed(error)} in sweep.{KEY}"
        raise RunError(message) from None


def read_report(
    sweep: SweepDir, plan: Mapping[str, Any], trials: Sequence[Trial], excluded: Mapping[str, str]
) -> SweepResults:
    """Read all results into a report."""
    results: list[TrialResult] = []
    machines: Counter[tuple[str, str]] = Counter()
    curves: list[list[TrialCurve]] = [[] for _ in plan["cells"]]
    reported = reported_weights(plan)
    for trial in trials:
        info, result, formation, own = dict[str, Any](), dict[str, Any](), None, dict[str, OwnRange]()
        weights = reported.get(trial.name)
        try:
            if trial.name in excluded:
                status, result = EXCLUDED, {"message": excluded[trial.name]}
            else:
                read = sweep.info(trial.name)
                result = _read_result(sweep, trial, read, plan["goal"])
                info, status = read, read.get("status", "missing")
                if not read and (sweep.path / trial.name / RUN).exists():
                    status, result = DAMAGED, {"message": f"its {RUN} is damaged"}
                weights = info.get(WEIGHTS) if status == "finished" else None
                formation = _formation(result.get("formed"))
                own = _own_scores(result.get(KEY) or {})
        except MhsaError as error:
            status, result = DAMAGED, {"message": error.message}
        if {"torch", "cpu"} <= info.keys():
            machines[str(info["torch"]), str(info["cpu"])] += 1
        if result.get("curve") and status == "finished":
            loss = result.get("eval_loss")
            curves[trial.cell].append((math.inf if loss is None else loss, result["curve"]))
        train = trial.config.train
        results.append(
            TrialResult(
                run=str(sweep.path / trial.name),
                cell=trial.cell,
                seed=train.seed,
                status=status,
                final_loss=result.get("eval_loss"),
                final_accuracy=result.get("eval_accuracy"),
                steps_to_goal=result.get("reached"),
                seconds=info.get("seconds"),
                labels=[label for text in result.get("label_ids") or () if (label := Label.from_id(text))],
                message=result.get("message") or "",
                cause=result.get("cause"),
                weights_sha256=weights,
                watched=last_watched(
                    info["step"] if info.get(ENDED_BY) else trial.config.total_steps, log_every(train)
                ),
                ended_by=info.get(ENDED_BY),
                formed=formation,
                own_scores=own,
            )
        )
    here = torch_version(), cpu_kind()
    notes = [
        f"{plural(count, 'trial')} trained with torch {torch} on {cpu}; "
        f"torch {here[0]} on {here[1]}, used here, may give other bits"
        for (torch, cpu), count in machines.items()
        if (torch, cpu) != here
    ]
    early = sum(result.ended_by is not None for result in results)
    if early:
        total = plural(len(results), "trial")
        notes.append(
            f"{early} of {total} ended early by train.stop_at or train.patience: final figures are of that step"
        )
    cells = [cell["overrides"] for cell in plan["cells"]]
    return SweepResults(report(cells, results, plan["goal"]), curves, notes)
