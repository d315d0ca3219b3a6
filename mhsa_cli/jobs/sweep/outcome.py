"""What a trial of a sweep came to: written when it ends, and read again for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from mhsa_cli.core.statistics.estimates import steps_to_target
from mhsa_cli.jobs.load_heads import stored_maps
from mhsa_cli.jobs.sweep.trial import Trial
from mhsa_cli.records import Cause, HeadMaps, Label, StepRecord
from mhsa_cli.runs.metrics import records_of
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir

CURVE = 60  # points of a trial's loss that its run.json keeps for the sweep's picture


def trial_entry(trial: Trial, steps: Sequence[StepRecord], maps: HeadMaps | None, target: float) -> dict[str, Any]:
    """Write what a trial's run.json keeps for the sweep."""
    report = None if maps is None else maps.report
    heads = [] if report is None else [head.label for head in report.heads if head.label is not None]
    labels = {"labels": [label.text for label in heads], "label_ids": [label.id for label in heads]}
    reached = steps_to_target([r.step for r in steps], [r.accuracy for r in steps], target)
    own: dict[str, Any] = {"cell": trial.cell, "seed": trial.config.train.seed}
    return own | {"steps_to_target": reached, **labels, "curve": _curve(steps)}


def labels_of(own: Mapping[str, Any]) -> list[Label]:
    """Read the labels of a trial's heads; older versions left their words alone."""
    ids, words = own.get("label_ids"), own.get("labels")
    read, told = (Label.from_words, words) if ids is None else (Label.from_id, ids)
    return [label for text in told or () if (label := read(text)) is not None]


def _curve(steps: Sequence[StepRecord]) -> list[list[float]]:
    """Thin a loss curve: the mean loss of equal parts, at the step each part ends."""
    size = max(1, -(-len(steps) // CURVE))
    parts = [steps[i : i + size] for i in range(0, len(steps), size)]
    return [[part[-1].step, sum(r.loss for r in part) / len(part)] for part in parts]


def read_outcome(sweep: SweepDir, trial: Trial, info: Mapping[str, Any], target: float) -> dict[str, Any]:
    """Read what a trial that ended left; one that `mhsa train --resume` brought to its end is measured from its files.

    Raises: RunError, StorageError if those are damaged.
    """
    own = info.get("sweep")
    if info.get("status") == "finished" and own is None:
        run = RunDir(sweep.path / trial.name)
        steps = [record for record in records_of(run.read_metrics()) if isinstance(record, StepRecord)]
        own = trial_entry(trial, steps, stored_maps(run), target)
    found = {**(own or {}), **(info.get("final") or {})}
    if info.get("status") == "failed" and found.get("cause") not in get_args(Cause):  # as older versions left it
        found["cause"] = "memory" if found.get("again") else "nonfinite"
    return found
