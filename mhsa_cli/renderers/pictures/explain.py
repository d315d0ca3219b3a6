"""What was measured of a model's heads, in sentences. Every number in them comes from the report."""

from __future__ import annotations

from collections.abc import Sequence

from mhsa_cli.records.claim_words import sentences, words
from mhsa_cli.records.heads import HeadMaps, HeadReport, HeadScore, HeadSummary
from mhsa_cli.records.labels import ATTENDS_TO, Role
from mhsa_cli.renderers.kit.ticks import fixed
from mhsa_cli.text import Head

UNNAMED = {
    "near-uniform": "spreads its weight",
    "focused": "looks at few keys, and no target that is known here names it",
    "unclear": "shows no pattern that has a name",
}
ROLES = {Role.NO_EFFECT: ", but is idle", Role.REDUNDANT: ", but others can do its work"}


def explain_model(report: HeadReport) -> list[str]:
    """Say in sentences whether the patterns matter, on which rows, and how the heads share the work."""
    verdict = report.verdict
    said = [sentences(verdict.claims)]
    if verdict.inputs:
        said.append(f"Measured on {verdict.inputs}.")
    joint = verdict.joint_delta_nats
    many = len(report.heads)
    if verdict.redundancy is not None and joint is not None and many > 1:
        singles = sum(head.uniform_delta_nats or 0.0 for head in report.heads)
        what = f"Spread evenly one at a time, the heads lose {fixed(singles, 4)} nats in all"
        together = f"together {fixed(joint, 4)}: {teamwork(verdict.redundancy)}"
        said.append(f"{what}; {together} (redundancy {fixed(verdict.redundancy, 2)}).")
    if verdict.effective_heads is not None and many > 1:
        said.append(f"By their shares the work is that of {fixed(verdict.effective_heads, 1)} of {many} heads.")
    elif verdict.withheld and joint is not None:
        what = "Redundancy and effective heads are" if verdict.redundancy is None else "Effective heads are"
        said.append(f"{what} not given: {words(verdict.withheld)}.")
    if verdict.try_task:
        said.append(f"A task on which looking matters: mhsa train task.name={verdict.try_task}")
    return said


def teamwork(redundancy: float) -> str:
    """Put a redundancy in words."""
    if redundancy >= 0.2:
        return "they stand in for one another"
    alone = "one at a time they cost more than together, so they need one another"
    return alone if redundancy <= -0.2 else "each does its own part"


def explain_head(head: HeadScore, summary: HeadSummary | None = None) -> str:
    """Say in sentences what one head looks at, how that is known, and what it causes.

    With its `summary` also how much of its weight lies on the position that holds the answer, if the task has one.
    """
    label, parts = head.label, list(map(words, head.evidence))
    if label is None:
        opening, parts = f"{head.name} is not named", parts[1:] or parts  # the first says why, as the verdict does
    elif label.role is None:
        opening = f"{head.name} {UNNAMED[label.kind]}"
    else:
        opening = f"{head.name} {ATTENDS_TO[label.kind].format(distance=label.distance)}{ROLES.get(label.role, '')}"
    if summary is not None and summary.answer_weight is not None and summary.answer_uniform is not None:
        there = f"on the position that holds the answer lies {fixed(summary.answer_weight, 2)} of its weight"
        parts = [*parts[:1], f"{there} (an even head: {fixed(summary.answer_uniform, 2)})", *parts[1:]]
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in [opening, *parts] if part)


def explain(maps: HeadMaps, heads: Sequence[Head] | None = None) -> list[str]:
    """Give the model's paragraph and one for each head (of those at the addresses `heads`, or of all)."""
    if maps.report is None:
        return []
    pairs = [(h, s) for h, s in zip(maps.report.heads, maps.heads, strict=True) if heads is None or h.address in heads]
    return [" ".join(explain_model(maps.report)), *(explain_head(head, summary) for head, summary in pairs)]
