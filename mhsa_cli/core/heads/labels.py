"""Labels of heads from their figures. Plain Python: no model is needed."""

from __future__ import annotations

from collections.abc import Mapping

from mhsa_cli.records.claims import Status, judge
from mhsa_cli.records.heads import HeadScore, TargetScore
from mhsa_cli.records.labels import ROLE_TARGETS, Extent, Label, Role

LIFT = 0.5  # the least lift on a target that labels a head
COMMON = 0.5  # a target on which a uniform head has this weight labels no head
GENERAL_GAPS = 3  # unseen distances that a content-based label needs
NEAR_UNIFORM, FOCUSED = 0.9, 0.5
KEPT, PART = 0.8, 0.2  # the least part of its effect that an ideal head keeps: the whole label, a partial one
# A target that contains others is tried before them only if its lift exceeds theirs by MARGIN.
WIDER = {"same": ("self", "duplicate"), "modulo": ("previous", "self", "offset")}
MARGIN = 0.25


def generalises(gaps: Mapping[int, float], least: float = LIFT) -> bool:
    """Whether a head finds its target at every unseen distance tested, and enough were tested."""
    return len(gaps) >= GENERAL_GAPS and min(gaps.values()) >= least


def limit_of(score: TargetScore) -> float | None:
    """Return the larger of both nulls, as far as measured; None without that of untrained heads."""
    return None if score.null is None else max(score.null, score.random_null or 0.0)


def exceeds_nulls(score: TargetScore) -> bool:
    """Whether a lift is above that of untrained heads and of random heads in the same model, as far as measured."""
    limit = limit_of(score)
    return limit is not None and score.lift > limit


def confirmed(head: HeadScore, name: str) -> bool:
    """Whether a target is not one of content, or the head finds it at every unseen distance too."""
    if name == "induction":
        return generalises(head.unseen_gaps)
    if name == "same":  # half of its weight is on the token itself
        return generalises(head.duplicate_gaps, LIFT / 2)
    return name != "duplicate" or generalises(head.duplicate_gaps)


def attends_answer(head: HeadScore) -> bool:
    """Whether a head's weight on the answer would label it, if nothing else did."""
    score = head.scores.get("answer")
    return score is not None and score.lift >= LIFT and exceeds_nulls(score)


def candidates(head: HeadScore, seq_len: int) -> list[str]:
    """Return the targets that may label a head, the first to be tried first.

    Each has enough lift, above both nulls, and is confirmed by content: a head that finds repeats at trained distances
    only is positional. Mechanisms come by their lift; then targets that contain them; then what a key is to the task;
    last an offset that few queries have.
    """
    found = {
        name: score
        for name, score in head.scores.items()
        if score.lift >= LIFT and score.uniform < COMMON and exceeds_nulls(score) and confirmed(head, name)
    }
    if "modulo" in found and not _repeats(found["modulo"], seq_len):
        del found["modulo"]
    if {"induction", "duplicate"} & found.keys():
        for name in ("offset", "modulo"):
            found.pop(name, None)  # repeats at one distance of training

    def rank(name: str) -> tuple[int, float]:
        lift = found[name].lift
        if name == "offset" and abs(found[name].distance or 0) > seq_len - max(2, seq_len // 4):
            return 4, -lift
        if name in ROLE_TARGETS:
            return 3, -lift
        if name in WIDER:
            least = max((found[other].lift for other in WIDER[name] if other in found), default=-1.0) + MARGIN
            return (0 if lift >= least else 2), -lift
        return 1, -lift

    return sorted(found, key=rank)  # ties: the order of the scores


def _repeats(score: TargetScore, seq_len: int) -> bool:
    """Whether an offset modulo a period meets three keys in a row, and scored queries attend to it too."""
    last = (score.distance or 0) + 2 * (score.period or 0)
    return last < seq_len and (score.scored is None or score.scored >= LIFT)


def labels_of(head: HeadScore, role: Role, seq_len: int) -> list[Label]:
    """Return the labels that a head may have, the first to be tried first: targets, or the shape of its pattern."""
    found = candidates(head, seq_len)
    return [label_on(name, head.scores[name], role) for name in found] or [shape_label(head)]


def label_on(target: str, score: TargetScore, role: Role = Role.SHOWN) -> Label:
    """Return the label of a target, with its numbers."""
    return Label(target, role, score.distance, score.period, score.token)


def shape_label(head: HeadScore) -> Label:
    """Label a head that attends to no known target."""
    if head.uniformity is not None and head.uniformity >= NEAR_UNIFORM:
        return Label("near-uniform")
    return Label("focused" if head.confidence is not None and head.confidence >= FOCUSED else "unclear")


def extent_of(kept: float, se: float, looks: int) -> Extent | None:
    """Say how much of its effect a label accounts for, by the part that an ideal head keeps; None is all of it."""
    if kept >= KEPT:
        return None
    shown = judge(kept, se, PART, looks) is Status.SHOWN
    return Extent.PARTLY if shown else Extent.ELSEWHERE
