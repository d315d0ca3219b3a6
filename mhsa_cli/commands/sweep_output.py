"""What a sweep leaves: its report in sweep.json, a row for each trial in sweep.csv, and what is printed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import quantiles
from typing import Any

from mhsa_cli.errors import MhsaError, NonFiniteError, StorageError
from mhsa_cli.jobs.messages import LOWER_MEMORY, tell
from mhsa_cli.records import Cause, SweepReport
from mhsa_cli.records.labels import set_words
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.text import plural

# What a sweep with such failed trials ends with, the worst first.
EXIT_CODES: Mapping[int, set[Cause]] = {
    MhsaError.exit_code: {"crashed"},
    StorageError.exit_code: {"memory", "killed"},
    NonFiniteError.exit_code: {"nonfinite"},
}
_REASONS: Mapping[Cause, str] = {
    "nonfinite": "a loss or gradient was not finite",
    "memory": "no memory was left",
    "killed": "the system ended the process",
    "crashed": "the process broke off",
}


def keep(folder: SweepDir, plan: dict[str, Any], report: SweepReport) -> None:
    """Write the report into sweep.json and a row for each trial into sweep.csv."""
    folder.write({**plan, "report": document(report)})
    keys = list(report.groups[0].overrides) if report.groups else []
    columns = ["run", *keys, "seed", "status", "cause", "eval_loss", "eval_accuracy", "steps_to_target", "seconds"]
    columns += ["labels", "label_ids"]
    rows = [
        [
            *(t.run, *(report.groups[t.cell].overrides[key] for key in keys), t.seed, t.status, t.cause),
            *(t.final_loss, t.final_accuracy, t.steps_to_target, t.seconds),
            *("; ".join(names) for names in ([one.text for one in t.labels], [one.id for one in t.labels])),
        ]
        for t in report.trials
    ]
    folder.write_table(columns, rows)


def document(report: SweepReport) -> dict[str, Any]:
    """Write a report as `mhsa sweep --json` prints it."""

    def spread(values: Any) -> dict[str, Any]:
        return dict(zip(("q25", "median", "q75"), values, strict=True))

    groups = [
        {
            "overrides": dict(group.overrides),
            "models": group.models,
            "success": {"k": group.k, "n": group.n, "wilson95": list(group.wilson95)},
            "steps_to_target": spread(group.steps_to_target),
            "final_loss": spread(group.final_loss),
            "labels": [
                {"heads": set_words(labels), "label_ids": [label.id for label in labels], "models": count}
                for labels, count in group.label_sets
            ],
        }
        for group in report.groups
    ]
    pairs = [asdict(pair) for pair in report.pairs]
    failed = sum(trial.status == "failed" for trial in report.trials)
    runs = [
        {**asdict(trial), "labels": [one.text for one in trial.labels], "label_ids": [one.id for one in trial.labels]}
        for trial in report.trials
    ]
    return {"target": report.target, "failed": failed, "groups": groups, "pairs": pairs, "runs": runs}


def show(folder: SweepDir, report: SweepReport, curves: list[Any], as_json: bool) -> None:
    """Print the report: the curves of each setting, the table, what was written and what to look at next."""
    from mhsa_cli.commands.output import Paper, print_json
    from mhsa_cli.renderers.pictures.small_multiples import small_multiples
    from mhsa_cli.renderers.pictures.sweep import sweep_table
    from mhsa_cli.runs.listing import run_argument

    if as_json:
        print_json({"sweep": str(folder.path), **document(report)})
        return
    paper = Paper()
    pictures = [
        (" ".join(f"{k}={v}" for k, v in group.overrides.items()) or folder.name, *_band(own))
        for group, own in zip(report.groups, curves, strict=True)
        if own
    ]
    if pictures:
        paper.draw(small_multiples(pictures, width=paper.width, surface=paper.surface))
        paper.say()
    paper.draw(sweep_table(report, width=paper.width, surface=paper.surface))
    paper.offer(f"\nwrote {folder.path}")
    for trial in report.trials:
        if trial.is_finished:
            paper.offer(f"next: mhsa explain {run_argument(folder.path / Path(trial.run).name)}")
            break


def tell_failed(report: SweepReport, sweep: str, alone: bool) -> None:
    """Say how many trials failed, and the way out of each cause. `alone` tells that one process trained them all."""
    for cause, count in _causes(report).items():
        reason = f"{_REASONS[cause]}; {_way_out(cause, sweep, alone)}"
        tell(f"failed: {plural(count, 'trial')} of {len(report.trials)}, {reason}")


def _way_out(cause: Cause, sweep: str, alone: bool) -> str:
    if cause == "nonfinite":
        return "lower train.lr or set train.grad_clip=1.0"
    if not alone:
        return f"to try again with fewer at a time: mhsa sweep --resume {sweep} --jobs 1"
    return f"to try again: mhsa sweep --resume {sweep}" if cause == "crashed" else f"{LOWER_MEMORY} in a new sweep"


def exit_code(report: SweepReport) -> int:
    """Give the exit code of the worst failure, 0 if no trial failed."""
    causes = _causes(report).keys()
    return next((code for code, kinds in EXIT_CODES.items() if causes & kinds), 0)


def _causes(report: SweepReport) -> Counter[Cause]:
    return Counter(trial.cause for trial in report.trials if trial.cause is not None)


def _band(curves: list[Any]) -> tuple[list[int], list[float], list[float], list[float]]:
    """Give the median and the quartiles of many curves at their common steps."""
    steps = [int(step) for step, _ in curves[0]]
    columns = [[c[i][1] for c in curves if i < len(c) and math.isfinite(c[i][1])] for i in range(len(steps))]
    cuts = [quantiles(column, n=4, method="inclusive") if len(column) > 1 else column * 3 for column in columns]
    return steps, [c[1] for c in cuts], [c[0] for c in cuts], [c[2] for c in cuts]
