"""The data of a sweep's page as plain JSON: its settings over their seeds, and the trials that are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from mhsa_cli.records.report import ShownSweep, ShownTrial
from mhsa_cli.records.sweep import FormedStats, GroupStats, LabelShare, SweepReport, TrialCurve
from mhsa_cli.renderers.pictures.sweep import curve_of, stated
from mhsa_cli.renderers.pictures.sweep_labels import share_words
from mhsa_cli.renderers.pictures.sweep_words import formed_words, goal_text, group_name, short_names
from mhsa_cli.renderers.report.document import FORMAT, Json, fitted, nats, run_parts
from mhsa_cli.text import escape, plural


def sweep_document(sweep: ShownSweep) -> Json:
    """Make the document of a sweep."""
    report, runs = sweep.report, [one.run for one in sweep.shown if one.run is not None]
    settings = [_setting(report, group, own) for group, own in zip(report.groups, sweep.curves, strict=True)]
    return fitted(
        {
            "format": FORMAT,
            "kind": "sweep",
            "sweep": {
                "name": escape(sweep.name),
                "facts": [[label, escape(value)] for label, value in _facts(report)],
                "axes": [escape(name) for name in short_names(report).values()],
                "settings": settings,
                "claims": [escape(text) for text in stated(report)],
                "shown": _shown(report, sweep.shown),
            },
            "runs": run_parts(runs),
        }
    )


def _facts(report: SweepReport) -> list[tuple[str, str]]:
    trials = report.trials
    finished, failed = (sum(trial.status == status for trial in trials) for status in ("finished", "failed"))
    pending = sum(trial.is_pending for trial in trials)
    rows = [
        ("trials", f"{len(trials):,}: {plural(len(report.groups), 'setting')}, {_seeds(report)}"),
        ("finished", f"{finished:,}"),
        ("failed", f"{failed:,}" if failed else ""),
        ("to come", f"{pending:,}" if pending else ""),
        ("goal", f"accuracy of {goal_text(report)}"),
    ]
    return [(label, value) for label, value in rows if value]


def _seeds(report: SweepReport) -> str:
    return plural(len({trial.seed for trial in report.trials}), "seed")


def _setting(report: SweepReport, group: GroupStats, curves: Sequence[TrialCurve]) -> Json:
    cell = next(place for place, one in enumerate(report.groups) if one is group)
    own = [trial for trial in report.trials if trial.cell == cell]
    accuracies = [trial.final_accuracy for trial in own if trial.is_finished and trial.final_accuracy is not None]
    circuits = [share for share in group.shares if share.is_circuit]
    return {
        "name": escape(group_name(report, group)),
        "trials": len(own),
        "finished": group.models,
        "solved": [group.k, group.n] if group.n else None,
        "curve": _curve(curves),
        "median_loss": nats(group.final_loss.estimate),
        "accuracy": median(accuracies) if accuracies else None,
        "onsets": [_onset(one) for one in group.formed],
        "labels": [_share(share) for share in group.shares if not share.is_circuit],
        "circuits": [_share(share) for share in circuits],
    }


def _curve(curves: Sequence[TrialCurve]) -> Json:
    """Write the finished run of median loss, and the quartiles of all."""
    _, steps, middle, low, high = curve_of("", curves) if curves else ("", [], [], [], [])
    return {"steps": list(steps), **{name: [*map(nats, v)] for name, v in zip(BANDS, (middle, low, high), strict=True)}}


BANDS = ("median", "low", "high")


def _onset(one: FormedStats) -> list[Any]:
    """Write a median onset in steps, with its interval; null is what is not known or not bounded."""
    ends = (one.step.estimate, one.step.low, one.step.high)
    known = [None if end is None or math.isinf(end) else round(end) for end in ends]
    return [escape(formed_words(one)), *known, one.models, one.of]


def _share(share: LabelShare) -> list[Any]:
    return [escape(share_words(share)), share.models, share.of, *(round(end, 3) for end in share.wilson95)]


def _shown(report: SweepReport, shown: Sequence[ShownTrial]) -> list[Json]:
    found, place = [], 0
    for one in shown:
        found.append(
            {
                "run": None if one.run is None else place,
                "setting": escape(group_name(report, report.groups[one.trial.cell])),
                "seed": one.trial.seed,
                "why": one.reason,
                "status": escape(one.trial.status),
                "error": escape(one.trial.message or one.problem),
            }
        )
        place += one.run is not None
    return found
