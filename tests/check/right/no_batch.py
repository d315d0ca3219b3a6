import torch
from torch import nn


class Attention(nn.Module):
    """One sequence at a time: x is (T, D)."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        assert d_model % n_heads == 0
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        T, D = x.shape
        q, k, v = (f(x).view(T, self.n_heads, self.d_head).transpose(0, 1) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(1, 2) / self.d_head**0.5
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf)
        return self.o((scores.softmax(-1) @ v).transpose(0, 1).reshape(T, D))
