import math

import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, dim, n_head):
        super().__init__()
        self.n_head = n_head
        self.proj = nn.ModuleDict({name: nn.Linear(dim, dim, bias=False) for name in "qkvo"})

    def heads(self, name, x):
        return self.proj[name](x).unflatten(-1, (self.n_head, -1)).transpose(1, 2)

    def forward(self, x):
        q, k, v = (self.heads(name, x) for name in "qkv")
        a = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        return self.proj["o"]((a @ v).transpose(1, 2).flatten(2))
