"""Targets of attention patterns: for every query a set of keys, and the weight that a head has on it.

A query counts where its set is neither empty nor all visible keys.
lift = (s - u) / (1 - u), for a head's mean weight s on the set and the uniform head's u.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Target = Callable[[Tensor], Tensor]


class Score(NamedTuple):
    """A score: its target maps ids (B, T) to sets of keys (B or 1, T, T), boolean; `content` if it reads the ids."""

    target: Target
    content: bool = False


def at_distance(distance: int) -> Target:
    """Return the target {q - distance}."""

    def target(ids: Tensor) -> Tensor:
        T = ids.size(-1)
        return torch.eye(T, dtype=torch.bool, device=ids.device).roll(distance, 0).tril(-distance).unsqueeze(0)

    return target


def first_token(ids: Tensor) -> Tensor:
    """The first token: {0}, for every later query."""
    T = ids.size(-1)
    target = torch.zeros(1, T, T, dtype=torch.bool, device=ids.device)
    target[:, 1:, 0] = True
    return target


def duplicates(ids: Tensor) -> Tensor:
    """Earlier occurrences of the query's token: {k < q : x_k = x_q}."""
    return (ids.unsqueeze(-1) == ids.unsqueeze(-2)).tril(-1)


def followers(ids: Tensor) -> Tensor:
    """Tokens after earlier occurrences of the query's token: {j + 1 : j < q, x_j = x_q, j + 1 <= q}."""
    target = torch.zeros_like(duplicates(ids))
    target[..., 1:] = duplicates(ids)[..., :-1]  # j < q implies j + 1 <= q
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


class TargetWeights(NamedTuple):
    """A target as `weights` (B or 1, T, T): sum(A * weights) is the mean weight on it; `uniform`: a uniform head's."""

    weights: Tensor
    uniform: float


def target_weights(target: Tensor, visible: Tensor) -> TargetWeights | None:
    """Weight a target (B or 1, T, T) over all queries that count; None if there are none. `visible` is (T, T)."""
    target, size, n_keys, counts = _counted(target, visible)
    n = int(counts.sum())
    return TargetWeights(target.double() / n, float(((size / n_keys) * counts).sum() / n)) if n else None


def row_target_weights(targets: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Weight the target of each of G rows alone: (G, T, T) to weights (G, T, T) and the uniform head's mass (G,).

    Both are NaN where no query counts.
    """
    targets, size, n_keys, counts = _counted(targets, visible)
    n = counts.sum(-1).double()
    return targets.double() / n.view(-1, 1, 1), (size.double() / n_keys * counts).sum(-1) / n


def _counted(target: Tensor, visible: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the target of the queries that count, the sizes of the sets, the visible keys, and which queries count."""
    target = target & visible
    size, n_keys = target.sum(-1), visible.sum(-1)  # (B or 1, T), (T,)
    counts = (size > 0) & (size < n_keys)
    return target & counts.unsqueeze(-1), size, n_keys, counts


def min_queries(T: int) -> int:
    """Return the number of queries that an offset must leave: a mean over one or two is not reliable."""
    return max(2, T // 4)


def offset_uniforms(visible: Tensor) -> dict[int, float]:
    """Compute the uniform head's mass at every distance d >= 2 that leaves enough queries."""
    T, n_keys = visible.size(-1), visible.sum(-1).double()
    found = {}
    for d in range(2, T - min_queries(T) + 1):
        queries = visible.diagonal(-d)
        if bool(queries.any()):
            found[d] = float((1 / n_keys[d:])[queries].mean())
    return found


def lift_of(mass: Tensor, uniform: float | Tensor) -> Tensor:
    """Rescale the mean weight on a target: 0 is the uniform head, 1 all weight."""
    return (mass - uniform) / (1 - uniform)
