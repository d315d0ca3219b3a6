import torch
from torch import nn


class Attention(nn.Module):
    """Heads are the innermost axis, in the split and in the merge alike."""

    def __init__(self, embedding_dim, num_heads):
        super().__init__()
        assert embedding_dim % num_heads == 0
        self.num_heads = num_heads
        self.query = nn.Linear(embedding_dim, embedding_dim)
        self.key = nn.Linear(embedding_dim, embedding_dim)
        self.value = nn.Linear(embedding_dim, embedding_dim)
        self.output = nn.Linear(embedding_dim, embedding_dim)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (-1, self.num_heads)) for f in (self.query, self.key, self.value))
        scores = torch.einsum("bqdh,bkdh->bhqk", q, k) / q.size(2) ** 0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        return self.output(torch.einsum("bhqk,bkdh->bqdh", weights, v).flatten(2))
