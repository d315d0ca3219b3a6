"""From figures to one true sentence per head. Plain Python: what was measured goes in, words come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mhsa_cli.records import HeadScore, TargetScore, Verdict

LIFT = 0.5  # what a label needs on its target
COMMON = 0.5  # a target that a uniform head meets this often is not named
GENERAL_GAPS = 3  # never trained distances that a head named by content must pass
JOINT = 0.05  # nats: below it the patterns do not matter, and shares of it mean nothing
ALONE, SHARE = 0.01, 0.05  # what a head must cause: nats alone, or a share of the joint effect
SPREAD, SHARP, SINK = 0.9, 0.5, 0.3
POSITIONAL, MOSTLY = 0.9, 0.7  # likeness of a head's maps on different inputs

IDLE, SPARE = ", but idle", ", with stand-ins"

WORDS = {
    "previous": "previous token",
    "self": "itself",
    "first": "first token",
    "offset": "offset {distance}",
    "duplicate": "duplicate token",
    "induction": "induction",
}


def words_for(target: str, score: TargetScore) -> str:
    """Name a target, the offset with its distance."""
    return WORDS[target].format(distance=score.distance)


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
        return replace(
            head,
            target=None,
            label=None,
            evidence="; ".join(
                [f"not labelled: {why}", *([] if head.uniform_delta_nats is None else [_effect(head, joint)])]
            ),
        )
    found = candidates(head)
    if not found:
        return replace(head, target=None, label=shape_label(head), evidence="; ".join(_unnamed(head, joint)))
    target = max(found, key=lambda name: found[name].lift)  # of equals the first in the table
    words, effective = words_for(target, found[target]), matters(head, joint)
    label = words if effective else f"looks like {words}{IDLE}" if effective is False else f"looks like {words}"
    return replace(head, target=target, label=label, evidence="; ".join(_named(head, target, found[target], joint)))


def look_only(head: HeadScore, why: str) -> HeadScore:
    """Say what a head looks at where what it causes cannot be measured; `why` takes the place of its effect."""
    found = candidates(head)
    if not found:
        evidence = [*_unnamed(head, None)[:-1], why]
        return replace(head, target=None, label=shape_label(head), evidence="; ".join(evidence))
    target = max(found, key=lambda name: found[name].lift)
    evidence = [*_named(head, target, found[target], None)[:-1], why]
    label = f"looks like {words_for(target, found[target])}"
    return replace(head, target=target, label=label, evidence="; ".join(evidence))


def look_alikes(head: HeadScore, heads: Sequence[HeadScore]) -> list[HeadScore]:
    """List the other heads that look at the same target, where this one is taken for idle; they may do its work."""
    if head.label is None or not head.label.endswith(IDLE):
        return []
    at = head.scores[head.target or ""].distance
    same = [one for one in heads if one.target == head.target and one.scores[one.target or ""].distance == at]
    return [one for one in same if (one.layer, one.head) != (head.layer, head.head)]


def with_stand_ins(head: HeadScore, others: Sequence[HeadScore], delta: float) -> HeadScore:
    """Correct an idle head's label where its look-alikes do its work: with them spread evenly too, it costs `delta`."""
    if delta < ALONE or head.label is None:
        return head
    names = ", ".join(one.name for one in others)
    said = f"with its look-alikes ({names}) spread evenly, taking it as well changes the loss by {delta:+.3f} nats"
    return replace(head, label=head.label.removesuffix(IDLE) + SPARE, evidence=f"{head.evidence}; {said}")


def shape_label(head: HeadScore) -> str:
    """Describe a head that looks at nothing with a name."""
    if head.uniformity is not None and head.uniformity >= SPREAD:
        return "spread"
    return "sharp, unnamed" if head.confidence is not None and head.confidence >= SHARP else "undecided"


def _named(head: HeadScore, target: str, score: TargetScore, joint: float | None) -> list[str]:
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
    return [*parts, _effect(head, joint)]


def _bound(likeness: float) -> str:
    likeness = round(likeness, 2)  # as it is shown
    if likeness >= POSITIONAL:
        return "it goes by position"
    return "it goes mostly by position" if likeness >= MOSTLY else "it does not go by position alone"


def _unnamed(head: HeadScore, joint: float | None) -> list[str]:
    best = max(head.scores, key=lambda name: head.scores[name].lift, default=None)
    parts = []
    if best is not None:
        score = head.scores[best]
        parts.append(f"closest is {words_for(best, score)}, with lift {score.lift:.2f}{_why_no_name(score)}")
    if head.uniformity is not None and head.confidence is not None:
        parts.append(f"it is {head.uniformity:.2f} like an even head")
        parts.append(f"its largest weight is {head.confidence:.2f} on average")
    return [*parts, *_resemblance(head, None), _effect(head, joint)]


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
