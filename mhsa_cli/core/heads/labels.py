"""Labels of heads from their figures, with the evidence. Plain Python: no model is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from mhsa_cli.records.claims import Claim, Predicate, Status
from mhsa_cli.records.heads import HeadScore, TargetScore, Verdict
from mhsa_cli.records.labels import Label, Role

LIFT = 0.5  # the least lift on a target that labels a head
COMMON = 0.5  # a target on which a uniform head has this weight labels no head
GENERAL_GAPS = 3  # unseen distances that a content-based label needs
JOINT = 0.05  # nats: below this joint effect the patterns do not matter and shares have no meaning
ALONE, SHARE = 0.01, 0.05  # the least effect of a head: nats alone, or a share of the joint effect
NEAR_UNIFORM, FOCUSED, SINK = 0.9, 0.5, 0.3
POSITIONAL, MOSTLY = 0.9, 0.7  # positionality


def generalises(gaps: Mapping[int, float]) -> bool:
    """Whether a head finds its target at every unseen distance tested, and enough were tested."""
    return len(gaps) >= GENERAL_GAPS and min(gaps.values()) >= LIFT


def candidates(head: HeadScore) -> dict[str, TargetScore]:
    """Find the targets that may label a head: enough lift, above untrained heads, and confirmed by content.

    A head that finds repeats at trained distances only is positional: content labels are dropped. One that finds them
    at all distances is content-based: its offset is dropped.
    """
    found = {
        name: score
        for name, score in head.scores.items()
        if score.lift >= LIFT and score.uniform < COMMON and score.null is not None and score.lift > score.null
    }
    for name, gaps in (("induction", head.unseen_gaps), ("duplicate", head.duplicate_gaps)):
        if name in found:
            found.pop("offset", None) if generalises(gaps) else found.pop(name)
    return found


def has_effect(head: HeadScore, joint: float | None) -> bool | None:
    """Whether this head's pattern affects the loss, alone or by its share of the joint effect; None if not measured."""
    delta, se = head.uniform_delta_nats, head.uniform_delta_se
    if delta is not None and delta >= max(ALONE, 2 * (se or 0.0)):
        return True
    if head.shapley_nats is not None and joint is not None and joint >= JOINT:
        return head.shapley_nats >= max(SHARE * joint, 2 * (head.shapley_se or 0.0))
    return None if delta is None else False


def label_head(head: HeadScore, verdict: Verdict, unknown: Claim | None = None) -> HeadScore:
    """Add a head's label and its evidence; no label where patterns do not matter or were not measured.

    `unknown` says why no head's effect can be measured; labels then describe patterns only.
    """
    joint = verdict.joint_delta_nats if verdict.pattern_matters else None
    effect = _effect(head, joint, unknown)
    if not verdict.pattern_matters and unknown is None:
        nothing = verdict.pattern_matters is None
        why = Claim(head.name, "nothing measured" if nothing else "not labelled", status=Status.NOT_MEASURED)
        return replace(head, label=None, evidence=(why, *([] if head.uniform_delta_nats is None else [effect])))
    found = candidates(head)
    if not found:
        return replace(head, label=shape_label(head), evidence=(*_shape_evidence(head), effect))
    target = max(found, key=lambda name: found[name].lift)  # ties: the first in the table
    role = {True: Role.SHOWN, False: Role.NO_EFFECT, None: Role.PATTERN}[has_effect(head, joint)]
    evidence = (*_target_evidence(head, target, found[target]), effect)
    return replace(head, label=Label(target, role, found[target].distance), evidence=evidence)


def similar_heads(head: HeadScore, heads: Sequence[HeadScore]) -> list[HeadScore]:
    """Find the possible backup heads of a head without an effect of its own: the others with the same target."""
    if head.label is None or head.label.role is not Role.NO_EFFECT:
        return []
    target = head.label.kind, head.label.distance
    same = [other for other in heads if other.label is not None and (other.label.kind, other.label.distance) == target]
    return [other for other in same if other.address != head.address]


def with_backups(head: HeadScore, backups: Sequence[HeadScore], delta: float) -> HeadScore:
    """Label a head redundant if making it uniform costs `delta` nats once its backup heads are uniform too."""
    if delta < ALONE or head.label is None:
        return head
    names = {"others": [other.name for other in backups]}
    claim = Claim(head.name, "backup heads", delta, reference=ALONE, evidence=names)
    return replace(head, label=replace(head.label, role=Role.REDUNDANT), evidence=(*head.evidence, claim))


def shape_label(head: HeadScore) -> Label:
    """Label a head that attends to no known target."""
    if head.uniformity is not None and head.uniformity >= NEAR_UNIFORM:
        return Label("near-uniform")
    return Label("focused" if head.confidence is not None and head.confidence >= FOCUSED else "unclear")


def _target_evidence(head: HeadScore, target: str, score: TargetScore) -> list[Claim]:
    claim = partial(Claim, head.name)
    found = [claim("weight on target", score.mass, reference=score.uniform, evidence={"lift": score.lift})]
    if score.null is not None:
        found.append(claim("above untrained heads", score.lift, reference=score.null))
    if target in ("induction", "duplicate"):
        gaps = head.unseen_gaps if target == "induction" else head.duplicate_gaps
        found.append(claim("content-based", min(gaps.values()), reference=LIFT, evidence={"gaps": gaps}))
    elif head.positionality is not None:
        similarity = round(head.positionality, 2)  # as it is shown
        how: Predicate = "positional" if similarity >= POSITIONAL else "mostly positional"
        found.append(claim(how if similarity >= MOSTLY else "not only positional", head.positionality))
    found += _induction_evidence(head, target)
    if target == "first" and score.mass > SINK:
        found.append(claim("sink", score.mass, reference=SINK))
    return found


def _shape_evidence(head: HeadScore) -> list[Claim]:
    claim = partial(Claim, head.name)
    best = max(head.scores, key=lambda name: head.scores[name].lift, default=None)
    found = []
    if best is not None:
        score = head.scores[best]
        evidence = {"target": Label(best, Role.SHOWN, score.distance), "uniform": score.uniform}
        found.append(claim(_closest(score), score.lift, reference=score.null, evidence=evidence))
    if head.uniformity is not None and head.confidence is not None:
        found.append(claim("uniformity", head.uniformity))
        found.append(claim("largest weight", head.confidence))
    return [*found, *_induction_evidence(head, None)]


def _closest(score: TargetScore) -> Predicate:
    """Say why the target of largest lift does not label the head."""
    if score.lift >= LIFT and score.uniform >= COMMON:
        return "closest is common"
    if score.lift >= LIFT and score.null is None:
        return "closest not compared"
    return "closest below untrained heads" if score.null is not None and LIFT <= score.lift <= score.null else "closest"


def _induction_evidence(head: HeadScore, target: str | None) -> list[Claim]:
    """Report the lift at unseen distances for a head with an offset or with an induction lift."""
    score, gaps = head.scores.get("induction"), head.unseen_gaps
    resembles = score is not None and score.lift >= LIFT and not generalises(gaps)
    if target != "offset" and not resembles:
        return []
    if len(gaps) < GENERAL_GAPS:
        return [Claim(head.name, "not tested at other distances", status=Status.NOT_MEASURED)]
    what: Predicate = "resembles induction" if resembles else "tested at other distances"
    return [Claim(head.name, what, min(gaps.values()), reference=LIFT, evidence={"gaps": gaps})]


def _effect(head: HeadScore, joint: float | None, unknown: Claim | None) -> Claim:
    delta, share = head.uniform_delta_nats, head.shapley_nats
    if delta is None:
        why = {"why": unknown or Claim("model", "large model")}
        return Claim(head.name, "effect not measured", status=Status.NOT_MEASURED, evidence=why)
    if share is None or joint is None or joint < JOINT:
        return Claim(head.name, "effect", delta, head.uniform_delta_se)
    what: Predicate = "effect and negative share" if share < 0 else "effect and share"
    shares = {"share": share, "joint": joint, "part": share / joint}
    return Claim(head.name, what, delta, head.uniform_delta_se, evidence=shares)
