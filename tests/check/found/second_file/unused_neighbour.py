"""Right: what is wrong in the other file is never called."""

import torch.nn as nn
from torch import einsum

from scores import causal_scores


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.heads, -1)
        k, v = self.kv(x).view(b, t, 2, self.heads, -1).unbind(2)
        y = einsum("bhij,bjhd->bihd", causal_scores(q, k).softmax(-1), v)
        return self.out(y.reshape(b, t, -1))
