import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    """Widths in and out are named one by one, and the biases are a flag."""

    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        assert d_out % num_heads == 0
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        blocked = torch.ones(context_length, context_length, dtype=torch.bool).triu(diagonal=1)
        self.register_buffer("mask", blocked)

    def forward(self, x):
        b, n, _ = x.shape
        queries, keys, values = (
            layer(x).view(b, n, self.num_heads, self.head_dim).permute(0, 2, 1, 3)
            for layer in (self.W_query, self.W_key, self.W_value)
        )
        scores = (queries / self.head_dim**0.5) @ keys.transpose(-1, -2)
        weights = scores.masked_fill(self.mask[:n, :n], -torch.inf).softmax(dim=-1)
        context = self.dropout(weights) @ values
        return self.out_proj(context.permute(0, 2, 1, 3).flatten(start_dim=2))
