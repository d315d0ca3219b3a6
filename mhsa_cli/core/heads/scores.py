"""Figures of attention patterns: lift on every target, entropy, uniformity, confidence, positionality.

Weights are (B, N, T, T): N heads on the same rows, of any layer, model or stack. Nothing here writes into them.
Definitions and sources: docs/heads.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.core.heads.capture import head_weights
from mhsa_cli.core.heads.probe import MAX_WEIGHTS, Probe, gaps_to_test, repeated_blocks
from mhsa_cli.core.heads.targets import SCORES, TargetWeights, lift_of, row_target_weights
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task

MAX_GAP_LENGTH = 256  # longer rows cost much and add no information


class Lift(NamedTuple):
    """N heads' mean weight on a target (N,), the lift, and the uniform head's mass.

    For offsets, also the distance of largest lift (N,), and the lifts (N,) by distance.
    """

    mass: Tensor
    lift: Tensor
    uniform: Tensor
    distance: Tensor | None = None
    by_distance: dict[int, Tensor] | None = None


def target_mass(weights: Tensor, target: TargetWeights) -> Tensor:
    """Compute the mean weight on a target over the queries that count: (B, N, T, T) to (N,), float64."""
    share = target.weights.to(weights.device)
    if share.size(0) == 1:  # the same target in every row: rows may be averaged first
        return (weights.mean(0, dtype=torch.float64) * share).sum((-2, -1))
    return torch.einsum("bnqk,bqk->n", weights.double(), share)


def lifts(weights: Tensor, probe: Probe) -> dict[str, Lift]:
    """Compute the lift of N heads' weights on the probe's rows, (B, N, T, T), for every target these rows have."""
    found = {}
    mean = weights.mean(0, dtype=torch.float64)  # (N, T, T)
    for name in SCORES:
        if name == "offset" and probe.offsets:
            found[name] = best_offset(mean, probe.offsets)
        elif name in probe.targets:
            target = probe.targets[name]
            mass = target_mass(weights if SCORES[name].content else mean.unsqueeze(0), target)
            found[name] = Lift(mass, lift_of(mass, target.uniform), torch.full_like(mass, target.uniform))
    return found


def best_offset(mean: Tensor, offsets: dict[int, float]) -> Lift:
    """Find each head's distance of largest lift; `mean` (N, T, T) are the weights averaged over rows."""
    T, distances = mean.size(-1), list(offsets)
    mass = torch.stack([mean.diagonal(-d, -2, -1).sum(-1) / (T - d) for d in distances])  # (distances, N)
    uniform = torch.tensor(list(offsets.values()), dtype=mass.dtype, device=mass.device)
    lift = lift_of(mass, uniform.unsqueeze(1))
    best = lift.nan_to_num(-1.0).argmax(0, keepdim=True)  # (1, N)
    distance = torch.tensor(distances, device=mass.device)[best[0]]
    by_distance = dict(zip(distances, lift.unbind(0), strict=True))
    return Lift(mass.gather(0, best)[0], lift.gather(0, best)[0], uniform[best[0]], distance, by_distance)


def shape(weights: Tensor, visible: Tensor) -> dict[str, Tensor]:
    """Compute entropy over ln(visible keys), uniformity and confidence, the mean largest weight.

    Shapes: (B, N, T, T) to (N,), each in 0..1, over queries with more than one visible key; NaN if there are none.
    Uniformity is 1 - total variation distance to uniform attention.
    """
    n_keys = visible.sum(-1)
    queries = (n_keys > 1).nonzero().squeeze(1)
    visible, n_keys = visible[queries].to(weights.device), n_keys[queries].to(weights.device)
    rows = weights[:, :, queries.to(weights.device)].double()  # (B, N, q, T)
    entropy = -torch.xlogy(rows, rows).sum(-1) / n_keys.log()
    distance = (rows - visible.double() / n_keys.unsqueeze(-1)).abs().sum(-1) / 2
    figures = {"entropy": entropy, "uniformity": 1 - distance, "confidence": rows.amax(-1)}
    return {name: x.mean((0, 2)) for name, x in figures.items()}


def positionality(weights: Tensor, visible: Tensor) -> Tensor:
    """Compute how similar a head's maps on random rows are, (B, N, T, T) to (N,): 1 if they do not depend on the input.

    1 - mean total variation distance to the rows' mean map, over queries with more than one visible key.
    """
    queries = (visible.sum(-1) > 1).nonzero().squeeze(1).to(weights.device)
    rows = weights[:, :, queries].double()
    distance = (rows - rows.mean(0, keepdim=True)).abs().sum(-1) / 2
    return 1 - distance.mean((0, 2))


def concat_heads(weights: list[Tensor]) -> Tensor:
    """Concatenate the heads of all layers: layers of (B, H, T, T), or (M, B, H, T, T), to (B, N, T, T).

    The order is model, layer, head.
    """
    joined = torch.cat(weights, -3)
    return joined if joined.dim() == 4 else joined.transpose(0, 1).flatten(1, 2)


def gap_lifts(model: TransformerLM, task: Task, seed: int) -> dict[str, dict[int, Tensor]]:
    """Measure the content lifts of N heads (N,) by distance between repeats, at trained and unseen distances.

    Returns the induction lifts at "trained" and at "unseen" distances, and the "duplicate" lifts at the latter. Rows
    are as long as the model allows and repeat distinct random symbols: only the context predicts the next token.
    """
    length = min(model.max_seq_len, MAX_GAP_LENGTH)
    visible = model.mixers[0].causal_mask[:length, :length].cpu()
    trained, unseen = gaps_to_test(task, length)
    gaps = (*trained, *unseen)
    found: dict[str, dict[int, Tensor]] = {"trained": {}, "unseen": {}, "duplicate": {}}
    if not gaps:
        return found
    blocks = torch.stack([repeated_blocks(task, gap, length, seed) for gap in gaps])  # (gaps, rows, length)
    each = blocks.size(1) * len(model.heads) * length**2  # weights of one gap
    means = []
    for part in blocks.split(max(1, MAX_WEIGHTS // each)):
        weights = concat_heads(head_weights(model, part.flatten(0, 1)))
        means.append(weights.unflatten(0, part.shape[:2]).mean(1, dtype=torch.float64))
    mean = torch.cat(means)  # (gaps, N, length, length)
    for name, new, used in (("induction", found["unseen"], found["trained"]), ("duplicate", found["duplicate"], {})):
        # The rows of a gap share one target, because a block's symbols are distinct.
        share, uniform = row_target_weights(SCORES[name].target(blocks[:, 0]), visible)
        mass = torch.einsum("gnqk,gqk->gn", mean, share.to(mean.device))
        lift = lift_of(mass, uniform.unsqueeze(1).to(mean.device))
        for gap, u, gap_lift in zip(gaps, uniform.tolist(), lift, strict=True):
            if math.isfinite(u):
                (used if gap in trained else new)[gap] = gap_lift
    return found
