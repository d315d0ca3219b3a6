"""The replacement test: how much of a head's effect an ideal head of its label keeps.

An ideal head has all its weight on its target, evenly over the target's keys; a query without such a key is uniform.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.core.heads.causal import Ablator, Effect, ratio
from mhsa_cli.core.heads.causes import ALONE
from mhsa_cli.core.heads.labels import KEPT
from mhsa_cli.core.model.attention import uniform_weights
from mhsa_cli.records.claims import Status, judge
from mhsa_cli.records.labels import Label
from mhsa_cli.text import Head


def ideal_weights(target: Tensor, visible: Tensor) -> Tensor:
    """Return the weights of an ideal head of a target (B or 1, T, T), among visible keys (T, T), as float64."""
    keys = (target & visible).double()
    size = keys.sum(-1, keepdim=True)
    return torch.where(size > 0, keys / size.clamp(min=1), uniform_weights(visible, keys.dtype))


def mixed(ideals: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Average ideal weights in proportion to a head's weight on each."""
    total = sum(weights)
    parts = [ideal * (weight / total) for ideal, weight in zip(ideals, weights, strict=True)]
    return sum(parts[1:], parts[0])


def set_patterns(ablator: Ablator, ideals: Mapping[Head, Tensor]) -> None:
    """Let the ablation "pattern" give these heads weights (B or 1, T, T), and every other one uniform weights."""
    B, T = ablator.inputs.shape
    ablator.patterns = []
    for layer, attn in enumerate(ablator.model.attention):
        weights = ablator.uniform[layer].expand(B, attn.n_heads, T, T).clone()
        for head, ideal in ideals.items():
            if head.layer == layer:
                weights[:, head.head] = ideal.to(weights)
        ablator.patterns.append(weights)


def part_kept(full: Tensor, without: Tensor, ideal: Tensor) -> Effect:
    """Compute (without - ideal) / (without - full) from loss sums by row (B,), with its standard error."""
    found, errors = ratio((without - ideal).unsqueeze(0), without - full)
    return Effect(found[0], errors[0])


class Trial(NamedTuple):
    """A label that a head may have, with the weights of an ideal head of it (B or 1, T, T).

    `besides` are further targets, each with its part of the weight left, that the ideal head attends to as well.
    """

    label: Label
    ideal: Tensor
    besides: Sequence[tuple[Label, float]] = ()


class Tried(NamedTuple):
    """The trial chosen for a head, and the part of its effect that the ideal keeps; None where that has no meaning."""

    trial: Trial
    kept: Effect | None


def try_labels(
    ablator: Ablator, trials: Mapping[Head, Sequence[Trial]], backups: Mapping[Head, Sequence[Head]]
) -> dict[Head, Tried]:
    """Choose for every head the first label whose ideal keeps its effect, or the one that keeps most.

    A head is tested with its `backups` uniform. Without a shown effect there, or where the budget is spent, the first
    label stays.
    """
    chosen = {}
    for head, own in trials.items():
        if not ablator.spend(2 + len(own)):
            chosen[head] = Tried(own[0], None)
            continue
        rest = backups.get(head, ())
        full, without = ablator.uniform_rows([rest, [*rest, head]])
        worth = ablator.means((without - full).unsqueeze(0))[0]
        if judge(*worth, ALONE, len(ablator.heads)) is not Status.SHOWN:
            chosen[head] = Tried(own[0], None)
            continue
        chosen[head] = _best(ablator, head, own, ablator.masks([[*rest, head]]), full, without)
    return chosen


def _best(ablator: Ablator, head: Head, trials: Sequence[Trial], mask: Tensor, full: Tensor, without: Tensor) -> Tried:
    found = []
    for trial in trials:
        set_patterns(ablator, {head: trial.ideal})
        ideal = ablator.ablated_rows("pattern", mask)[0]
        found.append(Tried(trial, part_kept(full, without, ideal)))
        if found[-1].kept is not None and found[-1].kept.delta >= KEPT:
            return found[-1]
    return max(found, key=lambda one: -1.0 if one.kept is None else one.kept.delta)


def kept_together(ablator: Ablator, ideals: Mapping[Head, Tensor]) -> Effect | None:
    """Compute the part of the joint effect that these ideal heads keep while every other head is uniform."""
    if not ideals or not ablator.spend(2):
        return None
    set_patterns(ablator, ideals)
    nothing, ideal = (
        ablator.uniform_rows([ablator.heads]),
        ablator.ablated_rows("pattern", ablator.masks([ablator.heads])),
    )
    return part_kept(ablator.clean_rows, nothing[0], ideal[0])
