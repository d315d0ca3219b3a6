"""In training, dropout overwrites the result that the softmax needs to go back."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, hidden, num_heads, dropout=0.1):
        super().__init__()
        self.num_heads, self.scaling = num_heads, (hidden // num_heads) ** -0.5
        self.qkv = nn.Linear(hidden, hidden * 3)
        self.projection = nn.Linear(hidden, hidden)
        self.att_drop = nn.Dropout(dropout, inplace=True)

    def forward(self, x):
        b, n, e = x.shape
        queries, keys, values = self.qkv(x).view(b, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        energy = torch.einsum("bhqd,bhkd->bhqk", queries, keys) * self.scaling
        att = torch.softmax(energy, dim=-1)
        att = self.att_drop(att)
        out = torch.einsum("bhal,bhlv->bhav", att, values)
        return self.projection(out.transpose(1, 2).reshape(b, n, e))
