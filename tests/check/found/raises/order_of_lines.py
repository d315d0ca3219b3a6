import torch
import torch.nn as nn


class SelfAttention(nn.Module):
    def __init__(self, embed_size, heads):
        super().__init__()
        self.embed_size = embed_size
        self.head_dim = embed_size // self.heads
        self.heads = heads
        self.values = nn.Linear(embed_size, embed_size)
        self.keys = nn.Linear(embed_size, embed_size)
        self.queries = nn.Linear(embed_size, embed_size)
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (f(x).view(n, t, self.heads, self.head_dim) for f in (self.queries, self.keys, self.values))
        energy = torch.einsum("nqhd,nkhd->nhqk", q, k) / self.head_dim**0.5
        return self.fc_out(torch.einsum("nhqk,nkhd->nqhd", energy.softmax(-1), v).reshape(n, t, -1))
