"""An attention block as people write it, with the fault that is met most often: try `mhsa check` on it."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class MyAttention(nn.Module):
    def __init__(self, d_model, n_heads, max_seq_len):
        super().__init__()
        assert d_model % n_heads == 0
        self.n_heads = n_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.proj = nn.Linear(d_model, d_model)
        self.register_buffer("mask", torch.tril(torch.ones(max_seq_len, max_seq_len)))

    def forward(self, x):
        B, T, C = x.shape
        q = self.query(x).view(B, T, self.n_heads, -1).transpose(1, 2)
        k = self.key(x).view(B, T, self.n_heads, -1).transpose(1, 2)
        v = self.value(x).view(B, T, self.n_heads, -1).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(C)
        scores = scores.masked_fill(self.mask[:T, :T] == 0, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(B, T, C))
