"""Families of targets, of which a head's best is reported: offsets, offsets modulo a period, constant tokens.

The members of a family differ by a number. Their masses are computed together: those of distances from sums along the
diagonals of the mean map, those of tokens from sums along the columns of every map. A member on which a uniform head
has COMMON of its weight is left out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mhsa_cli.core.heads.labels import COMMON
from mhsa_cli.core.heads.targets import lift_of
from mhsa_cli.core.model.attention import uniform_weights

MAX_MEMBERS = 2**18  # masses of a family's members that are compared together: more do not fit in a processor's cache


class Numbers(NamedTuple):
    """The numbers of one target; see `targets.Numbered`."""

    distance: int | None
    period: int | None
    token: int | None


class Lift(NamedTuple):
    """N heads' mean weight on a target (N,), the lift, and the uniform head's mass.

    For families, also the numbers of each head's best member (N,); for offsets, the lifts (N,) by distance.
    """

    mass: Tensor
    lift: Tensor
    uniform: Tensor
    distance: Tensor | None = None
    period: Tensor | None = None
    token: Tensor | None = None
    by_distance: dict[int, Tensor] | None = None

    def numbers(self, head: int) -> Numbers:
        """Return the numbers of one head's target."""
        own = (self.distance, self.period, self.token)
        return Numbers(*(None if values is None else int(values[head]) for values in own))

    def or_better(self, other: Lift) -> Lift:
        """Keep for each head the member with the larger lift, of these and the `other` ones."""
        larger = other.lift > self.lift
        mass, lift, uniform = (torch.where(larger, new, old) for old, new in zip(self[:3], other[:3], strict=True))
        distance, period, token = (
            None if old is None or new is None else torch.where(larger, new, old)
            for old, new in zip(self[3:6], other[3:6], strict=True)
        )
        return Lift(mass, lift, uniform, distance, period, token)


class Distances(NamedTuple):
    """For each of n distances how many `queries` see it, and a uniform head's weight there, summed; all (n,).

    `values` are 0..T-1, and -1..-(T-1), ahead of the query, where one sees a later key. `enough`: whether these queries
    are a quarter of all, at least two, or of those that are scored. A mean over fewer says little of a head.
    """

    values: Tensor
    queries: Tensor
    uniform: Tensor
    enough: Tensor

    @property
    def T(self) -> int:  # noqa: N802
        """The number of tokens in a row."""
        return int(self.values.amax()) + 1

    @property
    def near(self) -> int:
        """The largest distance back that a quarter of all queries see."""
        return int((self.queries[1 : self.T] >= _quarter(self.T)).sum())


def _quarter(T: int) -> int:
    return max(2, T // 4)


def distances_of(visible: Tensor, scored: Tensor) -> Distances:
    """Count the queries at every distance for `visible` keys (T, T) and `scored` queries (B, T)."""
    uniform, each = uniform_weights(visible, torch.float64), scored.sum(0).unsqueeze(-1)
    queries, scored_queries = by_distance(visible, visible), by_distance(visible * each, visible)
    quarter = torch.where(scored_queries > 0, 4 * scored_queries >= scored_queries.amax(), False)
    enough = (queries >= _quarter(len(visible))) | quarter
    return Distances(distance_values(visible), queries, by_distance(uniform, visible), enough)


def sees_ahead(visible: Tensor) -> bool:
    """Return whether a query of a mask (T, T) sees a later key."""
    return bool(visible.triu(1).any())


def distance_values(visible: Tensor) -> Tensor:
    """List the distances of a mask (T, T): 0..T-1, and -1..-(T-1) where a query sees a later key."""
    back = torch.arange(len(visible))
    return torch.cat([back, -back[1:]]) if sees_ahead(visible) else back


def by_distance(maps: Tensor, visible: Tensor) -> Tensor:
    """Sum maps (..., T, T) over all pairs of query and key at each of the n distances: (..., n), float64 on the CPU.

    Queries with one visible key have no choice and are left out.
    """
    return seen_distances(along_diagonals(maps.double() * with_choice(visible).to(maps.device)), visible)


def with_choice(visible: Tensor) -> Tensor:
    """Return which queries of a mask (..., T) see more than one key, (..., 1)."""
    return visible.sum(-1, keepdim=True) > 1


def along_diagonals(maps: Tensor) -> Tensor:
    """Sum maps (..., R, K) over the pairs at each distance q - k: those from 1 - K to R - 1, (..., K + R - 1)."""
    R, K = maps.shape[-2:]
    # Keys reversed, and each row one place further right than the row above: every column holds one distance.
    return F.pad(maps.flip(-1), (0, R)).flatten(-2)[..., :-R].unflatten(-1, (R, K + R - 1)).sum(-2)


def seen_distances(sums: Tensor, visible: Tensor) -> Tensor:
    """Order the sums of all distances (..., 2T - 1) as `distance_values`: (..., n), on the CPU."""
    sums, T = sums.cpu(), len(visible)
    back, ahead = sums[..., T - 1 :], sums[..., : T - 1].flip(-1)
    return torch.cat([back, ahead], -1) if sees_ahead(visible) else back


def best_offset(sums: Tensor, of: Distances) -> Lift | None:
    """Find each head's best offset, of the distances that enough queries see, from its sums `by_distance` (N, n)."""
    place = ((of.values != 0) & (of.values != 1) & (of.queries > 0)).nonzero().squeeze(1)
    place = place[of.values[place].abs().argsort(stable=True)]  # the nearest first, back before ahead
    queries, distances = of.queries[place], of.values[place]
    mass, uniform = sums[:, place].T / queries.unsqueeze(1), of.uniform[place] / queries
    found = best(mass, uniform, of.enough[place], distance=distances)
    if found is None:
        return None
    each = lift_of(mass, uniform.unsqueeze(1)).unbind(0)
    return found._replace(by_distance=dict(zip(distances.tolist(), each, strict=True)))


def best_modulo(sums: Tensor, of: Distances) -> Lift | None:
    """Find each head's best offset back modulo a period from its sums `by_distance` (N, n).

    A quarter of the queries must see at least two of its keys.
    """
    rows, near = torch.cat([sums, of.uniform.unsqueeze(0)])[:, : of.T], of.near
    at_once = max(1, MAX_MEMBERS // (len(rows) * max(1, near)))
    found: Lift | None = None
    for longest in range(near, 1, -at_once):  # of equal lifts the first counts: the longest period says most
        mass, distances, periods = [], [], []
        for period in range(longest, max(1, longest - at_once), -1):
            n = min(period, near - period + 1)
            total = F.pad(rows, (0, -of.T % period)).unflatten(-1, (-1, period)).sum(-2)[:, :n]
            mass.append(total / of.queries[:n])
            distances.append(torch.arange(n))
            periods.append(torch.full((n,), period))
        both = torch.cat(mass, 1)
        part = best(both[:-1].T, both[-1], distance=torch.cat(distances), period=torch.cat(periods))
        if part is not None:
            found = part if found is None else found.or_better(part)
    return found


class Tokens(NamedTuple):
    """E constant tokens: `ids` (E,), and their `places` in the rows, (B, T, E).

    `queries` (B, T) see different tokens: the others have no choice. `seen_by` (E,): how many of them see each token;
    `uniform` (E,): a uniform head's mean weight there.
    """

    ids: Tensor
    places: Tensor
    queries: Tensor
    seen_by: Tensor
    uniform: Tensor


def tokens_of(ids: Tensor, visible: Tensor, besides: int | None) -> Tokens:
    """Find the tokens of rows (B, T), except `besides`, that a quarter of the queries with a choice see."""
    queries = ((ids.unsqueeze(1) != ids.unsqueeze(2)) & visible).any(-1)
    found, index = ids.unique(return_inverse=True)
    rows = torch.zeros(len(ids), len(found), dtype=torch.bool).scatter_(1, index, True).sum(0)
    found = found[(4 * rows >= len(ids)) & (found != (-1 if besides is None else besides))]  # others: too few rows
    places = (ids.unsqueeze(-1) == found).double()
    times = (visible.double() @ places) * queries.unsqueeze(-1)  # that each query sees each, (B, T, E)
    seen_by, uniform = (times > 0).sum((0, 1)), (times / visible.sum(-1, keepdim=True)).sum((0, 1))
    kept = 4 * seen_by >= queries.sum().clamp(min=1)
    return Tokens(found[kept], places[..., kept], queries, seen_by[kept], (uniform / seen_by)[kept])


def best_token(columns: Tensor, of: Tokens) -> Lift | None:
    """Find each head's best constant token from its weight on every key, summed over `queries`: (B, N, T), float64."""
    mass = torch.einsum("bnk,bke->en", columns, of.places) / of.seen_by.unsqueeze(1)
    return best(mass, of.uniform, token=of.ids)


def best(mass: Tensor, uniform: Tensor, enough: Tensor | None = None, **numbers: Tensor) -> Lift | None:
    """Find each head's member of largest lift: masses (M, N) of M members, a uniform head's (M,), and their numbers.

    Only of members that `enough` queries see, (M,).
    """
    usable = uniform < COMMON
    usable = usable if enough is None else usable & enough
    if not bool(usable.any()):
        return None
    lift = lift_of(mass, uniform.unsqueeze(1))
    top = lift.nan_to_num(-1.0).masked_fill(~usable.unsqueeze(1), -math.inf).argmax(0)  # (N,); ties: the first
    own, head = {name: values[top] for name, values in numbers.items()}, torch.arange(len(top))
    figures = mass[top, head], lift[top, head], uniform[top]
    return Lift(*figures, own.get("distance"), own.get("period"), own.get("token"))
