import math

import torch
import torch.nn as nn
from torch import Tensor


class MultiHeadSelfAttention(nn.Module):
    """One projection to 3 * d_model, three views of it, H heads, one mask."""

    def __init__(self, d_model: int, n_heads: int, max_len: int, bias: bool = True) -> None:
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError(f"d_model {d_model} is no multiple of n_heads {n_heads}")
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.out = nn.Linear(d_model, d_model, bias=bias)
        allowed = torch.tril(torch.ones(max_len, max_len, dtype=torch.bool))
        self.register_buffer("causal", allowed, persistent=False)

    def forward(self, x: Tensor, return_weights: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        B, T, D = x.shape
        q, k, v = torch.split(self.qkv(x), D, dim=-1)
        q, k, v = (part.reshape(B, T, self.n_heads, self.d_head).transpose(1, 2) for part in (q, k, v))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_head)
        scores = scores.masked_fill(torch.logical_not(self.causal[:T, :T]), -math.inf)
        weights = torch.softmax(scores, dim=-1)
        merged = torch.matmul(weights, v).transpose(1, 2).reshape(B, T, D)
        y = self.out(merged)
        if return_weights:
            return y, weights
        return y
