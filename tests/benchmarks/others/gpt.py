"""A small GPT, and a training loop as nanoGPT's is designed: parameter groups, schedule, scaler, clipping.

Source: Karpathy, nanoGPT, 2022, read for its design; Radford et al. 2019 for the model.
"""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from others.turns import Batches, Pause, count, load_in_order
from torch import Tensor, nn

from mhsa_cli.config.schema import Config


class Attention(nn.Module):
    """Causal self-attention: one projection to q, k and v, torch's fused kernel, one projection out."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.n_heads, -1).transpose(1, 2) for t in self.qkv(x).split(D, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(B, T, D))


class Block(nn.Module):
    """Attention and MLP, each after its norm and added to its input."""

    def __init__(self, d_model: int, n_heads: int, d_mlp: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(d_model)
        self.attn = Attention(d_model, n_heads)
        self.norm2 = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, d_mlp), nn.GELU(), nn.Linear(d_mlp, d_model))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Token and position embeddings, blocks, a last norm, a head. Its parameters are those of our config, in order."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c, V, T = config.model, config.task.vocab_size, config.task.seq_len
        self.tokens = nn.Embedding(V, c.d_model)
        self.positions = nn.Embedding(T, c.d_model)
        self.blocks = nn.ModuleList(Block(c.d_model, c.n_heads, c.d_mlp) for _ in range(c.n_layers))
        self.norm = nn.LayerNorm(c.d_model)
        self.head = nn.Linear(c.d_model, V)

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the logits and the mean loss."""
        pos = torch.arange(ids.size(1), device=ids.device)
        x = self.tokens(ids) + self.positions(pos)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


def optimiser(model: nn.Module, config: Config) -> torch.optim.AdamW:
    """Make AdamW with matrices in one group and vectors in another, of which only the first would decay."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": config.train.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.train.lr, betas=config.train.betas)


class NanoGPT:
    """The loop: lr by the schedule, forward in a context, scaled backward, clipping, step; the loss is read each time.

    nanoGPT gathers each batch from a file; here all are at hand, as they are for ours.
    """

    def __init__(self, config: Config, weights: dict[str, Tensor]) -> None:
        self.config, self.model = config, GPT(config)
        load_in_order(self.model, weights)
        self.parameters = count(self.model)
        self.optimiser = optimiser(self.model, config)

    def rate(self, step: int, total: int) -> float:
        """Give the lr of a step from 1: linear warm-up, then a cosine that ends at 0."""
        warm, lr = self.config.train.warmup_steps, self.config.train.lr
        if step <= warm:
            return lr * step / warm
        left = (total - step) / (total - warm)
        return lr * 0.5 * (1.0 - math.cos(math.pi * left))

    def run(self, batches: Batches, pause: Pause) -> None:
        """Train on every batch."""
        scaler, context = torch.amp.GradScaler("cpu", enabled=False), nullcontext()
        for step, (inputs, targets) in enumerate(batches, 1):
            rate = self.rate(step, len(batches))
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            with context:
                _, loss = self.model(inputs, targets)
            scaler.scale(loss).backward()
            scaler.unscale_(self.optimiser)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.train.grad_clip)
            scaler.step(self.optimiser)
            scaler.update()
            self.optimiser.zero_grad(set_to_none=True)
            pause(loss.item())
