import torch
from torch import nn


class Attention(nn.Module):
    """The three roles are the innermost axis: (heads, d_head, 3)."""

    def __init__(self, dim, heads):
        super().__init__()
        assert dim % heads == 0
        self.heads = heads
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        t = x.shape[1]
        q, k, v = self.to_qkv(x).unflatten(-1, (self.heads, -1, 3)).transpose(1, 2).unbind(-1)
        dots = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        seen = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
        out = dots.where(seen, torch.finfo(dots.dtype).min).softmax(-1) @ v
        return self.to_out(out.transpose(1, 2).flatten(2))
