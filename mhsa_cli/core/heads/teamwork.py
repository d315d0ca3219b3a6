"""Heads that back each other up, and heads that need each other, from groups of heads made uniform. Plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from mhsa_cli.core.heads.causal import Effect
from mhsa_cli.core.heads.causes import effect_status
from mhsa_cli.records.claims import Claim, Predicate, Status, judge
from mhsa_cli.records.heads import HeadScore
from mhsa_cli.records.labels import Role
from mhsa_cli.text import Head

MOST = 3  # statements of each kind
NEEDS = 0.3  # both uniform cost less than the larger single effect and this part of the smaller one
BACKED = 0.5  # the single effects sum to less than this part of what all of a group cost
WORKING = (Role.SHOWN, Role.REDUNDANT)


def groups_of(heads: Sequence[HeadScore]) -> list[list[Head]]:
    """Return the groups to make uniform together: the working heads of each label, then every two working heads."""
    working = [head for head in heads if head.role in WORKING]
    labels: dict[str, list[Head]] = {}
    for head in working:
        if head.label is not None and head.label.target is not None:
            labels.setdefault(head.label.plain.id, []).append(head.address)
    alike = [group for group in labels.values() if len(group) > 2]
    return alike + [[a.address, b.address] for a, b in combinations(working, 2)]


def teamwork(
    heads: Sequence[HeadScore], together: Mapping[tuple[Head, ...], Effect], gap: float, least: float
) -> list[Claim]:
    """State which groups back each other up and which pairs need each other, the strongest first.

    `together` is the cost of each group uniform; `gap` is what a model at chance level would lose, beyond which a loss
    no longer measures work. A cost below `least` states nothing.
    """
    by_name = {head.address: head for head in heads}
    backs: list[Claim] = []
    needs: list[Claim] = []
    for group, effect in sorted(together.items(), key=lambda item: (-len(item[0]), -item[1].delta)):
        members = [by_name[head] for head in group]
        singles = [head.uniform_delta_nats or 0.0 for head in members]
        names = {str(head): single for head, single in zip(group, singles, strict=True)}
        if judge(*effect, least, len(together)) is not Status.SHOWN:
            continue
        if sum(singles) < BACKED * min(effect.delta, gap):
            if not any(set(names) < set(claim.evidence["singles"]) for claim in backs):
                backs.append(_claim("back each other up", names, effect))
        elif _need(members, singles, effect, least, len(heads)):
            needs.append(_claim("need each other", names, effect))
    return [*backs[:MOST], *needs[:MOST]]


def _need(members: Sequence[HeadScore], singles: Sequence[float], both: Effect, least: float, looks: int) -> bool:
    """Whether either of two heads uniform costs about what both cost."""
    shown = all(h.role is Role.SHOWN and effect_status(h, "uniform", looks) is Status.SHOWN for h in members)
    return len(members) == 2 and shown and min(singles) >= least and both.delta < max(singles) + NEEDS * min(singles)


def _claim(name: Predicate, singles: Mapping[str, float], effect: Effect) -> Claim:
    return Claim("model", name, effect.delta, effect.se, evidence={"heads": list(singles), "singles": dict(singles)})
