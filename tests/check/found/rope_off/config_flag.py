"""A decoder whose rotary positions stand behind a setting that is off."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class ModelConfig:
    n_embd: int = 384
    n_head: int = 6
    block_size: int = 256
    rotary: bool = False
    rotary_base: float = 10000.0


class Rotary(nn.Module):
    def __init__(self, dim, base, max_len):
        super().__init__()
        inv_freq = 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)
        angles = torch.outer(torch.arange(max_len).float(), inv_freq)
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin(), persistent=False)

    def forward(self, t):
        n = t.size(-2)
        first, second = t.chunk(2, -1)
        return t * self.cos[:n] + torch.cat((-second, first), -1) * self.sin[:n]


class CausalSelfAttention(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=False)
        head_dim = config.n_embd // config.n_head
        self.rotary = Rotary(head_dim, config.rotary_base, config.block_size) if config.rotary else None

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
