"""Targets of attention patterns: for every query a set of keys, and the weight that a head has on it.

Only visible keys count: in a causal model those up to the query. A query counts where its set of them is neither empty
nor all.
lift = (s - u) / (1 - u), for a head's mean weight s on the set and the uniform head's u.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from mhsa_cli.core.tasks import Task

Target = Callable[[Tensor], Tensor]  # ids (B, T) to sets of keys (B or 1, T, T), boolean


class Numbered(Protocol):
    """The numbers that tell the targets of one name apart; a label and a score have them."""

    @property
    def distance(self) -> int | None: ...
    @property
    def period(self) -> int | None: ...
    @property
    def token(self) -> int | None: ...


def at_distance(distance: int) -> Target:
    """Return the target {q - distance}."""
    return lambda ids: (_distances(ids) == distance).unsqueeze(0)


def at_distances(distance: int, period: int) -> Target:
    """Return the target {q - distance - j * period : j >= 0}."""

    def target(ids: Tensor) -> Tensor:
        beyond = _distances(ids) - distance
        return ((beyond >= 0) & (beyond % period == 0)).unsqueeze(0)

    return target


def _distances(ids: Tensor) -> Tensor:
    """Return q - k for every query and key, (T, T)."""
    t = torch.arange(ids.size(-1), device=ids.device)
    return t.unsqueeze(1) - t


def first_token(ids: Tensor) -> Tensor:
    """The first token: {0}, for every later query."""
    T = ids.size(-1)
    target = torch.zeros(1, T, T, dtype=torch.bool, device=ids.device)
    target[:, 1:, 0] = True
    return target


def duplicates(ids: Tensor) -> Tensor:
    """Other occurrences of the query's token: {k != q : x_k = x_q}."""
    return same_token(ids) & (_distances(ids) != 0)


def followers(ids: Tensor) -> Tensor:
    """Tokens after earlier occurrences of the query's token: {j + 1 : j < q, x_j = x_q, j + 1 <= q}."""
    return F.pad(same_token(ids).tril(-1), (1, -1))  # j < q implies j + 1 <= q


def same_token(ids: Tensor) -> Tensor:
    """All occurrences of the query's token, itself included: {k : x_k = x_q}."""
    return ids.unsqueeze(-1) == ids.unsqueeze(-2)


def token(number: int) -> Target:
    """Return the target {k : x_k = number}."""
    return lambda ids: (ids == number).unsqueeze(-2).expand(*ids.shape, ids.size(-1))


def answer(task: Task) -> Target:
    """Return the keys that hold the answer of a task; none where it has no such keys."""

    def target(ids: Tensor) -> Tensor:
        found = task.source(ids)
        return torch.zeros_like(_distances(ids), dtype=torch.bool).unsqueeze(0) if found is None else found

    return target


class Score(NamedTuple):
    """A score: its target, None where `target_of` makes it; `content` if it reads the ids."""

    target: Target | None
    content: bool = False


# In the order of records.labels.TARGETS. The best offset, offset modulo a period and token are reported.
SCORES: dict[str, Score] = {
    "previous": Score(at_distance(1)),
    "self": Score(at_distance(0)),
    "first": Score(first_token),
    "offset": Score(None),
    "duplicate": Score(duplicates, content=True),
    "induction": Score(followers, content=True),
    "same": Score(same_token, content=True),
    "modulo": Score(None),
    "answer": Score(None, content=True),
    "separator": Score(None, content=True),
    "token": Score(None, content=True),
}


def target_of(name: str, numbers: Numbered, task: Task) -> Target:
    """Return the target of a score or a label: `name` is its id, `numbers` holds its distance, period or token.

    Raises: KeyError for an unknown name, ValueError without a number that it needs.
    """
    match name:
        case "offset":
            return at_distance(_given(numbers.distance))
        case "modulo":
            return at_distances(_given(numbers.distance), _given(numbers.period))
        case "token":
            return token(_given(numbers.token))
        case "answer":
            return answer(task)
        case "separator":
            return token(-1 if task.separator is None else task.separator)
    target = SCORES[name].target
    assert target is not None
    return target


def _given(number: int | None) -> int:
    if number is None:
        raise ValueError("the target has no number")
    return number


class TargetKeys(NamedTuple):
    """A target's `keys` (B or 1, T, T) for the `n` queries that count, and a `uniform` head's mean weight on them."""

    keys: Tensor
    n: int
    uniform: float


def target_keys(target: Tensor, visible: Tensor, queries: Tensor | None = None) -> TargetKeys | None:
    """Restrict a target (B or 1, T, T) to the queries that count, of `queries` (B, T) if given; None if none does.

    `visible` is (T, T).
    """
    target, share, counts = _counted(target, visible)
    if queries is not None:
        counts = counts & queries
        target = target & counts.unsqueeze(-1)
    n = int(counts.sum())
    return TargetKeys(target, n, float((share * counts).sum() / n)) if n else None


def mass_on(weights: Tensor, target: TargetKeys) -> Tensor:
    """Compute the mean weight on a target over the queries that count: (N, B or 1, T, T) float64 to (N,)."""
    return weights.flatten(1) @ target.keys.to(weights.device, weights.dtype).flatten() / target.n


def row_target_weights(targets: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Weight the target of each of G rows alone: (G, T, T) to weights (G, T, T) and the uniform head's mass (G,).

    Both are NaN where no query counts.
    """
    targets, share, counts = _counted(targets, visible)
    n = counts.sum(-1).double()
    return targets.double() / n.view(-1, 1, 1), (share * counts).sum(-1) / n


def _counted(target: Tensor, visible: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the target of the queries that count, its share of the visible keys, and which queries count."""
    target = target & visible
    size, n_keys = target.sum(-1), visible.sum(-1)  # (B or 1, T), (T,)
    counts = (size > 0) & (size < n_keys)
    return target & counts.unsqueeze(-1), size.double() / n_keys.clamp(min=1), counts


def lift_of(mass: Tensor, uniform: float | Tensor) -> Tensor:
    """Rescale the mean weight on a target: 0 is the uniform head, 1 all weight."""
    return (mass - uniform) / (1 - uniform)
