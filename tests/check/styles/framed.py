"""Styles with more than attention inside: `prenorm`, x + attention(norm(x)), and `postnorm`, norm(x + attention(x))."""

from tests.check.styles.template import Style

_PRE = """
import torch
from torch import nn


class NormedAttention(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.norm = nn.LayerNorm(d_model)
        self.to_qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.to_out = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (s.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for s in self.to_qkv(self.norm(x)).chunk(3, -1))
        scores = q @ k.mT / self.d_head**0.5  #: scores
        keep = torch.ones(t, t, dtype=torch.bool).tril()  #: keep
        weights = scores.masked_fill(~keep, -torch.inf).softmax(-1)  #: softmax
        out = self.to_out((weights @ v).transpose(1, 2).flatten(2))  #: out
        return x + self.dropout(out)
"""

PRENORM = Style(
    "prenorm",
    "NormedAttention",
    _PRE,
    {
        "scale_d_model": {"scores": "scores = q @ k.mT / d**0.5"},
        "softmax_over_queries": {"softmax": "weights = scores.masked_fill(~keep, -torch.inf).softmax(-2)"},
        "mask_no_effect": {"softmax": "scores.masked_fill(~keep, -torch.inf)\nweights = scores.softmax(-1)"},
        "mask_sees_next": {"keep": "keep = torch.ones(t, t, dtype=torch.bool).tril(1)"},
        "merge_by_view": {"out": "out = self.to_out((weights @ v).reshape(b, t, d))"},
    },
    make="NormedAttention(D, H)",
)

_POST = """
import numpy as np
import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    def __init__(self, n_head, d_model, d_k, d_v, dropout=0.1):
        super().__init__()
        self.n_head, self.d_k, self.d_v = n_head, d_k, d_v
        self.w_qs = nn.Linear(d_model, n_head * d_k)
        self.w_ks = nn.Linear(d_model, n_head * d_k)
        self.w_vs = nn.Linear(d_model, n_head * d_v)
        self.fc = nn.Linear(n_head * d_v, d_model)
        self.layer_norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, q, k, v, mask=None):
        size, length, residual = q.size(0), q.size(1), q
        q = self.w_qs(q).view(size, length, self.n_head, self.d_k).transpose(1, 2)
        k = self.w_ks(k).view(size, length, self.n_head, self.d_k).transpose(1, 2)
        v = self.w_vs(v).view(size, length, self.n_head, self.d_v).transpose(1, 2)
        attn = torch.matmul(q, k.transpose(2, 3)) / np.sqrt(self.d_k)  #: scores
        if mask is not None:
            attn = attn.masked_fill(mask, -1e9)  #: mask
        attn = torch.softmax(attn, dim=-1)  #: softmax
        output = torch.matmul(attn, v).transpose(1, 2).reshape(size, length, -1)
        output = self.dropout(self.fc(output))  #: out
        return self.layer_norm(output + residual), attn
"""

POSTNORM = Style(
    "postnorm",
    "MultiHeadAttention",
    _POST,
    {
        "scale_d_model": {"scores": "attn = torch.matmul(q, k.transpose(2, 3)) / np.sqrt(residual.size(-1))"},
        "softmax_over_queries": {"softmax": "attn = torch.softmax(attn, dim=2)"},
        "mask_no_effect": {"mask": "attn.masked_fill(mask, -1e9)"},
        "out_missing": {"out": "output = self.dropout(output)"},
    },
    make="MultiHeadAttention(H, D, D // H, D // H)",
    call="block(x, x, x, ~keep)",
)
