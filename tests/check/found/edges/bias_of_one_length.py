import torch
import torch.nn as nn


class CausalAttention(nn.Module):
    def __init__(self, dim, num_heads, context_length):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.register_buffer("bias", torch.full((context_length, context_length), float("-inf")).triu(1))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * (c // self.num_heads) ** -0.5 + self.bias).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, t, c))
