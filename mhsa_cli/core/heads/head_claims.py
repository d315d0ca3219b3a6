"""The evidence of a head's label, as claims. Plain Python: no model is needed."""

from __future__ import annotations

from functools import partial

from mhsa_cli.core.heads.causes import ALONE, effect_status, share_status
from mhsa_cli.core.heads.labels import COMMON, GENERAL_GAPS, LIFT, attends_answer, generalises, label_on, limit_of
from mhsa_cli.records.claims import Claim, Predicate, Status, judge
from mhsa_cli.records.heads import HeadScore, TargetScore
from mhsa_cli.records.labels import CONDITIONAL, Role

POSITIONAL, CONTENT = 0.8, 0.3  # similarity of a head's maps on shuffled rows
SINK = 0.3  # weight on the first token
WEAKER = 0.2  # lift at unseen distances from which a head is said to find repeats there


def pattern_claims(head: HeadScore, looks: int) -> list[Claim]:
    """State what a labelled head attends to, against what, and how it finds it."""
    label = head.label
    if label is None or label.target is None:
        return _shape_claims(head)
    score, claim = head.scores[label.kind], partial(Claim, head.name)
    weight: Predicate = "weight on target where it is" if label.kind in CONDITIONAL else "weight on target"
    found = [claim(weight, score.mass, reference=score.uniform, evidence={"lift": score.lift})]
    if score.scored is not None:
        found.append(claim("lift on scored queries", score.scored))
    if score.null is not None:
        found.append(claim("above untrained heads", score.lift, reference=score.null))
    if score.random_null is not None:
        found.append(claim("above random heads", score.lift, reference=score.random_null))
    if label.kind in ("induction", "duplicate"):
        gaps = head.unseen_gaps if label.kind == "induction" else head.duplicate_gaps
        found.append(claim("content-based", min(gaps.values()), reference=LIFT, evidence={"gaps": gaps}))
    elif head.positionality is not None and label.kind not in ("self", "same"):  # own position and token are one
        found.append(claim(_positional(round(head.positionality, 2)), head.positionality))  # as it is shown
    found += [*_answer_claims(head), *_induction_claims(head)]
    outputs = (effect_status(head, "zero", looks), effect_status(head, "mean", looks))
    if label.kind == "first" and score.mass > SINK and outputs == (Status.NOT_SHOWN, Status.NOT_SHOWN):
        found.append(claim("sink", score.mass, reference=SINK))
    return found


def _positional(similarity: float) -> Predicate:
    if similarity >= POSITIONAL:
        return "positional"
    return "depends on tokens" if similarity <= CONTENT else "partly positional"


def _shape_claims(head: HeadScore) -> list[Claim]:
    claim = partial(Claim, head.name)
    best = max(head.scores, key=lambda name: head.scores[name].lift, default=None)
    found = []
    if best is not None:
        score = head.scores[best]
        evidence = {"target": label_on(best, score).id, "uniform": score.uniform}
        found.append(claim(_closest(score), score.lift, reference=limit_of(score), evidence=evidence))
    if head.uniformity is not None and head.confidence is not None:
        found.append(claim("uniformity", head.uniformity))
        found.append(claim("largest weight", head.confidence))
    return [*found, *_answer_claims(head), *_induction_claims(head)]


def _answer_claims(head: HeadScore) -> list[Claim]:
    score = head.scores.get("answer")
    if score is None or (head.label is not None and head.label.kind == "answer"):
        return []
    lift = {"lift": score.lift, "shown": attends_answer(head)}
    return [Claim(head.name, "on the answer", score.mass, reference=score.uniform, evidence=lift)]


def _closest(score: TargetScore) -> Predicate:
    """Say why the target of largest lift does not label the head."""
    if score.lift < LIFT:
        return "closest"
    if score.uniform >= COMMON:
        return "closest is common"
    if score.null is None:
        return "closest not compared"
    if score.lift <= score.null:
        return "closest below untrained heads"
    return "closest below random heads" if score.lift <= (score.random_null or 0.0) else "closest"


def _induction_claims(head: HeadScore) -> list[Claim]:
    """Report the lift at unseen distances of a head with an offset or with an induction lift but no such label."""
    score, gaps, label = head.scores.get("induction"), head.unseen_gaps, head.label
    resembles = score is not None and score.lift >= LIFT and not generalises(gaps)
    if not resembles and (label is None or label.kind != "offset"):
        return []
    if len(gaps) < GENERAL_GAPS:
        why = {"limit": head.gap_limit}
        return [Claim(head.name, "not tested at other distances", status=Status.NOT_MEASURED, evidence=why)]
    least = min(gaps.values())
    weaker: Predicate = "weaker at other distances" if least >= WEAKER else "tested at other distances"
    return [Claim(head.name, weaker, least, reference=LIFT, evidence={"gaps": gaps})]


def effect_claims(head: HeadScore, joint: float | None, looks: int, unknown: Claim | None) -> list[Claim]:
    """State what a head's pattern and output do to the loss; `unknown` says why that was not measured."""
    delta, se, claim = head.uniform_delta_nats, head.uniform_delta_se, partial(Claim, head.name)
    if delta is None:
        why = {"why": unknown or Claim("model", "large model")}
        return [claim("effect not measured", status=Status.NOT_MEASURED, evidence=why)]
    status = effect_status(head, "uniform", looks)
    found = [claim("effect", delta, se, ALONE, status)]
    share = share_status(head, joint, looks)
    if share is not Status.NOT_MEASURED and head.share is not None:
        evidence = {"share": head.shapley_nats, "joint": joint}
        name: Predicate = "negative share" if share is Status.OPPOSITE else "share"
        found.append(claim(name, head.share, head.share_se, status=share, evidence=evidence))
    if head.role is Role.SUPPRESSES:
        found.append(claim("suppresses", head.zero_delta_nats, head.zero_delta_se, status=Status.OPPOSITE))
    elif head.role is Role.HARMFUL:
        found.append(claim("harmful", delta, se, status=Status.OPPOSITE))
    elif head.role is Role.OUTPUT:
        output = effect_status(head, "zero", looks)
        found.append(claim("only output", head.zero_delta_nats, head.zero_delta_se, status=output))
    return found


def kept_claim(head: HeadScore, looks: int) -> list[Claim]:
    """State how much of the head's effect an ideal head of its label keeps."""
    if head.kept is None or head.label is None:
        return []
    status = judge(head.kept, head.kept_se, looks=looks)
    evidence = {"target": head.label.plain.id}
    return [Claim(head.name, "kept", head.kept, head.kept_se, status=status, evidence=evidence)]
