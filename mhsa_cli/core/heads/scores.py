"""What a head's weights look like: its lift on every target, and how spread, sure and position-bound it is.

Weights come as (B, N, T, T): N heads on the same rows, whatever layer, model or stack they belong to. Nothing here
writes into them. Definitions and sources: docs/heads.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.core.heads.hooks import head_weights
from mhsa_cli.core.heads.probe import MAX_WEIGHTS, Probe, gaps_to_try, repeated_blocks
from mhsa_cli.core.heads.targets import SCORES, Aim, aims_by_row, lift_of
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task


class Lift(NamedTuple):
    """N heads' mean weight on a target (N,), its lift, and the uniform head's mass.

    Of the best offset also its distance (N,), and the lifts of all by distance, each (N,).
    """

    mass: Tensor
    lift: Tensor
    uniform: Tensor
    distance: Tensor | None = None
    by_distance: dict[int, Tensor] | None = None


def masses(weights: Tensor, found: Aim) -> Tensor:
    """Give the mean weight on a target over the rows that count: (B, N, T, T) to (N,), float64."""
    share = found.share.to(weights.device)
    if share.size(0) == 1:  # the same target in every row: rows may be averaged first
        return (weights.mean(0, dtype=torch.float64) * share).sum((-2, -1))
    return torch.einsum("bnqk,bqk->n", weights.double(), share)


def lifts(weights: Tensor, probe: Probe) -> dict[str, Lift]:
    """Hold N heads' weights on the probe's rows, (B, N, T, T), against every target that the rows have."""
    found = {}
    mean = weights.mean(0, dtype=torch.float64)  # (N, T, T)
    for name in SCORES:
        if name == "offset" and probe.offsets:
            found[name] = best_offset(mean, probe.offsets)
        elif name in probe.aims:
            one = probe.aims[name]
            rows = weights if SCORES[name].content else mean.unsqueeze(0)
            mass = masses(rows, one)
            found[name] = Lift(mass, lift_of(mass, one.uniform), torch.full_like(mass, one.uniform))
    return found


def best_offset(mean: Tensor, offsets: dict[int, float]) -> Lift:
    """Find for each head the distance of largest lift; `mean` (N, T, T) are its weights averaged over rows."""
    T, distances = mean.size(-1), list(offsets)
    mass = torch.stack([mean.diagonal(-d, -2, -1).sum(-1) / (T - d) for d in distances])  # (distances, N)
    uniform = torch.tensor(list(offsets.values()), dtype=mass.dtype, device=mass.device)
    lift = (mass - uniform.unsqueeze(1)) / (1 - uniform.unsqueeze(1))
    best = lift.nan_to_num(-1.0).argmax(0, keepdim=True)  # (1, N)
    where = torch.tensor(distances, device=mass.device)[best[0]]
    every = dict(zip(distances, lift.unbind(0), strict=True))
    return Lift(mass.gather(0, best)[0], lift.gather(0, best)[0], uniform[best[0]], where, every)


def shape(weights: Tensor, visible: Tensor) -> dict[str, Tensor]:
    """Measure entropy over ln(keys in sight), uniformity (likeness to the uniform head), confidence (largest weight).

    Shapes: (B, N, T, T) to (N,), each in 0..1, over the queries that see more than one key; all NaN where none does.
    Likeness is 1 - total variation distance.
    """
    seen = visible.sum(-1)
    choice = (seen > 1).nonzero().squeeze(1)
    visible, seen = visible[choice].to(weights.device), seen[choice].to(weights.device)
    rows = weights[:, :, choice.to(weights.device)].double()  # (B, N, q, T)
    entropy = -torch.xlogy(rows, rows).sum(-1) / seen.log()
    uniform = visible.double() / seen.unsqueeze(-1)
    distance = (rows - uniform).abs().sum(-1) / 2
    each = {"entropy": entropy, "uniformity": 1 - distance, "confidence": rows.amax(-1)}
    return {name: x.mean((0, 2)) for name, x in each.items()}


def positionality(weights: Tensor, visible: Tensor) -> Tensor:
    """Tell how alike a head's maps are on different random rows, (B, N, T, T) to (N,): 1 = the same for every input.

    1 - the mean total variation distance to the rows' mean map, over the queries that see more than one key.
    """
    choice = (visible.sum(-1) > 1).nonzero().squeeze(1).to(weights.device)
    rows = weights[:, :, choice].double()
    distance = (rows - rows.mean(0, keepdim=True)).abs().sum(-1) / 2
    return 1 - distance.mean((0, 2))


def heads_together(weights: list[Tensor]) -> Tensor:
    """Put the heads of all layers side by side: layers of (B, H, T, T), or (M, B, H, T, T), to (B, N, T, T).

    The order is model, layer, head.
    """
    joined = torch.cat(weights, -3)
    return joined if joined.dim() == 4 else joined.transpose(0, 1).flatten(1, 2)


def gap_lifts(model: TransformerLM, task: Task, seed: int) -> dict[str, dict[int, Tensor]]:
    """Measure whether heads find repeats by their content, at distances that training used and at others.

    Returns the content lifts of N heads (N,) by distance between repeats: of induction at "trained" and at "unseen"
    distances, of "duplicate" at the latter.
    The rows are as long as the model takes, and made of distinct random symbols: only what came before tells the next.
    """
    length = min(model.max_seq_len, MAX_GAP_LENGTH)
    visible = model.mixers[0].causal_mask[:length, :length].cpu()
    trained, unseen = gaps_to_try(task, length)
    gaps = (*trained, *unseen)
    found: dict[str, dict[int, Tensor]] = {"trained": {}, "unseen": {}, "duplicate": {}}
    if not gaps:
        return found
    blocks = torch.stack([repeated_blocks(task, gap, length, seed) for gap in gaps])  # (gaps, rows, length)
    each = blocks.size(1) * len(model.heads) * length**2  # weights of one gap
    means = []
    for part in blocks.split(max(1, MAX_WEIGHTS // each)):  # all in one pass where they are short
        weights = heads_together(head_weights(model, part.flatten(0, 1)))
        means.append(weights.unflatten(0, part.shape[:2]).mean(1, dtype=torch.float64))
    mean = torch.cat(means)  # (gaps, N, length, length)
    for name, new, used in (("induction", found["unseen"], found["trained"]), ("duplicate", found["duplicate"], {})):
        # A gap's rows have one target: the symbols of a block are distinct.
        share, uniform = aims_by_row(SCORES[name].target(blocks[:, 0]), visible)
        mass = torch.einsum("gnqk,gqk->gn", mean, share.to(mean.device))
        lift = lift_of(mass, uniform.unsqueeze(1).to(mean.device))
        for gap, u, one in zip(gaps, uniform.tolist(), lift, strict=True):
            if math.isfinite(u):
                (used if gap in trained else new)[gap] = one
    return found


MAX_GAP_LENGTH = 256  # a longer row would cost much and tell no more
