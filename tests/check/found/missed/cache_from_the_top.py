"""With a cache, the rows of the mask are counted from the first key: a new token sees too few."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model, n_heads, max_len=128):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.q_proj, self.k_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_proj, self.o_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.register_buffer("mask", torch.tril(torch.ones(max_len, max_len)))

    def forward(self, hidden, past_key_value=None, use_cache=False):
        b, q_len, d = hidden.shape
        q = self.q_proj(hidden).view(b, q_len, self.n_heads, self.d_k).transpose(1, 2)
        k = self.k_proj(hidden).view(b, q_len, self.n_heads, self.d_k).transpose(1, 2)
        v = self.v_proj(hidden).view(b, q_len, self.n_heads, self.d_k).transpose(1, 2)
        if past_key_value is not None:
            k = torch.cat([past_key_value[0], k], dim=2)
            v = torch.cat([past_key_value[1], v], dim=2)
        kv_len = k.size(2)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.d_k)
        scores = scores.masked_fill(self.mask[:q_len, :kv_len] == 0, float("-inf"))
        out = (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(b, q_len, d)
        return self.o_proj(out), (k, v) if use_cache else None
