import math

import torch.nn as nn


def attention(query, key, value, dropout=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return p_attn @ value, p_attn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.h, self.dropout = h, nn.Dropout(dropout)
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])

    def forward(self, x):
        n, t, d = x.shape
        query, key, value = (lin(x).view(n, t, self.h, -1).transpose(1, 2) for lin in self.linears[:3])
        y, attn = attention(query, key, value, dropout=self.dropout)
        return self.linears[-1](y.transpose(1, 2).reshape(n, t, d)), attn
