"""The pictures that heads are held against: for every query a set of keys, and how much of a head's weight lies on it.

A query counts where its set is neither empty nor all that it sees.
lift = (s - u) / (1 - u), for the mean weight s on the set and the uniform head's u.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Picture = Callable[[Tensor], Tensor]


class Score(NamedTuple):
    """One score by its target: ids (B, T) to the set of keys (B or 1, T, T), boolean.

    `content`: the set depends on the tokens, not on positions alone.
    """

    target: Picture
    content: bool = False


def at_distance(distance: int) -> Picture:
    """Look `distance` positions back: {q - distance}."""

    def target(ids: Tensor) -> Tensor:
        T = ids.size(-1)
        return torch.eye(T, dtype=torch.bool, device=ids.device).roll(distance, 0).tril(-distance).unsqueeze(0)

    return target


def first_token(ids: Tensor) -> Tensor:
    """Look at the first token: {0}, from every later query."""
    T = ids.size(-1)
    target = torch.zeros(1, T, T, dtype=torch.bool, device=ids.device)
    target[:, 1:, 0] = True
    return target


def duplicates(ids: Tensor) -> Tensor:
    """Look at earlier occurrences of the query's token: {k < q : x_k = x_q}."""
    return (ids.unsqueeze(-1) == ids.unsqueeze(-2)).tril(-1)


def followers(ids: Tensor) -> Tensor:
    """Look at what followed earlier occurrences of the query's token: {j + 1 : j < q, x_j = x_q, j + 1 <= q}."""
    target = torch.zeros_like(duplicates(ids))
    target[..., 1:] = duplicates(ids)[..., :-1]  # j + 1 <= q holds because j < q
    return target


# The offset score is the best of at_distance(d) for d >= 2; its target stands here with the smallest one.
SCORES: dict[str, Score] = {
    "previous": Score(at_distance(1)),
    "self": Score(at_distance(0)),
    "first": Score(first_token),
    "offset": Score(at_distance(2)),
    "duplicate": Score(duplicates, content=True),
    "induction": Score(followers, content=True),
}


class Aim(NamedTuple):
    """A target to hold heads against: `share` (B or 1, T, T) sums to one, `uniform` is the uniform head's mass."""

    share: Tensor
    uniform: float


def aim(target: Tensor, visible: Tensor) -> Aim | None:
    """Weigh a target (B or 1, T, T) so that sum(A * share) is the mean weight on it over the rows that count.

    `visible` (T, T) says which keys each query sees. Returns None if no row counts.
    """
    target = target & visible
    size, seen = target.sum(-1), visible.sum(-1)  # keys in the set (B or 1, T); keys in sight (T,)
    counts = (size > 0) & (size < seen)
    n = int(counts.sum())
    if n == 0:
        return None
    share = (target & counts.unsqueeze(-1)).double() / n
    uniform = float(((size / seen) * counts).sum() / n)
    return Aim(share, uniform)


def min_queries(T: int) -> int:
    """Count the queries that a distance must leave: a mean over one or two rows says little about a head."""
    return max(2, T // 4)


def aims_by_row(targets: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Aim at the target of each of G rows alone: (G, T, T) to shares (G, T, T) and a uniform head's mass (G,).

    Both are NaN where no query counts.
    """
    targets = targets & visible
    size, seen = targets.sum(-1), visible.sum(-1)  # (G, T), (T,)
    counts = (size > 0) & (size < seen)
    n = counts.sum(-1).double()
    share = (targets & counts.unsqueeze(-1)).double() / n.view(-1, 1, 1)
    return share, (size.double() / seen * counts).sum(-1) / n


def offset_uniforms(visible: Tensor) -> dict[int, float]:
    """Give the uniform head's mass at every distance d >= 2 that leaves enough queries, by distance."""
    T, seen = visible.size(-1), visible.sum(-1).double()
    found = {}
    for d in range(2, T - min_queries(T) + 1):
        there = visible.diagonal(-d)
        if bool(there.any()):
            found[d] = float((1 / seen[d:])[there].mean())
    return found


def lift_of(mass: Tensor, uniform: float | Tensor) -> Tensor:
    """Rescale the mean weight on a target so that 0 is the uniform head and 1 all weight."""
    return (mass - uniform) / (1 - uniform)
