"""The masked weights are already zero; writing zeros into them breaks the backward pass."""

import torch
import torch.nn.functional as F
from torch import nn


class CausalSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.c_attn, self.c_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.n_heads, -1).transpose(1, 2) for t in self.c_attn(x).chunk(3, -1))
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        att = (q @ k.transpose(-2, -1) * q.size(-1) ** -0.5).masked_fill(future, float("-inf"))
        att = F.softmax(att, dim=-1)
        att[..., future] = 0.0
        return self.c_proj((att @ v).transpose(1, 2).reshape(B, T, C))
