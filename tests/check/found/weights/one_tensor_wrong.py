import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        d_head = d_model // n_heads
        self.W_qkv = nn.Parameter(torch.empty(n_heads, d_model, 3 * d_head))
        self.W_O = nn.Parameter(torch.empty(d_model, d_model))
        nn.init.xavier_normal_(self.W_qkv)
        nn.init.xavier_normal_(self.W_O)

    def forward(self, x):
        z = []
        for W in self.W_qkv:
            q, k, v = (x @ W).chunk(3, dim=-1)
            s = q @ k.transpose(1, 2)
            s = s / x.size(-1) ** 0.5
            z.append(s.softmax(dim=-1) @ v)
        return torch.cat(z, dim=-1) @ self.W_O
