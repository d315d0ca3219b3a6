"""From figures to a name for each head, and the evidence for it. Plain Python: no model is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mhsa_cli.records import HeadScore, Label, Role, TargetScore, Verdict
from mhsa_cli.records.labels import target_words

LIFT = 0.5  # what a label needs on its target
COMMON = 0.5  # a target that a uniform head meets this often is not named
GENERAL_GAPS = 3  # never trained distances that a head named by content must pass
JOINT = 0.05  # nats: below it the patterns do not matter, and shares of it mean nothing
ALONE, SHARE = 0.01, 0.05  # what a head must cause: nats alone, or a share of the joint effect
SPREAD, SHARP, SINK = 0.9, 0.5, 0.3
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
        if score.lift >= LIFT and score.chance < COMMON and score.null is not None and score.lift > score.null
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


def label_head(head: HeadScore, verdict: Verdict) -> HeadScore:
    """Give a head its label and the evidence for it; withheld where the pattern does not matter or was not measured."""
    joint = verdict.joint_delta_nats
    if not verdict.pattern_matters:
        why = "the pattern does not matter here" if verdict.pattern_matters is False else "nothing could be measured"
        effect = [] if head.uniform_delta_nats is None else [_effect(head, joint)]
        return replace(head, label=None, evidence=(f"not labelled: {why}", *effect))
    found = candidates(head)
    if not found:
        return replace(head, label=shape_label(head), evidence=(*_unnamed(head), _effect(head, joint)))
    target = max(found, key=lambda name: found[name].lift)  # of equals the first in the table
    effective = matters(head, joint)
    role = Role.NAMED if effective else Role.IDLE if effective is False else Role.LOOKS
    evidence = (*_named(head, target, found[target]), _effect(head, joint))
    return replace(head, label=Label(target, role, found[target].distance), evidence=evidence)


def look_only(head: HeadScore, why: str) -> HeadScore:
    """Say what a head looks at where what it causes cannot be measured; `why` takes the place of its effect."""
    found = candidates(head)
    if not found:
        return replace(head, label=shape_label(head), evidence=(*_unnamed(head), why))
    target = max(found, key=lambda name: found[name].lift)
    label = Label(target, Role.LOOKS, found[target].distance)
    return replace(head, label=label, evidence=(*_named(head, target, found[target]), why))


def look_alikes(head: HeadScore, heads: Sequence[HeadScore]) -> list[HeadScore]:
    """List the other heads that look at the same target, where this one is taken for idle; they may do its work."""
    if head.label is None or head.label.role is not Role.IDLE:
        return []
    at = head.label.kind, head.label.distance
    same = [one for one in heads if one.label is not None and (one.label.kind, one.label.distance) == at]
    return [one for one in same if one.address != head.address]


def with_stand_ins(head: HeadScore, others: Sequence[HeadScore], delta: float) -> HeadScore:
    """Correct an idle head's label where its look-alikes do its work: with them spread evenly too, it costs `delta`."""
    if delta < ALONE or head.label is None:
        return head
    names = ", ".join(one.name for one in others)
    said = f"with its look-alikes ({names}) spread evenly, taking it as well changes the loss by {delta:+.3f} nats"
    return replace(head, label=replace(head.label, role=Role.STAND_INS), evidence=(*head.evidence, said))


def shape_label(head: HeadScore) -> Label:
    """Describe a head that looks at nothing with a name."""
    if head.uniformity is not None and head.uniformity >= SPREAD:
        return Label("spread")
    return Label("sharp" if head.confidence is not None and head.confidence >= SHARP else "undecided")


def _named(head: HeadScore, target: str, score: TargetScore) -> list[str]:
    there = f"{score.mass:.2f} of its weight lies there, where an even head has {score.chance:.2f}"
    parts = [f"{there} (lift {score.lift:.2f})"]
    if score.null is not None:
        parts.append(f"99 % of random heads stay below lift {score.null:.2f}")
    if target in ("induction", "duplicate"):
        gaps = head.unseen_gaps if target == "induction" else head.duplicate_gaps
        parts.append(f"it goes by content: at distances that training never used its lift is {gap_text(gaps)}")
    elif head.positionality is not None:
        parts.append(f"{_bound(head.positionality)}: on random rows its maps are {head.positionality:.2f} alike")
    parts += _resemblance(head, target)
    if target == "first" and score.mass > SINK:
        parts.append("it is a sink, which parks its weight on the first token")
    return parts


def _bound(likeness: float) -> str:
    likeness = round(likeness, 2)  # as it is shown
    if likeness >= POSITIONAL:
        return "it goes by position"
    return "it goes mostly by position" if likeness >= MOSTLY else "it does not go by position alone"


def _unnamed(head: HeadScore) -> list[str]:
    best = max(head.scores, key=lambda name: head.scores[name].lift, default=None)
    parts = []
    if best is not None:
        score = head.scores[best]
        name = target_words(best, score.distance)
        parts.append(f"closest is {name}, with lift {score.lift:.2f}{_why_no_name(score)}")
    if head.uniformity is not None and head.confidence is not None:
        parts.append(f"it is {head.uniformity:.2f} like an even head")
        parts.append(f"its largest weight is {head.confidence:.2f} on average")
    return [*parts, *_resemblance(head, None)]


def _why_no_name(score: TargetScore) -> str:
    """Say what keeps a target that a head does look at from naming it."""
    if score.lift < LIFT:
        return ""
    if score.chance >= COMMON:
        return f": no name here, where an even head already has {score.chance:.2f} of its weight there"
    if score.null is None:
        return ": no name, for it was not compared with random heads"
    return f": no name, for 1 % of random heads reach {score.null:.2f}" if score.lift <= score.null else ""


def _resemblance(head: HeadScore, target: str | None) -> list[str]:
    """Say that a head at a distance, or one that scores as induction, was tried at other distances."""
    score = head.scores.get("induction")
    likes = score is not None and score.lift >= LIFT and not general(head.unseen_gaps)
    if target != "offset" and not likes:
        return []
    if len(head.unseen_gaps) < GENERAL_GAPS:
        return ["the rows are too short to try it at other distances"]
    tried = f"at distances that training never used its lift as induction is {gap_text(head.unseen_gaps)}"
    return [f"it resembles induction but is not: {tried}" if likes else tried]


def _effect(head: HeadScore, joint: float | None) -> str:
    delta, share = head.uniform_delta_nats, head.shapley_nats
    if delta is None:
        return "what it causes was not measured: the model is large"
    said = f"spread evenly instead, it alone changes the loss by {delta:+.3f} nats"
    if share is None or joint is None or joint < JOINT:
        return said
    said += f", and its share of what all patterns are worth is {share:.3f} of {joint:.3f} nats ({share / joint:.0%})"
    return f"{said}: where others are missing its pattern misleads" if share < 0 else said


def gap_text(gaps: Mapping[int, float]) -> str:
    """Write lifts by distance: "0.91 at 5, 0.88 at 7"."""
    return ", ".join(f"{lift:.2f} at {gap}" for gap, lift in gaps.items())


def label_all(heads: Sequence[HeadScore], verdict: Verdict) -> list[HeadScore]:
    """Label every head."""
    return [label_head(head, verdict) for head in heads]
