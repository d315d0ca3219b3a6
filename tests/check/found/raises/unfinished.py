"""A template of an exercise that was not filled in."""

import torch.nn as nn


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.o_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        qkv = self.qkv_proj(x)
        # YOUR CODE HERE
        raise NotImplementedError()
