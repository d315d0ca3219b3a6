"""Blocks to be graded as objects: a right one, one with a fault, and one that reads a global size."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

n_embd = 40
config = {"n_heads": 8, "dropout": None}


class Right(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.n_heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D))


class Wrong(Right):
    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.n_heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(D)  # the fault
        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D))


class Global(Right):
    def __init__(self) -> None:
        super().__init__(n_embd, config["n_heads"] or 1)
