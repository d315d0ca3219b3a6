import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    """Three lists of small layers, one of each for every head; weights come back as a list."""

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        assert d_model % n_heads == 0
        d_head = d_model // n_heads
        self.to_q = nn.ModuleList([nn.Linear(d_model, d_head) for _ in range(n_heads)])
        self.to_k = nn.ModuleList([nn.Linear(d_model, d_head) for _ in range(n_heads)])
        self.to_v = nn.ModuleList([nn.Linear(d_model, d_head) for _ in range(n_heads)])
        self.to_out = nn.Linear(d_model, d_model)

    def forward(self, x):
        T = x.size(1)
        future = torch.triu(torch.ones(T, T, device=x.device), diagonal=1) == 1
        outputs, maps = [], []
        for to_q, to_k, to_v in zip(self.to_q, self.to_k, self.to_v, strict=True):
            q, k, v = to_q(x), to_k(x), to_v(x)
            scores = torch.bmm(q, k.transpose(1, 2)) / q.size(-1) ** 0.5
            weights = torch.softmax(scores.masked_fill(future, -torch.inf), dim=2)
            outputs.append(torch.bmm(weights, v))
            maps.append(weights)
        return self.to_out(torch.cat(outputs, dim=2)), maps
