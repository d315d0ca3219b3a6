"""Right blocks in three forms, to be changed in one place or another."""

from __future__ import annotations

from mhsa_cli.records.check import Grade, Law

HEAD = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Block(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        self.h, self.d = n_heads, d_model // n_heads
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, d_model)
"""
FUSED = """
        self.qkv = nn.Linear(d_model, 3 * d_model)
        # made

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        # flat
        q, k, v = (t.view(B, T, self.h, -1).transpose(1, 2) for t in (q, k, v))
        # split
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        # scores
        s = s.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
        w = torch.softmax(s, -1)
        # weights
        w = self.drop(w)
        y = self.out((w @ v).transpose(1, 2).reshape(B, T, D))
        return y
"""
GROUPED = """
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, 2 * self.d, bias=False)
        self.value = nn.Linear(d_model, 2 * self.d, bias=False)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (f(x).view(B, T, -1, self.d).transpose(1, 2) for f in (self.query, self.key, self.value))
        # split
        k, v = (t.repeat_interleave(self.h // 2, 1) for t in (k, v))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        s = s.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
        # scores
        return self.out((self.drop(torch.softmax(s, -1)) @ v).transpose(1, 2).reshape(B, T, D))
"""
PAIRED = """
        self.to_q = nn.Linear(d_model, d_model, bias=False)
        self.to_kv = nn.Linear(d_model, 2 * d_model, bias=False)

    def forward(self, x):
        B, T, D = x.shape
        q, (k, v) = self.to_q(x), self.to_kv(x).chunk(2, -1)
        # flat
        q, k, v = (t.view(B, T, self.h, -1).transpose(1, 2) for t in (q, k, v))
        # split
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        # scores
        s = s.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
        return self.out((self.drop(torch.softmax(s, -1)) @ v).transpose(1, 2).reshape(B, T, D))
"""


def written(body: str, *changes: tuple[str, str]) -> str:
    """Write a block with changes, each of which must have its one place."""
    source = HEAD + body
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def law(grade: Grade, name: str) -> Law:
    return next(law for law in grade.laws if law.id == name)


def broken(grade: Grade) -> set[str]:
    return {law.id for law in grade.laws if law.passed is False}
