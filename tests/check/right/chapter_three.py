"""One head, then several at once: three projections without biases, an additive mask kept as a buffer."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def future_mask(size: int) -> torch.Tensor:
    return torch.triu(torch.full((size, size), -torch.inf), diagonal=1)


class SingleHeadAttention(nn.Module):
    def __init__(self, embed_dim: int, head_dim: int, max_seq_len: int = 64, dropout: float = 0.0) -> None:
        super().__init__()
        self.max_seq_len, self.head_dim = max_seq_len, head_dim
        self.W_Q = nn.Linear(embed_dim, head_dim, bias=False)
        self.W_K = nn.Linear(embed_dim, head_dim, bias=False)
        self.W_V = nn.Linear(embed_dim, head_dim, bias=False)
        self.W_O = nn.Linear(head_dim, embed_dim, bias=False)
        self.attn_drop = nn.Dropout(dropout)
        self.register_buffer("causal_mask", future_mask(max_seq_len))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        T = x.shape[1]
        Q, K, V = self.W_Q(x), self.W_K(x), self.W_V(x)
        scores = Q @ K.transpose(-2, -1) / math.sqrt(self.head_dim) + self.causal_mask[:T, :T]
        return self.W_O(self.attn_drop(F.softmax(scores, dim=-1)) @ V)


class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, max_seq_len: int = 64, dropout: float = 0.0) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError("the heads must divide the width")
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.max_seq_len, self.dropout = max_seq_len, dropout
        self.W_Q = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_K = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_V = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_O = nn.Linear(embed_dim, embed_dim, bias=False)
        self.attn_drop = nn.Dropout(dropout)
        self.out_drop = nn.Dropout(dropout)
        self.register_buffer("causal_mask", future_mask(max_seq_len))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        if self.max_seq_len < T:
            raise ValueError(f"{T} tokens, at most {self.max_seq_len}")

        def heads(t: torch.Tensor) -> torch.Tensor:
            return t.view(B, T, self.num_heads, self.head_dim).transpose(1, 2)

        Q, K, V = heads(self.W_Q(x)), heads(self.W_K(x)), heads(self.W_V(x))
        scores = Q @ K.transpose(-2, -1) / math.sqrt(self.head_dim)
        weights = self.attn_drop(F.softmax(scores + self.causal_mask[:T, :T], dim=-1))
        out = (weights @ V).transpose(1, 2).contiguous().view(B, T, C)
        return self.out_drop(self.W_O(out))
