"""Sentences about a model's heads. Every number in them comes from the report."""

from __future__ import annotations

from mhsa_cli.records.claim_words import sentences, words
from mhsa_cli.records.heads import HeadReport, HeadScore, HeadSummary
from mhsa_cli.records.labels import ATTENDS_TO, Role
from mhsa_cli.renderers.kit.ticks import fixed, percents

ROLES = {Role.NO_EFFECT: ", no effect shown", Role.REDUNDANT: ", redundant"}


def explain_model(report: HeadReport) -> str:
    """Write whether the patterns matter, on which rows, and how the heads share the work."""
    verdict, many = report.verdict, len(report.heads) > 1
    joint, redundancy, effective = verdict.joint_delta_nats, verdict.redundancy, verdict.effective_heads
    said = [sentences(verdict.claims)]
    if verdict.inputs:
        said.append(f"Measured on {verdict.inputs}.")
    if redundancy is not None and joint is not None and many:
        singles = sum(head.uniform_delta_nats or 0.0 for head in report.heads)
        said.append(
            f"One head at a time, uniform attention costs {fixed(singles, 4)} nats in total; in all heads at once "
            f"{fixed(joint, 4)}: {teamwork(redundancy)} (redundancy {fixed(redundancy, 2)})."
        )
    if effective is not None and many:
        said.append(f"Effective number of heads: {fixed(effective, 1)} of {len(report.heads)} (Shapley).")
    elif verdict.withheld and joint is not None:
        what = "Redundancy and effective number of heads" if redundancy is None else "Effective number of heads"
        said.append(f"{what} not given: {words(verdict.withheld)}.")
    return " ".join(said)


def teamwork(redundancy: float) -> str:
    """Write what a redundancy means."""
    if redundancy >= 0.2:
        return "the heads back each other up"
    return "the heads depend on each other" if redundancy <= -0.2 else "the heads work independently"


def explain_head(head: HeadScore, summary: HeadSummary | None = None) -> str:
    """Write what one head attends to, the evidence, and its effect.

    With its `summary` also its weight on the answer, if the task has a position that holds it.
    """
    label, parts = head.label, list(map(words, head.evidence))
    if label is None:
        opening, parts = f"{head.name} has no label", parts[1:] or parts  # the first is the verdict's reason
    elif label.role is None:
        opening = f"{head.name}: {label.text}"
    else:
        opening = f"{head.name} {ATTENDS_TO[label.kind].format(distance=label.distance)}{ROLES.get(label.role, '')}"
    if summary is not None and summary.answer_weight is not None and summary.answer_uniform is not None:
        weight, uniform = percents(summary.answer_weight, 0), percents(summary.answer_uniform, 0)
        parts.insert(1, f"{weight} of its attention is on the answer (uniform: {uniform})")
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in [opening, *parts] if part)
