"""From figures to a name for each head, and the evidence for it. Plain Python: no model is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from mhsa_cli.records.claims import Claim, Predicate, Status
from mhsa_cli.records.heads import HeadScore, TargetScore, Verdict
from mhsa_cli.records.labels import Label, Role

LIFT = 0.5  # what a label needs on its target
COMMON = 0.5  # a target that a uniform head meets this often is not named
GENERAL_GAPS = 3  # never trained distances that a head named by content must pass
JOINT = 0.05  # nats: below it the patterns do not matter, and shares of it mean nothing
ALONE, SHARE = 0.01, 0.05  # what a head must cause: nats alone, or a share of the joint effect
NEAR_UNIFORM, FOCUSED, SINK = 0.9, 0.5, 0.3
POSITIONAL, MOSTLY = 0.9, 0.7  # likeness of a head's maps on different inputs


def general(gaps: Mapping[int, float]) -> bool:
    """Tell whether a head finds its target at distances that training never used, at every one that was tried."""
    return len(gaps) >= GENERAL_GAPS and min(gaps.values()) >= LIFT


def candidates(head: HeadScore) -> dict[str, TargetScore]:
    """List the targets that a head may be named by: lift enough, above random heads, and true of its content.

    A head that finds repeats only at trained distances looks at a distance, not at content. One that finds them
    everywhere looks at content, though rows of one length show a distance too.
    """
    found = {
        name: score
        for name, score in head.scores.items()
        if score.lift >= LIFT and score.uniform < COMMON and score.null is not None and score.lift > score.null
    }
    for name, gaps in (("induction", head.unseen_gaps), ("duplicate", head.duplicate_gaps)):
        if name in found:
            found.pop("offset", None) if general(gaps) else found.pop(name)
    return found


def matters(head: HeadScore, joint: float | None) -> bool | None:
    """Tell whether this head's pattern causes anything on the task: alone, or as a share of all patterns' effect.

    None where neither was measured.
    """
    delta, se = head.uniform_delta_nats, head.uniform_delta_se
    if delta is not None and delta >= max(ALONE, 2 * (se or 0.0)):
        return True
    if head.shapley_nats is not None and joint is not None and joint >= JOINT:
        return head.shapley_nats >= max(SHARE * joint, 2 * (head.shapley_se or 0.0))  # drawn shares scatter
    return None if delta is None else False


def label_head(head: HeadScore, verdict: Verdict, unknown: Claim | None = None) -> HeadScore:
    """Give a head its label and the evidence for it; withheld where the pattern does not matter or was not measured.

    `unknown` says why what heads cause cannot be measured at all: then they are named by where they look.
    """
    joint = verdict.joint_delta_nats if verdict.pattern_matters else None  # of what does not matter no shares
    effect = _effect(head, joint, unknown)
    if not verdict.pattern_matters and unknown is None:
        nothing = verdict.pattern_matters is None
        why = Claim(head.name, "nothing measured" if nothing else "not labelled", status=Status.NOT_MEASURED)
        return replace(head, label=None, evidence=(why, *([] if head.uniform_delta_nats is None else [effect])))
    found = candidates(head)
    if not found:
        return replace(head, label=shape_label(head), evidence=(*_unnamed(head), effect))
    target = max(found, key=lambda name: found[name].lift)  # of equals the first in the table
    effective = matters(head, joint)
    role = Role.SHOWN if effective else Role.NO_EFFECT if effective is False else Role.PATTERN
    evidence = (*_named(head, target, found[target]), effect)
    return replace(head, label=Label(target, role, found[target].distance), evidence=evidence)


def look_alikes(head: HeadScore, heads: Sequence[HeadScore]) -> list[HeadScore]:
    """List the other heads that look at the same target, where this one is taken for idle; they may do its work."""
    if head.label is None or head.label.role is not Role.NO_EFFECT:
        return []
    at = head.label.kind, head.label.distance
    same = [one for one in heads if one.label is not None and (one.label.kind, one.label.distance) == at]
    return [one for one in same if one.address != head.address]


def with_stand_ins(head: HeadScore, others: Sequence[HeadScore], delta: float) -> HeadScore:
    """Correct an idle head's label where its look-alikes do its work: with them spread evenly too, it costs `delta`."""
    if delta < ALONE or head.label is None:
        return head
    said = Claim(head.name, "backup heads", delta, reference=ALONE, evidence={"others": [one.name for one in others]})
    return replace(head, label=replace(head.label, role=Role.REDUNDANT), evidence=(*head.evidence, said))


def shape_label(head: HeadScore) -> Label:
    """Describe a head that looks at nothing with a name."""
    if head.uniformity is not None and head.uniformity >= NEAR_UNIFORM:
        return Label("near-uniform")
    return Label("focused" if head.confidence is not None and head.confidence >= FOCUSED else "unclear")


def _named(head: HeadScore, target: str, score: TargetScore) -> list[Claim]:
    claim = partial(Claim, head.name)
    found = [claim("weight on target", score.mass, reference=score.uniform, evidence={"lift": score.lift})]
    if score.null is not None:
        found.append(claim("above random heads", score.lift, reference=score.null))
    if target in ("induction", "duplicate"):
        gaps = head.unseen_gaps if target == "induction" else head.duplicate_gaps
        found.append(claim("by content", min(gaps.values()), reference=LIFT, evidence={"gaps": gaps}))
    elif head.positionality is not None:
        likeness = round(head.positionality, 2)  # as it is shown
        how: Predicate = "by position" if likeness >= POSITIONAL else "mostly by position"
        found.append(claim(how if likeness >= MOSTLY else "not by position alone", head.positionality))
    found += _resemblance(head, target)
    if target == "first" and score.mass > SINK:
        found.append(claim("sink", score.mass, reference=SINK))
    return found


def _unnamed(head: HeadScore) -> list[Claim]:
    claim = partial(Claim, head.name)
    best = max(head.scores, key=lambda name: head.scores[name].lift, default=None)
    found = []
    if best is not None:
        score = head.scores[best]
        named = {"target": Label(best, Role.SHOWN, score.distance), "uniform": score.uniform}
        found.append(claim(_closest(score), score.lift, reference=score.null, evidence=named))
    if head.uniformity is not None and head.confidence is not None:
        found.append(claim("near uniform", head.uniformity))
        found.append(claim("largest weight", head.confidence))
    return [*found, *_resemblance(head, None)]


def _closest(score: TargetScore) -> Predicate:
    """Tell what keeps a target that a head does look at from naming it."""
    if score.lift >= LIFT and score.uniform >= COMMON:
        return "closest is common"
    if score.lift >= LIFT and score.null is None:
        return "closest not compared"
    return "closest is random" if score.null is not None and LIFT <= score.lift <= score.null else "closest"


def _resemblance(head: HeadScore, target: str | None) -> list[Claim]:
    """Say that a head at a distance, or one that scores as induction, was tried at other distances."""
    score, gaps = head.scores.get("induction"), head.unseen_gaps
    likes = score is not None and score.lift >= LIFT and not general(gaps)
    if target != "offset" and not likes:
        return []
    if len(gaps) < GENERAL_GAPS:
        return [Claim(head.name, "not tried elsewhere", status=Status.NOT_MEASURED)]
    what: Predicate = "resembles induction" if likes else "tried elsewhere"
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


def label_all(heads: Sequence[HeadScore], verdict: Verdict, unknown: Claim | None = None) -> list[HeadScore]:
    """Label every head."""
    return [label_head(head, verdict, unknown) for head in heads]
