"""Scores of the user's own that a command asks for: those that a run keeps, or measured now."""

from __future__ import annotations

from mhsa_cli.config.own_file import OwnCode, file_digest, split
from mhsa_cli.config.own_score import check_names, short_score
from mhsa_cli.jobs.kept_scores import kept_scores
from mhsa_cli.jobs.messages import tell
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import escape


def with_scores(folder: RunDir, own: OwnCode, maps: HeadMaps, step: int | None = None) -> HeadMaps:
    """Add the scores of `own` to maps that lack them; their files run only then. `step` is that of the maps if given.

    Raises: UsageError for one that cannot be measured, RunError if the newest checkpoint is of another step.
    """
    check_names(own.scores)
    kept = {short_score(name): recorded for name, recorded in kept_scores(folder.read_run_json()).items()}
    heads = [] if maps.report is None else maps.report.heads
    new = []
    for name in own.scores:
        short, now = short_score(name), file_digest(name)
        if all(short in head.own_scores for head in heads) and kept.get(short) == now:
            continue
        if kept.get(short, now) != now:
            tell(f"note: {escape(split(name)[0])} changed since {folder.name} was trained; {short} is measured with it")
        new.append(name)
    if not new:
        return maps
    from mhsa_cli.jobs.own_score import measure_scores  # imports torch

    return measure_scores(folder, own, maps, new, step)
