"""Ablations: the loss with some heads' patterns or outputs replaced, on one batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.core.heads.capture import attend, run_with_activations
from mhsa_cli.core.heads.probe import row_flops
from mhsa_cli.core.heads.stream import output_maps
from mhsa_cli.core.model.attention import merge_heads, uniform_weights
from mhsa_cli.core.model.transformer import TransformerLM, eval_mode
from mhsa_cli.core.tasks import IGNORE, Batch
from mhsa_cli.records.heads import Ablation
from mhsa_cli.text import Head

CHUNK = 2**22  # numbers held at once by variants that run together
MAX_FLOPS = 1e11  # of all variants together: a few seconds


class Effect(NamedTuple):
    """The increase of the loss in nats per scored token, and its standard error over the batch's rows."""

    delta: float
    se: float


def ratio(rows: Tensor, weights: Tensor) -> tuple[list[float], list[float]]:
    """Divide the sum of rows (S, B) by that of weights (B,), and compute the ratio's standard error over the rows.

    Source: Cochran 1977 (the ratio estimator).
    """
    n, total = rows.size(1), weights.sum()
    found = rows.sum(1) / total
    spread = (rows - found.unsqueeze(1) * weights).square().sum(1)
    return found.tolist(), ((spread * n / max(n - 1, 1)).sqrt() / total.abs()).tolist()


class Ablator:
    """Runs ablations of a model's heads on one batch.

    `clean` holds the activations without ablation, `loss` is their loss; `heads` lists the addresses (layer, head).
    Ablation masks are (S, n) boolean: for each of S variants, which heads are ablated, in the order of `heads`.
    """

    def __init__(self, model: TransformerLM, batch: Batch) -> None:
        device = next(model.parameters()).device
        self.model = model
        self.inputs, targets = batch.inputs.to(device), batch.targets.to(device)
        B, T = self.inputs.shape
        self.pos = model.pos[:T]
        self.scored = targets != IGNORE  # (B, T)
        self.answers = targets[self.scored]  # (N,)
        self.counts = self.scored.sum(1).double().cpu()  # scored tokens by row
        self.clean = run_with_activations(model, self.inputs)
        self.heads = model.heads
        self.uniform = [uniform_weights(one.visible[:T, :T], self.clean.logits.dtype) for one in model.attention]
        self.flops = B * row_flops(model, T)  # of one variant
        self.budget = MAX_FLOPS
        self.patterns: list[Tensor] = []  # by layer (B or 1, H, T, T), for "pattern"
        self.outputs: list[Tensor] = []  # by layer (B, H, T, d), for "output"
        self.coalitions: Tensor | None = None  # loss sums by row (2^n, B) if all were measured: bit h: h is not uniform
        self.clean_rows = self.row_losses(self.clean.logits[self.scored].unsqueeze(0))[0]  # loss sums by row (B,)
        self.loss = float(self.clean_rows.sum() / self.counts.sum())

    def row_losses(self, logits: Tensor) -> Tensor:
        """Sum the cross-entropy over each row: logits of scored tokens (S, N, V) to (S, B), float64 on the CPU."""
        log_p = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        nats = -log_p.gather(-1, self.answers.expand(len(logits), -1).unsqueeze(-1)).squeeze(-1)
        rows = torch.zeros(len(logits), *self.scored.shape, dtype=torch.float64)
        rows[:, self.scored.cpu()] = nats.double().cpu()
        return rows.sum(-1)

    @property
    def affordable(self) -> int:
        """The number of variants that the budget still allows."""
        return int(self.budget // self.flops)

    def spend(self, variants: int) -> bool:
        """Subtract the cost of some variants from the budget; False, and no change, if it is not enough."""
        cost = variants * self.flops
        if cost > self.budget:
            return False
        self.budget -= cost
        return True

    def masks(self, groups: Sequence[Collection[Head]]) -> Tensor:
        """Return the mask of each group of heads: (S, n)."""
        return torch.tensor([[head in group for head in self.heads] for group in groups])

    def uniform_rows(self, groups: Sequence[Collection[Head]]) -> Tensor:
        """Compute the loss sum of every row with each group of heads uniform, (S, B); of all coalitions it is known."""
        masks = self.masks(groups)
        if self.coalitions is None:
            return self.ablated_rows("uniform", masks)
        return self.coalitions[(~masks * 2 ** torch.arange(len(self.heads))).sum(1)]

    def coalition_losses(self) -> list[float]:
        """Return the loss of every coalition, as in HeadReport; none where not all are known and finite."""
        if self.coalitions is None:
            return []
        losses = self.coalitions.sum(1) / self.counts.sum()
        return losses.tolist() if bool(losses.isfinite().all()) else []

    def ablated_rows(self, kind: str, masks: Tensor) -> Tensor:
        """Compute the loss sum of every row under each ablation mask (S, n), in nats: (S, B)."""
        B, T = self.inputs.shape
        n_heads, size = len(self.heads), self.model.lm_head.weight.size(0)
        at_once = max(1, CHUNK // (B * T * max(T * n_heads, size)))
        order = sorted(range(len(masks)), key=masks.tolist().__getitem__)  # with those of one first layer side by side
        found = torch.cat([self.row_losses(self.logits(kind, part)) for part in masks[order].split(at_once)])
        rows = torch.empty_like(found)
        rows[order] = found
        return rows

    @torch.no_grad()
    def logits(self, kind: str, masks: Tensor) -> Tensor:
        """Run the variants `masks` (S, n) together: logits of the scored tokens (S, N, V)."""
        blocks, attention = self.model.blocks, self.model.attention
        by_layer = by_prefix(masks, [attn.n_heads for attn in attention])
        with eval_mode(self.model):
            x = self.model.embed(self.inputs, self.pos)  # (B, T, D), and (U, B, T, D) from the first block on
            for layer, (block, attn) in enumerate(zip(blocks, attention, strict=True)):
                ablated, below = (t.to(x.device) for t in by_layer[layer])
                last = layer + 1 == len(blocks)  # what follows it is per token
                if layer == 0:
                    y = self.first_layer(kind, ablated)
                    x, y = (x[..., self.scored, :], y[..., self.scored, :]) if last else (x, y)
                else:
                    A, v = attend(block, x, self.pos)
                    z, other = (merge_heads(t) for t in (A.to(v.dtype) @ v, REPLACED[kind](self, layer, v)))
                    x, z, other = (t[..., self.scored, :] if last else t for t in (x, z, other))
                    ablated = ablated.repeat_interleave(attn.d_head, 1).view(len(ablated), *[1] * (z.dim() - 2), -1)
                    x, y = x[below], attn.out_proj(torch.where(ablated, other[below], z[below]))
                x = block.after_attention(x, y, whole=not last)
            return self.model.lm_head(self.model.final_norm(x))

    def first_layer(self, kind: str, masks: Tensor) -> Tensor:
        """Compute the first layer's attention output for every variant, masks (S, H): (S, B, T, D).

        Its input is the same in all variants, so each head's change is computed once and a variant is a sum of them.
        """
        attn, v, z = self.model.attention[0], self.clean.values[0], self.clean.outputs[0]  # (B, H, T, d)
        changes = REPLACED[kind](self, 0, v) - z
        parts = changes.transpose(0, 1).flatten(1, 2) @ output_maps(attn)  # (H, B * T, D)
        total = masks.to(parts.dtype) @ parts.flatten(1)  # (S, B * T * D)
        clean = attn.out_proj(merge_heads(z))
        return clean + total.view(-1, *clean.shape)

    def effects(self, rows: Tensor) -> list[Effect]:
        """Compare row losses (S, B) with the clean ones."""
        return self.means(rows - self.clean_rows)

    def means(self, rows: Tensor) -> list[Effect]:
        """Average sums by row (S, B), in nats, over the scored tokens."""
        return [Effect(*pair) for pair in zip(*ratio(rows, self.counts), strict=True)]

    def each(self, kind: str) -> list[Effect] | None:
        """Ablate one head at a time; None if that exceeds the budget."""
        if not self.spend(len(self.heads)):
            return None
        return self.effects(self.ablated_rows(kind, torch.eye(len(self.heads), dtype=torch.bool)))

    def joint(self, kind: str, heads: Sequence[Head] | None = None) -> Effect:
        """Ablate several heads at once, by default all."""
        return self.effects(self.ablated_rows(kind, self.masks([self.heads if heads is None else heads])))[0]


def by_prefix(masks: Tensor, sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Split variants (S, n) by layer; those with the same mask up to a layer have the same output there, computed once.

    By layer: the masks (U, H) of the U that differ up to there, and the place of the input of each among the outputs of
    the layer below (U,). The last layer has all S in their order.
    """
    found, below, end = [], torch.zeros(len(masks), dtype=torch.int64), 0
    for size in sizes[:-1]:
        end += size
        prefixes, place = masks[:, :end].unique(dim=0, return_inverse=True)
        found.append(
            (prefixes[:, end - size :], torch.empty(len(prefixes), dtype=torch.int64).scatter_(0, place, below))
        )
        below = place
    return [*found, (masks[:, end:], below)]


# An ablated head's output z_h, from the layer and its values V (..., B, H, T, d): a tensor of that shape.
ABLATIONS: dict[str, Callable[[Ablator, int, Tensor], Tensor]] = {
    "uniform": lambda ablator, layer, v: ablator.uniform[layer].to(v.dtype) @ v,  # A_h := U
    "zero": lambda ablator, layer, v: torch.zeros_like(v),
    "mean": lambda ablator, layer, v: ablator.clean.outputs[layer].mean(0).expand_as(v),  # over rows, by position
    "resample": lambda ablator, layer, v: ablator.clean.weights[layer].roll(1, 0).to(v.dtype) @ v,  # A_h of another row
}

# A head may also be given any weights or any output: `Ablator.patterns` and `Ablator.outputs`.
REPLACED = {
    **ABLATIONS,
    "pattern": lambda ablator, layer, v: ablator.patterns[layer].to(v.dtype) @ v,
    "output": lambda ablator, layer, v: ablator.outputs[layer].expand_as(v),
}


def ablate(model: TransformerLM, batch: Batch, heads: Sequence[Head]) -> list[Ablation]:
    """Measure loss and accuracy without ablation and with the given heads ablated together in each way.

    Raises: KeyError if the model has no such head.
    """
    ablator = Ablator(model, batch)
    for head in heads:
        if head not in ablator.heads:
            raise KeyError(head)
    mask = ablator.masks([heads])
    rows = []
    for way in ("none", *ABLATIONS):
        logits = ablator.logits("zero", mask & ~mask) if way == "none" else ablator.logits(way, mask)
        effect = ablator.effects(ablator.row_losses(logits))[0]
        accuracy = (logits[0].argmax(-1) == ablator.answers).double().mean().item()
        rows.append(Ablation(way, ablator.loss + effect.delta, accuracy, effect.delta, effect.se))
    return rows
