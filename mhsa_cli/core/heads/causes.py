"""What a head's pattern does to the loss, decided from its ablations. Plain Python: no model is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mhsa_cli.records.claims import Status, judge
from mhsa_cli.records.heads import HeadScore, Interaction
from mhsa_cli.records.labels import Role
from mhsa_cli.text import Head

JOINT = 0.05  # nats: below this joint effect shares have no meaning
ALONE, SHARE = 0.01, 0.05  # the least effect of a head: nats alone, or a share of the joint effect
CANCELS = 0.1  # two heads cancel if both uniform cost less than this part of the smaller single effect


def effect_status(head: HeadScore, way: str, looks: int) -> Status:
    """Judge the effect of ablating this head alone: SHOWN if the loss rises."""
    found = head.effect(way)
    return Status.NOT_MEASURED if found is None else judge(*found, ALONE, looks)


def share_status(head: HeadScore, joint: float | None, looks: int) -> Status:
    """Judge a head's Shapley value, at least SHARE of the joint effect."""
    if joint is None or joint < JOINT:
        return Status.NOT_MEASURED
    return judge(head.shapley_nats, head.shapley_se, SHARE * joint, looks)


def role_of(head: HeadScore, joint: float | None, looks: int, cancelled: bool, against: float | None) -> Role:
    """Decide what a head does. `joint` is the joint effect if it was shown, `looks` the number of heads.

    `cancelled`: another head undoes its effect; `against`: its mean direct effect on the answer's logit.
    """
    alone = effect_status(head, "uniform", looks)
    if alone is Status.NOT_MEASURED:
        return Role.PATTERN
    if cancelled:
        return Role.CANCELS
    if Status.SHOWN in (alone, share_status(head, joint, looks)):
        return Role.SHOWN
    zero = effect_status(head, "zero", looks)
    if alone is Status.OPPOSITE:
        return Role.SUPPRESSES if zero is Status.OPPOSITE and (against or 0.0) < 0 else Role.HARMFUL
    return Role.OUTPUT if zero in (Status.SHOWN, Status.OPPOSITE) else Role.NO_EFFECT


def cancelling(singles: Mapping[Head, float], pairs: Mapping[tuple[Head, Head], float]) -> dict[Head, Head]:
    """Find the heads whose effect another one undoes: uniform alone each costs loss, uniform together they do not.

    `singles` are the shown costs of one head uniform, `pairs` those of two.
    """
    found = {}
    for (first, second), both in pairs.items():
        if first in singles and second in singles and abs(both) < CANCELS * min(singles[first], singles[second]):
            found[first], found[second] = second, first
    return found


def backups(head: HeadScore, heads: Sequence[HeadScore], pairs: Iterable[Interaction]) -> list[HeadScore]:
    """Find the heads that may do the work of a head without an effect alone.

    They interact with it below 0; where interactions were not measured, they have its label.
    """
    known = list(pairs)
    if known:
        looks = len(known)
        names = {
            pair.second if pair.first == head.address else pair.first
            for pair in known
            if head.address in (pair.first, pair.second) and judge(pair.nats, pair.se, ALONE, looks) is Status.OPPOSITE
        }
        return [other for other in heads if other.address in names]
    if head.label is None or head.label.target is None:
        return []
    same = [other for other in heads if other.label is not None and other.label.plain == head.label.plain]
    return [other for other in same if other.address != head.address]
