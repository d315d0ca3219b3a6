"""Two masks, both applied."""

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, emb_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.keys, self.queries = nn.Linear(emb_dim, emb_dim), nn.Linear(emb_dim, emb_dim)
        self.values, self.fc_out = nn.Linear(emb_dim, emb_dim), nn.Linear(emb_dim, emb_dim)

    def forward(self, x, pad_mask=None):
        N, L, E = x.shape
        k, q, v = (f(x).view(N, L, self.num_heads, -1).transpose(1, 2) for f in (self.keys, self.queries, self.values))
        energy = q @ k.mT * (E // self.num_heads) ** -0.5
        keep = torch.tril(torch.ones(L, L, dtype=torch.bool))[None, None]
        if pad_mask is not None:
            keep = keep & pad_mask[:, None, None, :].bool()
        attention = energy.masked_fill(~keep, -1e20).softmax(-1)
        return self.fc_out((attention @ v).transpose(1, 2).flatten(2))
