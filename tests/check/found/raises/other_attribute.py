import torch
from torch import nn

from attend_function import attend


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (f(x).view(B, T, self.n_heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.out(attend(q, k, v).transpose(1, 2).reshape(B, T, D))


class FixedAttention(MultiHeadAttention):
    @property
    def n_heads(self):
        return self.num_heads
