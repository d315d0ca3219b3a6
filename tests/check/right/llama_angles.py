"""Rotary angles come with the call: as complex numbers, or as cosines and sines of both halves."""

import math

import torch
from torch import nn


def turned(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles[None, :, None, :]).flatten(3)


def half_turned(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Projections(nn.Module):
    def __init__(self, dim: int, n_heads: int) -> None:
        super().__init__()
        assert dim % n_heads == 0
        self.n_heads = n_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def project(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [w(x).unflatten(-1, (self.n_heads, -1)) for w in (self.wq, self.wk, self.wv)]

    def mix(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        future = torch.ones(q.size(2), q.size(2), dtype=torch.bool, device=q.device).triu(1)
        scores = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(future, -torch.inf)
        return self.wo((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class ComplexAttention(Projections):
    def forward(self, x: torch.Tensor, freqs_cis: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x)
        return self.mix(turned(q, freqs_cis), turned(k, freqs_cis), v)


class HalvesAttention(Projections):
    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x)
        q, k = (t * cos[:, None] + half_turned(t) * sin[:, None] for t in (q, k))
        return self.mix(q, k, v)
