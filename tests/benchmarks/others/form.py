"""Every form of our model as a lesson writes it: plain modules, every intermediate materialised, the lesson's loop."""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from others.lesson import Lesson
from torch import Tensor, nn

from mhsa_cli.config.schema import Config, ModelConfig


def slopes(n_heads: int) -> Tensor:
    """Give ALiBi's slope of each head, (H, 1, 1); the number of heads is a power of two."""
    return torch.tensor([2 ** (-8 * (head + 1) / n_heads) for head in range(n_heads)]).view(-1, 1, 1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs of neighbouring features of x (B, H, T, d)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Attention(nn.Module):
    """Causal attention of the config's kind, with its window, positions and shared keys."""

    def __init__(self, c: ModelConfig, seq_len: int) -> None:
        super().__init__()
        self.c, self.d = c, c.d_model // c.n_heads
        self.groups = c.n_kv_heads or c.n_heads
        self.qkv_proj = nn.Linear(c.d_model, (c.n_heads + 2 * self.groups) * self.d, bias=c.bias)
        self.out_proj = nn.Linear(c.d_model, c.d_model, bias=c.bias)
        distance = torch.arange(seq_len).unsqueeze(1) - torch.arange(seq_len)
        hidden = distance < 0 if c.window is None else (distance < 0) | (distance >= c.window)
        self.register_buffer("hidden", hidden)
        self.register_buffer("even", F.normalize((~hidden).float(), p=1, dim=-1))
        self.register_buffer("bias", -slopes(c.n_heads) * distance)
        rate = 10000.0 ** (-torch.arange(0, self.d, 2) / self.d)
        angles = torch.arange(seq_len).unsqueeze(1) * rate
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        """Compute the attention weights (B, H, T, T), or those of all rows (T, T)."""
        if self.c.attention == "uniform":
            return self.even
        if self.c.attention == "linear":
            scores = ((F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-2, -1)).masked_fill(self.hidden, 0.0)
            return scores / scores.sum(-1, keepdim=True)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        if self.c.positions == "alibi":
            scores = scores + self.bias
        return F.softmax(scores.masked_fill(self.hidden, -math.inf), dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        heads = self.c.n_heads
        q, k, v = self.qkv_proj(x).split([heads * self.d, self.groups * self.d, self.groups * self.d], dim=-1)
        q, k, v = (t.view(B, T, -1, self.d).transpose(1, 2) for t in (q, k, v))
        if self.c.positions == "rope":
            q, k = rotate(q, self.cos, self.sin), rotate(k, self.cos, self.sin)
        if self.groups < heads:
            k, v = (t.repeat_interleave(heads // self.groups, dim=1) for t in (k, v))
        weights = F.dropout(self.weights(q, k), self.c.dropout, self.training)
        context = (weights @ v).transpose(1, 2).contiguous().view(B, T, D)
        return F.dropout(self.out_proj(context), self.c.dropout, self.training)


class MLP(nn.Module):
    """Two linear maps around GELU, or SwiGLU's three."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.c = c
        self.up = nn.Linear(c.d_model, c.d_mlp, bias=c.bias)
        self.gate = nn.Linear(c.d_model, c.d_mlp, bias=c.bias) if c.mlp == "swiglu" else None
        self.down = nn.Linear(c.d_mlp, c.d_model, bias=c.bias)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.up(x)) if self.gate is None else F.silu(self.gate(x)) * self.up(x)
        return F.dropout(self.down(hidden), self.c.dropout, self.training)


def norm(c: ModelConfig) -> nn.Module:
    """Make the config's norm."""
    if c.norm == "rmsnorm":
        return nn.RMSNorm(c.d_model, eps=1e-5)
    return nn.LayerNorm(c.d_model, bias=c.bias) if c.norm == "layernorm" else nn.Identity()


class Block(nn.Module):
    """Attention, then the MLP if there is one, each after its norm and, with residuals, added to its input."""

    def __init__(self, c: ModelConfig, seq_len: int) -> None:
        super().__init__()
        self.residual = c.residual
        self.attn_norm, self.attn = norm(c), Attention(c, seq_len)
        self.mlp_norm, self.mlp = (norm(c), MLP(c)) if c.d_mlp else (None, None)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attn(self.attn_norm(x))
        x = x + y if self.residual else y
        if self.mlp is None:
            return x
        y = self.mlp(self.mlp_norm(x))
        return x + y if self.residual else y


class FormModel(nn.Module):
    """The model of a config; its parameters are ours, in our order."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.c, V, T = config.model, config.task.vocab_size, config.task.seq_len
        c = self.c
        self.half = config.train.dtype == "bfloat16"
        self.tok_emb = nn.Embedding(V, c.d_model)
        self.pos_emb = nn.Embedding(T, c.d_model) if c.positions == "learned" else None
        self.blocks = nn.ModuleList(Block(c, T) for _ in range(c.n_layers))
        self.final_norm = norm(c)
        self.lm_head = nn.Linear(c.d_model, V)
        if c.tie_embeddings:
            self.lm_head.weight = self.tok_emb.weight
        rate = torch.exp(torch.arange(0, c.d_model, 2) * (-math.log(10000.0) / c.d_model))
        angles = torch.arange(T).unsqueeze(1) * rate
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))

    def embed(self, ids: Tensor) -> Tensor:
        """Look up the tokens and add what the positions add."""
        x = self.tok_emb(ids)
        if self.pos_emb is not None:
            x = x + self.pos_emb(torch.arange(ids.size(1)))
        if self.c.positions == "sinusoidal":
            x = x + self.positions
        return F.dropout(x, self.c.dropout, self.training)

    def forward(self, ids: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16) if self.half else nullcontext():
            x = self.embed(ids)
            for block in self.blocks:
                x = block(x)
            return self.lm_head(self.final_norm(x)).float()


class Form(Lesson):
    """The lesson's loop around a model of the config's form."""

    def build(self, config: Config) -> nn.Module:
        """Make the model."""
        return FormModel(config)
