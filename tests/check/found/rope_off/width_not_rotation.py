"""Rotary positions are off, and the scale is wrong: only that is to be named."""

import math

import torch
from torch import nn


def apply_rotary(x, theta):
    n, d = x.shape[-2:]
    angle = torch.arange(n)[:, None] / theta ** (torch.arange(0, d, 2) / d)
    x1, x2 = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat((x1 * angle.cos() - x2 * angle.sin(), x1 * angle.sin() + x2 * angle.cos()), -1)


class SelfAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, rope_theta=None):
        super().__init__()
        self.embed_dim, self.num_heads, self.rope_theta = embed_dim, num_heads, rope_theta
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.o_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, h):
        b, n, _ = h.shape
        q = self.q_proj(h).view(b, n, self.num_heads, -1).transpose(1, 2)
        k = self.k_proj(h).view(b, n, self.num_heads, -1).transpose(1, 2)
        v = self.v_proj(h).view(b, n, self.num_heads, -1).transpose(1, 2)
        if self.rope_theta:
            q, k = apply_rotary(q, self.rope_theta), apply_rotary(k, self.rope_theta)
        attn = q @ k.transpose(2, 3)
        attn = attn / math.sqrt(self.embed_dim)
        attn = attn + torch.full((n, n), float("-inf")).triu(1)
        out = torch.softmax(attn, dim=-1) @ v
        return self.o_proj(out.transpose(1, 2).reshape(b, n, -1))
