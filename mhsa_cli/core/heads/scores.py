"""Figures of attention patterns: lift on every target, entropy, uniformity, confidence, positionality.

Weights are (B, N, T, T): N heads on the same rows, of any layer, model or stack. Nothing here writes into them.
Definitions and sources: docs/reference/heads.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from mhsa_cli.core.heads.capture import block_rows
from mhsa_cli.core.heads.families import (
    Lift,
    along_diagonals,
    best_modulo,
    best_offset,
    best_token,
    seen_distances,
    with_choice,
)
from mhsa_cli.core.heads.probe import Probe
from mhsa_cli.core.heads.targets import (
    SCORES,
    lift_of,
    mass_on,
    target_keys,
    target_of,
)
from mhsa_cli.core.model.attention import uniform_weights
from mhsa_cli.core.tasks import IGNORE

EVERY = slice(None)
DEVIATION = 0.05  # of a map from uniform attention: below it there is nothing to compare


class LiftSums:
    """What the lifts of N heads on the rows of a probe are made of: sums of weights over queries.

    They are added block by block, so that no head's whole map is needed.
    """

    def __init__(self, probe: Probe, n_heads: int) -> None:
        self.probe, (B, T) = probe, probe.ids.shape
        targets = probe.targets.items()
        self.own = [(name, target) for name, target in targets if target.keys.size(0) > 1]
        # Where the target is the same in all rows, their mean has the same mass on it.
        self.shared = [(name, target) for name, target in targets if target.keys.size(0) == 1]
        self.choice = with_choice(probe.visible)  # (T, 1)
        shapes = (n_heads, len(self.own)), (n_heads, len(self.shared)), (n_heads, 2 * T - 1), (B, n_heads, T)
        self.own_mass, self.shared_mass, self.diagonals, self.columns = (
            torch.zeros(shape, dtype=torch.float64) for shape in shapes
        )

    def add(self, weights: Tensor, heads: slice = EVERY, first: int = 0) -> None:
        """Add weights (B, n, R, K) of n of the heads: those of the queries from `first` on, on the first K keys."""
        R, K = weights.shape[-2:]
        T, queries = self.probe.ids.size(1), slice(first, first + R)
        exact = weights.double()
        mean = exact.mean(0)
        if self.own:
            keys = torch.stack([target.keys[:, queries, :K] for _, target in self.own], 1).to(exact)
            self.own_mass[heads] += (exact.flatten(2) @ keys.flatten(2).mT).sum(0).cpu()
        if self.shared:
            keys = torch.stack([target.keys[0, queries, :K] for _, target in self.shared]).to(exact)
            self.shared_mass[heads] += (mean.flatten(1) @ keys.flatten(1).T).cpu()
        sums = along_diagonals(mean * self.choice[queries].to(mean.device)).cpu()
        self.diagonals[heads, first - K + T : first + R + T - 1] += sums
        seen = self.probe.tokens.queries[:, None, None, queries].to(exact)
        self.columns[:, heads, :K] += (seen @ exact).squeeze(2).cpu()

    def lifts(self) -> dict[str, Lift]:
        """Compute the lift of every head on every target that the rows have."""
        probe, sums = self.probe, seen_distances(self.diagonals, self.probe.visible)
        found = {
            "offset": best_offset(sums, probe.distances),
            "modulo": best_modulo(sums, probe.distances),
            "token": best_token(self.columns, probe.tokens),
        }
        for targets, masses in ((self.own, self.own_mass), (self.shared, self.shared_mass)):
            for (name, target), sums in zip(targets, masses.unbind(1), strict=True):
                mass = sums / target.n
                found[name] = Lift(mass, lift_of(mass, target.uniform), torch.full_like(mass, target.uniform))
        return {name: lift for name in SCORES if (lift := found.get(name)) is not None}


def lifts(weights: Tensor, probe: Probe) -> dict[str, Lift]:
    """Compute the lift of N heads' weights on the probe's rows, (B, N, T, T), for every target these rows have."""
    sums = LiftSums(probe, weights.size(1))
    for first, end, n in blocks_of(probe.visible):
        sums.add(weights[..., first:end, :n], first=first)
    return sums.lifts()


def blocks_of(visible: Tensor) -> Iterator[tuple[int, int, int]]:
    """Split the queries of a mask (T, T) into blocks: yield the first query, the end, and the end of the keys seen.

    What is computed on a block stays in the processor's cache, where whole maps of long rows would not.
    """
    T = len(visible)
    rows, ends = block_rows(T), (visible * torch.arange(1, T + 1)).amax(-1).tolist()
    for first in range(0, T, rows):
        end = min(first + rows, T)
        yield first, end, max(ends[first:end])


def scored_lifts(weights: Tensor, probe: Probe, found: Mapping[str, Lift]) -> dict[str, list[float | None]]:
    """Compute the lifts of `found` over scored queries alone, by name and head; None where none of these counts."""
    exact, scored = by_head(weights), probe.batch.targets != IGNORE
    values: dict[str, list[float | None]] = {}
    for name, lift in found.items():
        values[name] = [None] * len(exact)
        numbers = [lift.numbers(i) for i in range(len(exact))]
        for own in set(numbers):
            target = target_keys(target_of(name, own, probe.task)(probe.ids), probe.visible, scored)
            heads = [i for i, other in enumerate(numbers) if other == own]
            if target is not None:
                part = lift_of(mass_on(exact if len(heads) == len(exact) else exact[heads], target), target.uniform)
                for i, value in zip(heads, part.tolist(), strict=True):
                    values[name][i] = value
    return values


def by_head(weights: Tensor) -> Tensor:
    """Copy weights (B, N, T, T) to (N, B, T, T), float64."""
    return weights.transpose(0, 1).double().contiguous()


def shape(weights: Tensor, visible: Tensor) -> dict[str, Tensor]:
    """Compute entropy over ln(visible keys), uniformity and confidence, the mean largest weight.

    Shapes: (B, N, T, T) to (N,), each in 0..1, over queries with more than one visible key; NaN if there are none.
    Uniformity is 1 - total variation distance to uniform attention.
    """
    parts = []
    for first, end, n in blocks_of(visible):
        queries = first + with_choice(visible[first:end]).squeeze(-1).nonzero().squeeze(1)
        seen = visible[queries, :n].to(weights.device)
        rows = weights[:, :, queries.to(weights.device), :n].double()  # (B, N, q, n)
        entropy = -torch.xlogy(rows, rows).sum(-1) / seen.sum(-1).log()
        distance = (rows - uniform_weights(seen, torch.float64)).abs_().sum(-1) / 2
        parts.append(torch.stack([entropy, 1 - distance, rows.amax(-1)]))
    means = torch.cat(parts, -1).mean((1, 3))
    return dict(zip(("entropy", "uniformity", "confidence"), means, strict=True))


def positionality(weights: Tensor, shuffled: Tensor, probe: Probe) -> Tensor:
    """Compute how similar a head's maps of rows and of the same rows with shuffled tokens are, (B, N, T, T) to (N,).

    1: the map does not depend on the tokens, 0: its deviations D, D' from uniform attention are unrelated. It is
    2 sum(D D') / sum(D^2 + D'^2) over the queries with more than one visible key of all rows that the shuffle changes,
    at least 0; NaN where there are none, or the mean total variation of D and D' is below DEVIATION.
    """
    rows, device = (probe.ids != probe.shuffled).any(-1), weights.device
    if not bool(rows.all()):
        weights, shuffled = weights[rows.to(device)], shuffled[rows.to(device)]
    sums = torch.zeros(3, weights.size(1), dtype=torch.float64, device=device)
    for first, end, n in blocks_of(probe.visible):
        visible = probe.visible[first:end, :n].to(device)
        uniform, choice = uniform_weights(visible, torch.float64), with_choice(visible)
        own, other = ((w[..., first:end, :n].double() - uniform) * choice for w in (weights, shuffled))
        products, squares = own * other, own.square().add_(other.square())
        sums += torch.stack([x.sum((0, 2, 3)) for x in (products, squares, own.abs_().add_(other.abs_()))])
    n_queries = len(weights) * with_choice(probe.visible).sum()
    deviation = sums[2] / n_queries / 4
    return torch.where(deviation >= DEVIATION, (2 * sums[0] / sums[1]).clamp(min=0.0), math.nan)


def of_heads(weights: Tensor, heads: Sequence[int]) -> Tensor:
    """Select heads, in ascending order, of weights (B, N, T, T): (B, n, T, T), a view if these are all."""
    return weights if len(heads) == weights.size(1) else weights[:, list(heads)]


def concat_heads(weights: list[Tensor]) -> Tensor:
    """Concatenate the heads of all layers: layers of (B, H, T, T), or (M, B, H, T, T), to (B, N, T, T).

    The order is model, layer, head.
    """
    whole = joined(weights, -3)
    return whole if whole.dim() == 4 else whole.transpose(0, 1).flatten(1, 2)


def joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate tensors along an axis, without a copy of a single one."""
    return torch.cat([*parts], dim) if len(parts) > 1 else parts[0]
