"""Rotary positions that are built and called, and whose result is thrown away."""

import torch
from torch import nn


class RoPE(nn.Module):
    def __init__(self, d_head, max_len=64):
        super().__init__()
        angle = torch.arange(max_len)[:, None] * 10000.0 ** (-torch.arange(0, d_head, 2) / d_head)
        self.register_buffer("c", angle.cos())
        self.register_buffer("s", angle.sin())

    def forward(self, t):
        c, s = self.c[: t.size(-2)], self.s[: t.size(-2)]
        e, o = t[..., ::2], t[..., 1::2]
        return torch.stack((e * c - o * s, e * s + o * c), -1).flatten(-2)


class MHA(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.rope = RoPE(d_model // n_heads)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        self.rope(q)
        self.rope(k)
        s = q @ k.mT / q.shape[-1] ** 0.5
        s = s.masked_fill(torch.ones(t, t).triu(1).bool(), -torch.inf)
        return self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
