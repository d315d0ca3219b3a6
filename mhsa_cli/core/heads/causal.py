"""What heads cause: the loss with some heads' patterns or results replaced, on one fixed batch, and shares of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.core.heads.hooks import attend, walk
from mhsa_cli.core.heads.probe import row_flops
from mhsa_cli.core.model.attention import merge_heads, uniform_weights
from mhsa_cli.core.model.transformer import TransformerLM, eval_mode
from mhsa_cli.core.tasks import IGNORE, Batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.records.heads import Ablation
from mhsa_cli.text import Head

EXACT_TO = 10  # heads whose 2^n subsets are all measured; with more, permutations are drawn
PERMUTATIONS, FEWEST_ORDERS = 24, 8  # as many as are affordable; fewer than the latter say nothing
CHUNK = 2**22  # numbers held at once by variants that run together
MAX_FLOPS = 1e11  # of all variants together: some seconds


class Effect(NamedTuple):
    """A rise of the loss in nats a scored token, and its standard error over the batch's rows."""

    delta: float
    se: float


# What takes the place of z_h: from the ground, the layer and the values V (..., B, H, T, d) to results of that shape.
Replacement = Callable[["Ground", int, Tensor], Tensor]


class Ground:
    """One batch, the model's clean pass over it, and the loss of any variant of its heads.

    `weights` and `results` are the clean pass's, by layer; `heads` lists the addresses (layer, head).
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
        self.clean = walk(model, self.inputs)
        self.heads = model.heads
        self.uniform = uniform_weights(model.attention[0].causal_mask[:T, :T], self.clean.logits.dtype)
        self.flops = B * row_flops(model, T)
        self.left = MAX_FLOPS  # what may still be spent
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
        """Count the variants that may still be run."""
        return int(self.left // self.flops)

    def affords(self, variants: int) -> bool:
        """Tell whether so many variants are cheap enough, and if so book them."""
        cost = variants * self.flops
        if cost > self.left:
            return False
        self.left -= cost
        return True

    def rows(self, kind: str, chosen: Tensor) -> Tensor:
        """Run variants: `chosen` (S, n) says whose result is replaced, heads in the order of `heads`.

        Returns every row's loss sum, (S, B), in nats.
        """
        B, T = self.inputs.shape
        n_heads, size = len(self.heads), self.model.lm_head.weight.size(0)
        at_once = max(1, CHUNK // (B * T * max(T * n_heads, size)))
        return torch.cat([self.row_losses(self.logits(kind, part)) for part in chosen.split(at_once)])

    @torch.no_grad()
    def logits(self, kind: str, chosen: Tensor) -> Tensor:
        """Run the variants `chosen` (S, n) together: logits of the scored tokens (S, N, V)."""
        blocks, attention = self.model.blocks, self.model.attention
        by_layer = chosen.to(self.inputs.device).split([attn.n_heads for attn in attention], dim=1)
        with eval_mode(self.model):
            x = self.model.embed(self.inputs, self.pos)  # (B, T, D), and (S, B, T, D) from the first block on
            for layer, (block, attn) in enumerate(zip(blocks, attention, strict=True)):
                if layer == 0:
                    y = self.first_layer(kind, by_layer[0])
                else:
                    A, v = attend(block, x, self.pos)
                    replaced = by_layer[layer][:, None, :, None, None]
                    z = torch.where(replaced, REPLACEMENTS[kind](self, layer, v), A.to(v.dtype) @ v)
                    y = attn.out_proj(merge_heads(z))
                if layer + 1 == len(blocks):  # from here on every token goes alone
                    x, y = x[..., self.scored, :], y[..., self.scored, :]
                x = block.hand_on(x, y)
            return self.model.lm_head(self.model.final_norm(x))

    def first_layer(self, kind: str, chosen: Tensor) -> Tensor:
        """Let the first layer's attention speak for every variant, `chosen` (S, H): (S, B, T, D).

        All variants read the same, so each head's part is computed once, and a variant is a sum of parts.
        """
        attn, v, z = self.model.attention[0], self.clean.values[0], self.clean.results[0]  # (B, H, T, d)
        changes = REPLACEMENTS[kind](self, 0, v) - z
        maps = attn.out_proj.weight.unflatten(1, (attn.n_heads, -1)).permute(1, 2, 0)  # (H, d, D)
        parts = changes.transpose(0, 1).flatten(1, 2) @ maps  # (H, B * T, D)
        moved = chosen.to(parts.dtype) @ parts.flatten(1)  # (S, B * T * D)
        clean = attn.out_proj(merge_heads(z))
        return clean + moved.view(-1, *clean.shape)

    def effects(self, rows: Tensor) -> list[Effect]:
        """Compare variants' rows (S, B) with the clean ones; the standard error is that of a ratio of sums."""
        difference, n = rows - self.clean_rows, rows.size(1)
        total = self.counts.sum()
        delta = difference.sum(1) / total
        spread = (difference - delta.unsqueeze(1) * self.counts).square().sum(1)
        se = (spread * n / max(n - 1, 1)).sqrt() / total
        return [Effect(*pair) for pair in zip(delta.tolist(), se.tolist(), strict=True)]

    def one_by_one(self, kind: str) -> list[Effect] | None:
        """Replace each head alone; None if that costs too much."""
        if not self.affords(len(self.heads)):
            return None
        return self.effects(self.rows(kind, torch.eye(len(self.heads), dtype=torch.bool)))

    def together(self, kind: str, heads: Sequence[Head] | None = None) -> Effect:
        """Replace several heads at once, or all."""
        chosen = torch.tensor([[heads is None or head in heads for head in self.heads]])
        return self.effects(self.rows(kind, chosen))[0]


REPLACEMENTS: dict[str, Replacement] = {
    # The head spreads evenly over what it sees: A_h := U.
    "uniform": lambda ground, layer, v: ground.uniform.to(v.dtype) @ v,
    # It is taken away: z_h := 0.
    "zero": lambda ground, layer, v: torch.zeros_like(v),
    # It gives its mean result at each position, over the batch's rows.
    "mean": lambda ground, layer, v: ground.clean.results[layer].mean(0).expand_as(v),
    # It looks where it looks in the batch's next row: A_h of another input.
    "resample": lambda ground, layer, v: ground.clean.weights[layer].roll(1, 0).to(v.dtype) @ v,
}


def ablate(model: TransformerLM, batch: Batch, heads: Sequence[Head]) -> list[Ablation]:
    """Measure loss and accuracy with the given heads acted on together, in every way there is, and untouched.

    Raises: KeyError if the model has no such head.
    """
    ground = Ground(model, batch)
    for head in heads:
        if head not in ground.heads:
            raise KeyError(head)
    chosen = torch.tensor([[head in heads for head in ground.heads]])
    found = []
    for way, flags in (("none", ~chosen & chosen), *((kind, chosen) for kind in REPLACEMENTS)):
        logits = ground.logits("zero" if way == "none" else way, flags)
        effect = ground.effects(ground.row_losses(logits))[0]
        right = (logits[0].argmax(-1) == ground.answers).double().mean().item()
        found.append(Ablation(way, ground.loss + effect.delta, right, effect.delta, effect.se))
    return found


class Shapley(NamedTuple):
    """Each head's share of L(no pattern) - L(all patterns), in nats; `se` is zero where all subsets were measured."""

    values: list[float]
    se: list[float]


def shapley(ground: Ground, seed: int) -> Shapley | None:
    """Share out what the patterns are worth among the heads that have them; the others are uniform.

    Exact over all subsets to EXACT_TO heads; above, or where that costs too much, from drawn permutations, with a
    standard error. The shares sum to the loss with no pattern minus the loss with all. Returns None if permutations
    cost too much as well. Source: Shapley 1953.
    """
    n = len(ground.heads)

    def worth(keeps: Tensor) -> Tensor:  # (S, n) who keeps its pattern -> (S,) minus the loss
        return -ground.rows("uniform", ~keeps).sum(1) / ground.counts.sum()

    if n <= EXACT_TO and ground.affords(2**n):
        keeps = (torch.arange(2**n).unsqueeze(1) >> torch.arange(n)) & 1  # row s: the subset whose bits s has
        return Shapley(exact_shares(worth(keeps.bool()), n), [0.0] * n)
    count = min(PERMUTATIONS, (ground.affordable - 3 * n) // (n + 1))  # the other three acts come after
    if count < FEWEST_ORDERS or not ground.affords(count * (n + 1)):
        return None
    generator = stream_generator(seed, "shapley", n)
    orders = torch.stack([torch.randperm(n, generator=generator) for _ in range(count)])
    return sampled_shares(worth, orders)


def exact_shares(worth: Tensor, n: int) -> list[float]:
    """Compute Shapley values from the worth of every subset: (2^n,), where bit h of the index says that h is in."""
    table, shares = worth.tolist(), []
    for h in range(n):
        others, share = [i for i in range(n) if i != h], 0.0
        for size in range(n):
            weight = 1 / (n * math.comb(n - 1, size))
            for members in combinations(others, size):
                index = sum(1 << i for i in members)
                share += weight * (table[index | 1 << h] - table[index])
        shares.append(share)
    return shares


def sampled_shares(worth: Callable[[Tensor], Tensor], orders: Tensor) -> Shapley:
    """Average each head's gain when it joins those before it, over orders (P, n) of joining."""
    P, n = orders.shape
    rank = orders.argsort(1)  # when each head joins
    keeps = rank.unsqueeze(1) < torch.arange(n + 1).view(1, -1, 1)  # (P, n + 1, n)
    gains = worth(keeps.flatten(0, 1)).view(P, n + 1).diff(dim=1)  # (P, n), by place in the order
    by_head = gains.gather(1, rank)
    se = by_head.std(0) / math.sqrt(P)
    return Shapley(by_head.mean(0).tolist(), se.tolist())


def redundancy(singles: Sequence[float], joint: float) -> float:
    """Tell how much of the joint effect single knock-outs hide: 1 = all (each has a stand-in), below 0 = synergy."""
    return 1 - sum(singles) / joint


def effective_heads(shares: Sequence[float]) -> float:
    """Count heads by weight: exp of the entropy of their Shapley shares; a negative share counts as none."""
    kept = [max(share, 0.0) for share in shares]
    total = sum(kept)
    if total <= 0:
        return 0.0
    return math.exp(-sum(s / total * math.log(s / total) for s in kept if s > 0))
