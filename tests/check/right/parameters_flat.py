import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, n_embed: int, num_heads: int):
        super().__init__()
        if n_embed % num_heads:
            raise ValueError("num_heads must divide n_embed")
        self.num_heads = num_heads
        self.Wq = nn.Parameter(torch.randn(n_embed, n_embed) / n_embed**0.5)
        self.Wk = nn.Parameter(torch.randn(n_embed, n_embed) / n_embed**0.5)
        self.Wv = nn.Parameter(torch.randn(n_embed, n_embed) / n_embed**0.5)
        self.Wo = nn.Parameter(torch.randn(n_embed, n_embed) / n_embed**0.5)
        self.bo = nn.Parameter(torch.zeros(n_embed))

    def forward(self, x):
        q, k, v = (torch.stack((x @ W).chunk(self.num_heads, dim=-1), dim=1) for W in (self.Wq, self.Wk, self.Wv))
        scores = q @ k.mT * q.shape[-1] ** -0.5
        T = x.shape[-2]
        later = torch.arange(T)[None, :] > torch.arange(T)[:, None]
        weights = scores.masked_fill(later, -torch.inf).softmax(-1)
        return torch.cat((weights @ v).unbind(1), dim=-1) @ self.Wo + self.bo
