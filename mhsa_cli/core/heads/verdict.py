"""What a model's attention is worth, as claims: all heads together, one by one, and in pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from mhsa_cli.core.heads.causal import Effect
from mhsa_cli.core.heads.causes import ALONE, JOINT, SHARE, effect_status
from mhsa_cli.core.heads.shapley import effective_heads, redundancy
from mhsa_cli.records.claims import Claim, Predicate, Status, judge
from mhsa_cli.records.heads import HeadScore, Interaction, Verdict
from mhsa_cli.records.labels import Role

LEARNED = 0.9  # of the loss at chance level: above it nothing was learned; above 1 / LEARNED of it the model is worse
OVERFIT = 0.2  # the least part of the held-out loss that training rows cost less
NEGATIVE = 0.01  # a Shapley value below minus this part of the joint effect makes the effective number meaningless


class Rows(NamedTuple):
    """The measured rows: their loss, by how much training rows cost less, and how many of them were trained on."""

    task: str
    inputs: str
    loss: float
    chance: float
    n: int
    train_gap: Effect | None = None
    seen: int | None = None


def judge_model(rows: Rows, joint: Effect, heads: Sequence[HeadScore], frozen: bool) -> Verdict:
    """State the effect of all patterns together and of single ones; either may show one of either sign."""
    delta, looks = joint.delta, len(heads)
    least = JOINT if looks > 1 else ALONE  # of one head the joint effect is the single one
    status = judge(delta, joint.se, least)
    losses: dict[str, Any] = {"loss": rows.loss, "without": rows.loss + delta, "task": rows.task}
    alone = {head.name: effect_status(head, "uniform", looks) for head in heads}
    shown = [head for head in heads if alone[head.name] in (Status.SHOWN, Status.OPPOSITE)]
    names: dict[Status, Predicate] = {Status.SHOWN: "pattern matters", Status.OPPOSITE: "attention harmful"}
    claims = [Claim("model", names.get(status, "no effect shown"), delta, joint.se, least, status, losses)]
    if frozen:
        claims = [Claim("model", "frozen uniform")]
    elif status is Status.NOT_SHOWN and shown:
        singles = {head.name: head.uniform_delta_nats for head in shown}
        cancels: Predicate = "heads cancel" if any(h.role is Role.CANCELS for h in shown) else "single effects"
        claims.append(Claim("model", cancels, evidence={"singles": singles}))
    matters = status is not Status.NOT_SHOWN or bool(shown)
    claims += _about_rows(rows)
    if not matters:
        claims.append(Claim("model", "heads not labelled", status=Status.NOT_MEASURED))
    try_task = "copy" if not matters and rows.task != "copy" else None
    return Verdict(matters, delta, joint.se, rows.loss, claims, rows.inputs, try_task)


def _about_rows(rows: Rows) -> list[Claim]:
    """State what the loss on these rows says of the training."""
    found = []
    if rows.loss > rows.chance / LEARNED:
        found.append(Claim("model", "below chance", rows.loss, reference=rows.chance))
    elif rows.loss > LEARNED * rows.chance:
        found.append(Claim("model", "not learned", rows.loss, reference=rows.chance))
    gap = rows.train_gap
    if gap is not None and judge(gap.delta, gap.se, OVERFIT * rows.loss) is Status.SHOWN:
        losses = {"loss": rows.loss, "train": rows.loss - gap.delta}
        found.append(Claim("model", "over-fitted", gap.delta, gap.se, evidence=losses))
    return [*found, *seen_claims(rows.seen, rows.n)]


def seen_claims(seen: int | None, rows: int) -> list[Claim]:
    """State how many of the measured rows were trained on, if any."""
    return [Claim("model", "rows trained on", seen / rows, evidence={"seen": seen, "rows": rows})] if seen else []


def share_work(
    verdict: Verdict, heads: Sequence[HeadScore], pairs: Sequence[Interaction], kept: Effect | None
) -> tuple[Claim | None, dict[str, Any]]:
    """Return why the effective number is withheld, and the fields of the verdict on how heads share the work."""
    joint, se = verdict.joint_delta_nats or 0.0, verdict.joint_delta_se or 0.0
    status = judge(joint, se, JOINT)
    singles = [h.uniform_delta_nats for h in heads if h.uniform_delta_nats is not None]
    shares = [h.shapley_nats for h in heads if h.shapley_nats is not None]
    fields: dict[str, Any] = {"interactions": pairs}
    if status is not Status.SHOWN:
        return Claim("model", "joint effect too small", joint, se, JOINT, status), fields
    if kept is not None:
        fields |= {"labels_kept": kept.delta, "labels_kept_se": kept.se}
    if len(singles) == len(heads) and 0 <= (part := redundancy(singles, joint)) <= 1:
        fields["redundancy"] = part
    if len(shares) < len(heads):
        return Claim("model", "not all measured", status=Status.NOT_MEASURED), fields
    if min(shares) < -NEGATIVE * joint:
        return Claim("model", "negative shares", min(shares), reference=-NEGATIVE * joint), fields
    return None, {**fields, "effective_heads": effective_heads(shares)}


def _joint_shown(verdict: Verdict) -> bool:
    return judge(verdict.joint_delta_nats, verdict.joint_delta_se, JOINT) is Status.SHOWN


def label_claims(verdict: Verdict) -> list[Claim]:
    """State what part of what attention is worth the labels account for."""
    kept = verdict.labels_kept
    if not _joint_shown(verdict):
        return []
    if kept is None:
        return [Claim("model", "labels account for nothing", 0.0, status=Status.NOT_SHOWN)]
    return [Claim("model", "labels account", kept, verdict.labels_kept_se, status=judge(kept, verdict.labels_kept_se))]


def work_claims(verdict: Verdict, heads: Sequence[HeadScore], excess: Effect | None) -> list[Claim]:
    """State the sum of single effects beside the joint effect, and whether an `excess` of the sum was shown."""
    joint, se = verdict.joint_delta_nats, verdict.joint_delta_se
    singles = [h.uniform_delta_nats for h in heads if h.uniform_delta_nats is not None]
    if joint is None or not _joint_shown(verdict) or not 1 < len(heads) == len(singles):
        return []
    evidence = {"singles": math.fsum(singles), "redundancy": verdict.redundancy}
    if verdict.redundancy is not None or excess is None:
        return [Claim("model", "singles and joint", joint, se, evidence=evidence)]
    shown = judge(abs(excess.delta), excess.se, SHARE * joint)  # below 0: single heads uniform lower the loss
    evidence |= {"excess": excess.delta, "excess_se": excess.se}
    return [Claim("model", "heads depend", joint, se, status=shown, evidence=evidence)]
