"""Ablations: the loss with some heads' patterns or outputs replaced, on one batch; Shapley values of heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.core.heads.capture import attend, run_with_activations
from mhsa_cli.core.heads.probe import row_flops
from mhsa_cli.core.model.attention import merge_heads, uniform_weights
from mhsa_cli.core.model.transformer import TransformerLM, eval_mode
from mhsa_cli.core.tasks import IGNORE, Batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.records.heads import Ablation
from mhsa_cli.text import Head

EXACT_TO = 10  # heads up to which all 2^n subsets are measured; above, permutations are sampled
PERMUTATIONS, MIN_PERMUTATIONS = 24, 8
CHUNK = 2**22  # numbers held at once by variants that run together
MAX_FLOPS = 1e11  # of all variants together: a few seconds


class Effect(NamedTuple):
    """The increase of the loss in nats per scored token, and its standard error over the batch's rows."""

    delta: float
    se: float


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
        self.uniform = uniform_weights(model.attention[0].causal_mask[:T, :T], self.clean.logits.dtype)
        self.flops = B * row_flops(model, T)  # of one variant
        self.budget = MAX_FLOPS
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

    def ablated_rows(self, kind: str, masks: Tensor) -> Tensor:
        """Compute the loss sum of every row under each ablation mask (S, n), in nats: (S, B)."""
        B, T = self.inputs.shape
        n_heads, size = len(self.heads), self.model.lm_head.weight.size(0)
        at_once = max(1, CHUNK // (B * T * max(T * n_heads, size)))
        return torch.cat([self.row_losses(self.logits(kind, part)) for part in masks.split(at_once)])

    @torch.no_grad()
    def logits(self, kind: str, masks: Tensor) -> Tensor:
        """Run the variants `masks` (S, n) together: logits of the scored tokens (S, N, V)."""
        blocks, attention = self.model.blocks, self.model.attention
        by_layer = masks.to(self.inputs.device).split([attn.n_heads for attn in attention], dim=1)
        with eval_mode(self.model):
            x = self.model.embed(self.inputs, self.pos)  # (B, T, D), and (S, B, T, D) from the first block on
            for layer, (block, attn) in enumerate(zip(blocks, attention, strict=True)):
                if layer == 0:
                    y = self.first_layer(kind, by_layer[0])
                else:
                    A, v = attend(block, x, self.pos)
                    ablated = by_layer[layer][:, None, :, None, None]
                    z = torch.where(ablated, ABLATIONS[kind](self, layer, v), A.to(v.dtype) @ v)
                    y = attn.out_proj(merge_heads(z))
                if layer + 1 == len(blocks):  # what follows is per token
                    x, y = x[..., self.scored, :], y[..., self.scored, :]
                x = block.after_attention(x, y)
            return self.model.lm_head(self.model.final_norm(x))

    def first_layer(self, kind: str, masks: Tensor) -> Tensor:
        """Compute the first layer's attention output for every variant, masks (S, H): (S, B, T, D).

        Its input is the same in all variants, so each head's change is computed once and a variant is a sum of them.
        """
        attn, v, z = self.model.attention[0], self.clean.values[0], self.clean.outputs[0]  # (B, H, T, d)
        changes = ABLATIONS[kind](self, 0, v) - z
        W_O = attn.out_proj.weight.unflatten(1, (attn.n_heads, -1)).permute(1, 2, 0)  # (H, d, D)
        parts = changes.transpose(0, 1).flatten(1, 2) @ W_O  # (H, B * T, D)
        total = masks.to(parts.dtype) @ parts.flatten(1)  # (S, B * T * D)
        clean = attn.out_proj(merge_heads(z))
        return clean + total.view(-1, *clean.shape)

    def effects(self, rows: Tensor) -> list[Effect]:
        """Compare row losses (S, B) with the clean ones; the standard error is that of a ratio of sums."""
        difference, n = rows - self.clean_rows, rows.size(1)
        total = self.counts.sum()
        delta = difference.sum(1) / total
        spread = (difference - delta.unsqueeze(1) * self.counts).square().sum(1)
        se = (spread * n / max(n - 1, 1)).sqrt() / total
        return [Effect(*pair) for pair in zip(delta.tolist(), se.tolist(), strict=True)]

    def each(self, kind: str) -> list[Effect] | None:
        """Ablate one head at a time; None if that exceeds the budget."""
        if not self.spend(len(self.heads)):
            return None
        return self.effects(self.ablated_rows(kind, torch.eye(len(self.heads), dtype=torch.bool)))

    def joint(self, kind: str, heads: Sequence[Head] | None = None) -> Effect:
        """Ablate several heads at once, by default all."""
        mask = torch.tensor([[heads is None or head in heads for head in self.heads]])
        return self.effects(self.ablated_rows(kind, mask))[0]


# An ablated head's output z_h, from the layer and its values V (..., B, H, T, d): a tensor of that shape.
ABLATIONS: dict[str, Callable[[Ablator, int, Tensor], Tensor]] = {
    "uniform": lambda ablator, layer, v: ablator.uniform.to(v.dtype) @ v,  # A_h := U
    "zero": lambda ablator, layer, v: torch.zeros_like(v),
    "mean": lambda ablator, layer, v: ablator.clean.outputs[layer].mean(0).expand_as(v),  # over rows, by position
    "resample": lambda ablator, layer, v: ablator.clean.weights[layer].roll(1, 0).to(v.dtype) @ v,  # A_h of another row
}


def ablate(model: TransformerLM, batch: Batch, heads: Sequence[Head]) -> list[Ablation]:
    """Measure loss and accuracy without ablation and with the given heads ablated together in each way.

    Raises: KeyError if the model has no such head.
    """
    ablator = Ablator(model, batch)
    for head in heads:
        if head not in ablator.heads:
            raise KeyError(head)
    mask = torch.tensor([[head in heads for head in ablator.heads]])
    rows = []
    for way in ("none", *ABLATIONS):
        logits = ablator.logits("zero", mask & ~mask) if way == "none" else ablator.logits(way, mask)
        effect = ablator.effects(ablator.row_losses(logits))[0]
        accuracy = (logits[0].argmax(-1) == ablator.answers).double().mean().item()
        rows.append(Ablation(way, ablator.loss + effect.delta, accuracy, effect.delta, effect.se))
    return rows


class Shapley(NamedTuple):
    """Each head's Shapley value in nats, and its standard error: zero where all subsets were measured."""

    values: list[float]
    se: list[float]


def shapley(ablator: Ablator, seed: int) -> Shapley | None:
    """Compute the Shapley values of the heads' patterns; a head outside the coalition is uniform.

    Exact over all subsets up to EXACT_TO heads; above, or where that exceeds the budget, estimated from sampled
    permutations. The values sum to the loss with uniform attention everywhere minus the clean loss. None if
    permutations exceed the budget too. Source: Shapley 1953.
    """
    n = len(ablator.heads)

    def value(active: Tensor) -> Tensor:  # (S, n): heads that keep their pattern -> (S,): minus the loss
        return -ablator.ablated_rows("uniform", ~active).sum(1) / ablator.counts.sum()

    if n <= EXACT_TO and ablator.spend(2**n):
        subsets = (torch.arange(2**n).unsqueeze(1) >> torch.arange(n)) & 1  # row s: the bits of s
        return Shapley(exact_shares(value(subsets.bool()), n), [0.0] * n)
    count = min(PERMUTATIONS, (ablator.affordable - 3 * n) // (n + 1))  # the other three ablations come after
    if count < MIN_PERMUTATIONS or not ablator.spend(count * (n + 1)):
        return None
    generator = stream_generator(seed, "shapley", n)
    orders = torch.stack([torch.randperm(n, generator=generator) for _ in range(count)])
    return sampled_shares(value, orders)


def exact_shares(value: Tensor, n: int) -> list[float]:
    """Compute Shapley values from the value of every subset: (2^n,), bit h of the index means that h is a member."""
    table, shares = value.tolist(), []
    for h in range(n):
        rest, share = [i for i in range(n) if i != h], 0.0
        for size in range(n):
            weight = 1 / (n * math.comb(n - 1, size))
            for members in combinations(rest, size):
                index = sum(1 << i for i in members)
                share += weight * (table[index | 1 << h] - table[index])
        shares.append(share)
    return shares


def sampled_shares(value: Callable[[Tensor], Tensor], orders: Tensor) -> Shapley:
    """Average each head's marginal contribution over permutations (P, n)."""
    P, n = orders.shape
    rank = orders.argsort(1)  # each head's place in the order
    active = rank.unsqueeze(1) < torch.arange(n + 1).view(1, -1, 1)  # (P, n + 1, n)
    gains = value(active.flatten(0, 1)).view(P, n + 1).diff(dim=1)  # (P, n), by place in the order
    by_head = gains.gather(1, rank)
    return Shapley(by_head.mean(0).tolist(), (by_head.std(0) / math.sqrt(P)).tolist())


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
