from __future__ import annotations

import torch
from torch import nn


class RotaryEmbedding(nn.Module):
    def __init__(self, dim: int, theta: float = 10_000.0) -> None:
        super().__init__()
        self.register_buffer("freqs", theta ** (-torch.arange(0, dim, 2) / dim))

    def rotate(self, t: torch.Tensor) -> torch.Tensor:
        angle = torch.arange(t.size(-2), device=t.device)[:, None] * self.freqs
        even, odd = t.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()), -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, rotary_emb: RotaryEmbedding | None = None) -> None:
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim)
        self.rotary_emb = rotary_emb

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.to_qkv(x).chunk(3, dim=-1))
        if self.rotary_emb is not None:
            q, k = map(self.rotary_emb.rotate, (q, k))
        sim = q @ k.mT * self.scale
        sim = sim.masked_fill(torch.ones_like(sim[0, 0], dtype=torch.bool).triu(1), -torch.finfo(sim.dtype).max)
        return self.to_out((sim.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))
