"""Choose and sort runs: by status, by name, by their figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from mhsa_cli.runs.codec import is_number
from mhsa_cli.runs.listing import RunSummary, final_figures

# What runs are sorted by, each with its order: the latest, the best, the longest, or A first.
SORTS: dict[str, Callable[[RunSummary], float | str | None]] = {
    "started": lambda run: -run.order if run.started is not None else None,
    "name": lambda run: run.name,
    "loss": lambda run: _figure(run, "eval_loss"),
    "accuracy": lambda run: None if (share := _figure(run, "eval_accuracy")) is None else -share,
    "seconds": lambda run: None if run.seconds is None else -run.seconds,
}
STATUSES = ("running", "finished", "stopped", "failed", "interrupted", "damaged", "unreadable", "newer")


def _figure(run: RunSummary, name: str) -> float | None:
    value = final_figures(run.info).get(name)
    return float(value) if is_number(value) and math.isfinite(value) else None


def sort_runs(runs: Iterable[RunSummary], by: str, *, backwards: bool = False) -> list[RunSummary]:
    """Sort runs by an entry of SORTS; those without the figure come last, also backwards."""
    known, rest = [], []
    for run in runs:
        value = SORTS[by](run)
        rest.append(run) if value is None else known.append((value, run))
    return [run for _, run in sorted(known, key=lambda pair: pair[0], reverse=backwards)] + rest


def has_status(run: RunSummary, statuses: Sequence[str]) -> bool:
    """Return whether a run has one of these STATUSES; any has if there are none."""
    return not statuses or (run.problem or run.status) in statuses


def has_name(name: str, texts: Iterable[str]) -> bool:
    """Return whether a name contains each of the texts, or matches it if it is a pattern with `*`, `?` or `[]`."""
    patterns = (text if any(sign in text for sign in "*?[") else f"*{text}*" for text in texts)
    return all(fnmatchcase(name, pattern) for pattern in patterns)
