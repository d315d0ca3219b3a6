"""What a sweep showed as the plain data of sweep.json, and as the rows of sweep.csv."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from mhsa_cli.records.labels import set_words
from mhsa_cli.records.sweep import PairStats, SweepReport
from mhsa_cli.runs.sweep_dir import SweepDir

Words = Callable[[SweepReport, PairStats], str]


def keep_report(folder: SweepDir, plan: Mapping[str, Any], report: SweepReport, words: Words) -> None:
    """Write the report into sweep.json and a row for each trial into sweep.csv; `words` says what a pair shows."""
    folder.write({**plan, "report": report_document(report, words)})
    keys = list(report.groups[0].overrides) if report.groups else []
    columns = ["run", *keys, "seed", "status", "cause", "eval_loss", "eval_accuracy", "steps_to_goal", "seconds"]
    columns += ["labels", "label_ids"]
    rows = [
        [
            *(t.run, *(report.groups[t.cell].overrides[key] for key in keys), t.seed, t.status, t.cause),
            *(t.final_loss, t.final_accuracy, t.steps_to_goal, t.seconds),
            *("; ".join(names) for names in ([one.text for one in t.labels], [one.id for one in t.labels])),
        ]
        for t in report.trials
    ]
    folder.write_table(columns, rows)


def report_document(report: SweepReport, words: Words) -> dict[str, Any]:
    """Write a report as `mhsa sweep --json` prints it."""

    def spread(values: Any) -> dict[str, Any]:
        return dict(zip(("q25", "median", "q75"), values, strict=True))

    groups = [
        {
            "overrides": dict(group.overrides),
            "models": group.models,
            "success": {"k": group.k, "n": group.n, "wilson95": list(group.wilson95)},
            "steps_to_goal": spread(group.steps_to_goal),
            "final_loss": spread(group.final_loss),
            "labels": [
                {"heads": set_words(labels), "label_ids": [label.id for label in labels], "models": count}
                for labels, count in group.label_sets
            ],
        }
        for group in report.groups
    ]
    pairs = [{**asdict(pair), "words": words(report, pair)} for pair in report.pairs]
    failed = sum(trial.status == "failed" for trial in report.trials)
    runs = [
        {**asdict(trial), "labels": [one.text for one in trial.labels], "label_ids": [one.id for one in trial.labels]}
        for trial in report.trials
    ]
    return {"goal": report.goal, "failed": failed, "groups": groups, "pairs": pairs, "runs": runs}
