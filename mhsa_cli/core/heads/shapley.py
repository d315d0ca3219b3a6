"""What each head's pattern is worth: Shapley values, and the interaction of every two heads.

A coalition is the set of heads that keep their pattern; the others are uniform. Its value is minus the loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.core.heads.causal import Ablator, Effect, ratio
from mhsa_cli.core.tasks.base import stream_generator

EXACT_TO = 10  # heads up to which all 2^n coalitions are measured
ORDERS, MOST_ORDERS = 64, 2048  # orders drawn at first and at most
PRECISE = 0.01  # of the sum of all values: the standard error that more orders are drawn for


class Shapley(NamedTuple):
    """Each head's Shapley value in nats, with its error over the rows (and over the orders, where they were sampled).

    `shares` are the values over their sum. `pairs` are the interactions of heads (i, j), i < j: above 0 they are worth
    more together than alone. `rows` are the ablator's `coalitions`; None if not all were measured. `order_error` is the
    largest error over the orders alone.
    """

    values: list[Effect]
    shares: list[Effect]
    pairs: dict[tuple[int, int], Effect]
    rows: Tensor | None
    order_error: float = 0.0


def exact_shapley(ablator: Ablator) -> Shapley | None:
    """Compute Shapley values and interactions from all coalitions; None if there are too many.

    The values sum to the loss with uniform attention everywhere minus the clean loss. Sources: Shapley 1953; Grabisch
    and Roubens 1999 (the interaction index).
    """
    n = len(ablator.heads)
    if n > EXACT_TO or not ablator.spend(2**n):
        return None
    members = ((torch.arange(2**n).unsqueeze(1) >> torch.arange(n)) & 1).bool()  # (2^n, n)
    rows = ablator.coalitions = ablator.ablated_rows("uniform", ~members)
    names, weights = pair_weights(members)
    return _shapley(ablator, -value_weights(members) @ rows, dict(zip(names, -weights @ rows, strict=True)), rows)


def value_weights(members: Tensor) -> Tensor:
    """Return the weight of every coalition, members (2^n, n), in every head's Shapley value: (n, 2^n), float64."""
    n = members.size(1)
    size = members.sum(1)
    weights = torch.tensor([1 / (n * math.comb(n - 1, k)) for k in range(n)], dtype=torch.float64)
    inside, outside = weights[(size - 1).clamp(min=0)], weights[size.clamp(max=n - 1)]
    return torch.where(members, inside.unsqueeze(1), -outside.unsqueeze(1)).T


def pair_weights(members: Tensor) -> tuple[list[tuple[int, int]], Tensor]:
    """Return the pairs of heads, and the weight of every coalition in each pair's interaction: (pairs, 2^n)."""
    n = members.size(1)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    if not pairs:
        return [], torch.zeros(0, len(members), dtype=torch.float64)
    weights = torch.tensor([1 / ((n - 1) * math.comb(n - 2, k)) for k in range(n - 1)], dtype=torch.float64)
    i, j = torch.tensor(pairs).T
    both = members[:, i].long() + members[:, j].long()  # (2^n, pairs)
    others = (members.sum(1, keepdim=True) - both).clamp(max=n - 2)
    return pairs, (torch.where(both == 1, -1.0, 1.0) * weights[others]).T


def precise_shapley(ablator: Ablator, seed: int) -> Shapley | None:
    """Estimate Shapley values from as many orders as make their error over the orders PRECISE."""
    count, found = ORDERS, sampled_shapley(ablator, seed, ORDERS)
    while found is not None and count < MOST_ORDERS:
        total = abs(sum(one.delta for one in found.values))
        if found.order_error <= PRECISE * total:
            break
        count *= 2
        found = sampled_shapley(ablator, seed, count) or found
    return found


def sampled_shapley(ablator: Ablator, seed: int, count: int) -> Shapley | None:
    """Estimate Shapley values from `count` random orders; without interactions. None if that exceeds the budget.

    Source: Castro, Gomez and Tejada 2009.
    """
    n, B = len(ablator.heads), len(ablator.counts)
    if not ablator.spend(count * (n + 1)):
        return None
    generator = stream_generator(seed, "shapley", n)
    orders = torch.stack([torch.randperm(n, generator=generator) for _ in range(count)])
    rank = orders.argsort(1)  # (count, n): each head's place in the order
    active = rank.unsqueeze(1) < torch.arange(n + 1).view(1, -1, 1)  # (count, n + 1, n)
    rows = ablator.ablated_rows("uniform", ~active.flatten(0, 1)).view(count, n + 1, B)
    gains = (-rows.diff(dim=1)).gather(1, rank.unsqueeze(-1).expand(-1, -1, B))  # (count, n, B), by head
    found = _shapley(ablator, gains.mean(0), {}, None)
    errors = gains.sum(-1).std(0) / math.sqrt(count) / ablator.counts.sum()
    pairs = zip(found.values, errors.tolist(), strict=True)
    values = [Effect(one.delta, math.hypot(one.se, error)) for one, error in pairs]
    total = sum(one.delta for one in values)
    shares = [Effect(one.delta / total, one.se / abs(total)) for one in values] if total else found.shares
    return found._replace(values=values, shares=shares, order_error=float(errors.max()))


def _shapley(ablator: Ablator, by_row: Tensor, pairs: dict[tuple[int, int], Tensor], rows: Tensor | None) -> Shapley:
    """Average values by row (n, B) and interactions by row (B,)."""
    shares, errors = ratio(by_row, by_row.sum(0))
    found = ablator.means(torch.stack(list(pairs.values()))) if pairs else []
    return Shapley(
        ablator.means(by_row),
        [Effect(*pair) for pair in zip(shares, errors, strict=True)],
        dict(zip(pairs, found, strict=True)),
        rows,
    )


def redundancy(singles: Sequence[float], joint: float) -> float:
    """Compute the part of the joint effect that single ablations miss: 1 if every head is backed up, < 0 synergy."""
    return 1 - sum(singles) / joint


def effective_heads(shares: Sequence[float]) -> float:
    """Compute the effective number of heads: exp of the entropy of the Shapley values, negative ones counted as 0."""
    kept = [max(share, 0.0) for share in shares]
    total = sum(kept)
    if total <= 0:
        return 0.0
    return math.exp(-sum(s / total * math.log(s / total) for s in kept if s > 0))
