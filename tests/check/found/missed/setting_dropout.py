from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class AttentionConfig:
    dim: int = 512
    n_heads: int = 8
    attention_dropout: float | None = None


def drop(weights, rate):
    if not rate:
        return weights
    return weights * torch.empty_like(weights).bernoulli_(1 - rate) / (1 - rate)


class Attention(nn.Module):
    def __init__(self, cfg: AttentionConfig):
        super().__init__()
        self.cfg = cfg
        self.query = nn.Linear(cfg.dim, cfg.dim)
        self.key = nn.Linear(cfg.dim, cfg.dim)
        self.value = nn.Linear(cfg.dim, cfg.dim)
        self.output = nn.Linear(cfg.dim, cfg.dim)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.cfg.n_heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        weights = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
        weights = drop(weights, self.cfg.attention_dropout)
        return self.output((weights @ v).transpose(1, 2).flatten(2))
