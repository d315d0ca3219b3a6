import torch
from torch import nn


class Heads(nn.Module):
    """For every head a list of three layers, in the order key, query, value."""

    def __init__(self, emb, heads):
        super().__init__()
        self.trios = nn.ModuleList(
            [nn.ModuleList([nn.Linear(emb, emb // heads, bias=False) for _ in range(3)]) for _ in range(heads)]
        )
        self.unify = nn.Linear(emb, emb)

    def forward(self, x):
        done = []
        for to_key, to_query, to_value in self.trios:
            dots = torch.bmm(to_query(x), to_key(x).transpose(1, 2)) / to_key.out_features**0.5
            done.append(torch.bmm(dots.softmax(2), to_value(x)))
        return self.unify(torch.cat(done, 2))
