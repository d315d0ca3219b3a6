"""Style `annotated`: four cloned layers and a function for the core, called with (query, key, value, mask)."""

from tests.check.styles.template import Style

_TEXT = """
import copy
import math

import torch
import torch.nn as nn


def attention(query, key, value, mask=None, dropout=None):
    width = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(width)  #: scores
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)  #: mask
    weights = scores.softmax(dim=-1)  #: softmax
    if dropout is not None:
        weights = dropout(weights)
    return torch.matmul(weights, value), weights  #: mix


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        assert d_model % h == 0
        self.d_k = d_model // h
        self.h = h
        self.linears = nn.ModuleList(copy.deepcopy(nn.Linear(d_model, d_model)) for _ in range(4))  #: linears
        self.attn = None
        self.dropout = nn.Dropout(p=dropout)  #: dropout
        #: more

    def forward(self, query, key, value, mask=None):
        n = query.size(0)
        query, key, value = (layer(t) for layer, t in zip(self.linears, (query, key, value)))  #: project
        query, key, value = (t.view(n, -1, self.h, self.d_k).transpose(1, 2) for t in (query, key, value))  #: split
        x, self.attn = attention(query, key, value, mask, self.dropout)  #: attend
        x = x.transpose(1, 2).contiguous().view(n, -1, self.h * self.d_k)  #: merge
        return self.linears[-1](x)  #: out
"""

ANNOTATED = Style(
    "annotated",
    "MultiHeadedAttention",
    _TEXT,
    {
        "scale_d_model": {"scores": "scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(1) * width)"},
        "scale_twice": {
            "attend": "x, self.attn = attention(query / math.sqrt(self.d_k), key, value, mask, self.dropout)"
        },
        "softmax_over_queries": {"softmax": "weights = scores.softmax(dim=-2)"},
        "softmax_over_heads": {"softmax": "weights = scores.softmax(dim=1)"},
        "softmax_twice": {"mix": "return torch.matmul(weights.softmax(dim=-1), value), weights"},
        "mask_no_effect": {"mask": "scores.masked_fill(mask == 0, -1e9)"},
        "mask_argument_raises": {"mask": "scores = scores.masked_fil(mask == 0, -1e9)"},
        "mask_fill_zero": {"mask": "scores = scores.masked_fill(mask == 0, -1e-9)"},
        "split_by_view": {
            "split": "query, key, value = (t.view(n, self.h, -1, self.d_k) for t in (query, key, value))"
        },
        "merge_by_view": {"merge": "x = x.contiguous().view(n, -1, self.h * self.d_k)"},
        "split_and_merge_by_view": {
            "split": "query, key, value = (t.view(n, self.h, -1, self.d_k) for t in (query, key, value))",
            "merge": "x = x.contiguous().view(n, -1, self.h * self.d_k)",
        },
        "split_interleaved_k": {
            "attend": "key = key.transpose(1, 2).reshape(n, -1, self.d_k, self.h).permute(0, 3, 1, 2)\n"
            "x, self.attn = attention(query, key, value, mask, self.dropout)"
        },
        "output_transposed": {"out": "return self.linears[-1](x).transpose(-2, -1)"},
        "out_missing": {"out": "return x"},
        "out_twice": {"out": "return self.linears[-1](self.linears[-1](x))"},
        "attention_transposed": {"mix": "return torch.matmul(weights.transpose(-2, -1), value), weights"},
        "state_between_calls": {
            "attend": "x, attn = attention(query, key, value, mask, self.dropout)\n"
            "if self.attn is not None and self.attn.shape == attn.shape:\n"
            "    x = (attn + self.attn) / 2 @ value\n"
            "self.attn = attn.detach()  #!"
        },
    },
    make="MultiHeadedAttention(H, D)",
    call="block(x, x, x, keep.unsqueeze(0))",
)
