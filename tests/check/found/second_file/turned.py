"""Rotary positions from a second file, whose rates are wrong."""

import torch
from torch import nn

from rotary_table import rotary_table, turn


class RotaryAttention(nn.Module):
    def __init__(self, dim, n_heads, max_seq_len=32):
        super().__init__()
        self.n_heads = n_heads
        self.qkv_proj = nn.Linear(dim, 3 * dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)
        cos, sin = rotary_table(dim // n_heads, max_seq_len)
        self.register_buffer("cos_cached", cos)
        self.register_buffer("sin_cached", sin)

    def forward(self, x):
        bsz, n, _ = x.shape
        q, k, v = self.qkv_proj(x).view(bsz, n, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        cos, sin = self.cos_cached[:n], self.sin_cached[:n]
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(bsz, n, -1))
