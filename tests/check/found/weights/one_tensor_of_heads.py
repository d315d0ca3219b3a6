"""One parameter [q|k|v] of shape (heads, width, 3 * head width)."""

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.w = nn.Parameter(torch.randn(heads, width, 3 * (width // heads)) * width**-0.5)
        self.w_out = nn.Parameter(torch.randn(heads, width // heads, width) * width**-0.5)

    def forward(self, x):
        q, k, v = torch.einsum("btd,hde->bhte", x, self.w).chunk(3, dim=-1)
        scores = torch.einsum("bhqe,bhke->bhqk", q, k) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), float("-inf"))
        mixed = torch.einsum("bhqk,bhke->bhqe", scores.softmax(dim=-1), v)
        return torch.einsum("bhqe,hed->bqd", mixed, self.w_out)
