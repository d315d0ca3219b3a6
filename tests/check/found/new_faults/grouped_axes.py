"""Grouped queries: the group axis is moved behind the tokens, the axis of key/value heads is not."""

import torch
from torch import nn


class GQA(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads=2):
        super().__init__()
        self.h, self.g, self.hd = n_heads, n_kv_heads, dim // n_heads
        self.wq, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, self.g * self.hd, bias=False)
        self.wv = nn.Linear(dim, self.g * self.hd, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q = self.wq(x).view(b, t, self.g, self.h // self.g, self.hd).permute(0, 2, 3, 1, 4)
        k = self.wk(x).view(b, t, self.g, 1, self.hd).permute(0, 2, 3, 1, 4)
        v = self.wv(x).view(b, t, self.g, 1, self.hd).permute(0, 2, 3, 1, 4)
        s = (q @ k.transpose(-1, -2)) / self.hd**0.5
        s = s + torch.full((t, t), float("-inf")).triu(1)
        y = s.softmax(-1) @ v
        y = y.transpose(2, 3).reshape(b, t, d)
        return self.wo(y)
