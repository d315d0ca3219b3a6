"""Style `fused`: a torch module with one projection for queries, keys and values, and a boolean mask as a buffer."""

from tests.check.styles.template import Style

_TEXT = """
import math

import torch
from torch import nn


class CausalSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads, max_seq_len, dropout=0.0):
        super().__init__()
        if d_model % n_heads:  #: if
            raise ValueError("d_model must be a multiple of n_heads")  #: raise
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)  #: qkv
        self.proj = nn.Linear(d_model, d_model)  #: proj
        self.drop = nn.Dropout(dropout)
        #: more
        mask = torch.ones(max_seq_len, max_seq_len, dtype=torch.bool).tril()  #: tril
        self.register_buffer("mask", mask, persistent=False)  #: buffer

    def forward(self, x, return_weights=False):
        B, T, D = x.shape
        #: first
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        #: projected
        q = q.view(B, T, self.n_heads, self.d_head).transpose(1, 2)  #: split_q
        k = k.view(B, T, self.n_heads, self.d_head).transpose(1, 2)  #: split_k
        v = v.view(B, T, self.n_heads, self.d_head).transpose(1, 2)  #: split_v
        scores = q @ k.transpose(-2, -1)  #: scores
        scores = scores / math.sqrt(self.d_head)  #: scale
        scores = scores.masked_fill(~self.mask[:T, :T], float("-inf"))  #: mask
        weights = scores.softmax(dim=-1)  #: softmax
        dropped = self.drop(weights)  #: dropout
        context = dropped @ v  #: mix
        merged = context.transpose(1, 2).reshape(B, T, D)  #: merge
        y = self.proj(merged)  #: out
        return (y, weights) if return_weights else y  #: return
"""

_VIEW = {
    "split_q": "q = q.reshape(B, self.n_heads, T, self.d_head)",
    "split_k": "k = k.reshape(B, self.n_heads, T, self.d_head)",
    "split_v": "v = v.reshape(B, self.n_heads, T, self.d_head)",
}
_MERGE_BY_VIEW = {"merge": "merged = context.reshape(B, T, D)"}

FUSED = Style(
    "fused",
    "CausalSelfAttention",
    _TEXT,
    {
        "scale_d_model": {"scale": "scores = scores / math.sqrt(self.d_model)"},
        "scale_none": {"scale": ""},
        "scale_d_head_unrooted": {"scale": "scores = scores / self.d_head"},
        "scale_multiplied": {"scale": "scores = scores * math.sqrt(self.d_head)"},
        "scale_twice": {
            "scores": "q = q / math.sqrt(self.d_head)\nscores = q @ k.transpose(-2, -1)",
        },
        "scale_root_2": {"scale": "scores = scores / math.sqrt(self.d_head / 2)"},
        "scale_seq_len": {"scale": "scores = scores / math.sqrt(k.size(2))"},
        "scale_n_heads": {"scale": "scores = scores / math.sqrt(self.n_heads)"},
        "scale_constant": {"scale": "scores = scores / 8"},
        "scale_after_softmax": {
            "softmax": "weights = scores.softmax(dim=-1)\nweights = weights / math.sqrt(self.d_head)  #!",
            "scale": "",
        },
        "softmax_over_queries": {"softmax": "weights = scores.softmax(dim=-2)"},
        "softmax_over_heads": {"softmax": "weights = scores.softmax(dim=1)"},
        "softmax_over_batch": {"softmax": "weights = scores.softmax(dim=0)"},
        "softmax_missing": {
            "softmax": "weights = scores",
            "mask": "scores = scores.masked_fill(~self.mask[:T, :T], 0.0)",
        },
        "softmax_is_sigmoid": {"softmax": "weights = scores.sigmoid()"},
        "softmax_twice": {"softmax": "weights = scores.softmax(dim=-1).softmax(dim=-1)"},
        "mask_no_effect": {"mask": 'scores.masked_fill(~self.mask[:T, :T], float("-inf"))'},
        "mask_inverted": {"mask": 'scores = scores.masked_fill(self.mask[:T, :T], float("-inf"))'},
        "mask_transposed": {"tril": "mask = torch.ones(max_seq_len, max_seq_len, dtype=torch.bool).triu()"},
        "mask_sees_next": {"tril": "mask = torch.ones(max_seq_len, max_seq_len, dtype=torch.bool).tril(1)"},
        "mask_hides_self": {"tril": "mask = torch.ones(max_seq_len, max_seq_len, dtype=torch.bool).tril(-1)"},
        "mask_after_softmax": {
            "softmax": "weights = scores.softmax(dim=-1)\nweights = weights.masked_fill(~self.mask[:T, :T], 0.0)  #!",
            "mask": "",
        },
        "mask_fill_zero": {"mask": "scores = scores.masked_fill(~self.mask[:T, :T], 0.0)"},
        "split_by_view": _VIEW,
        "merge_by_view": _MERGE_BY_VIEW,
        "split_and_merge_by_view": {**_VIEW, **_MERGE_BY_VIEW},
        "key_reshaped": {"scores": "scores = q @ k.reshape(B, self.n_heads, self.d_head, T)"},
        "merge_interleaved": {"merge": "merged = context.permute(0, 2, 3, 1).reshape(B, T, D)"},
        "split_interleaved_k": {"split_k": "k = k.view(B, T, self.d_head, self.n_heads).permute(0, 3, 1, 2)"},
        "output_transposed": {"out": "y = self.proj(merged).transpose(1, 2)"},
        "batch_folded_wrong": {
            "mix": "context = (dropped @ v).reshape(B * self.n_heads, T, self.d_head)\n"
            "context = context.view(self.n_heads, B, T, self.d_head).transpose(0, 1)  #!"
        },
        "query_from_key": {"projected": "q = k"},
        "key_from_query": {"projected": "k = q"},
        "value_from_key": {"projected": "v = k"},
        "value_from_query": {"projected": "v = q"},
        "value_unprojected": {"projected": "v = x"},
        "one_matrix_for_all_heads": {
            "qkv": "self.qkv = nn.Linear(d_model, 3 * self.d_head)",
            "split_q": "q = q.unsqueeze(1).expand(B, self.n_heads, T, self.d_head)",
            "split_k": "k = k.unsqueeze(1).expand(B, self.n_heads, T, self.d_head)",
            "split_v": "v = v.unsqueeze(1).expand(B, self.n_heads, T, self.d_head)",
        },
        "out_missing": {"out": "y = merged"},
        "out_twice": {"out": "y = self.proj(self.proj(merged))"},
        "attention_transposed": {"mix": "context = dropped.transpose(-2, -1) @ v"},
        "dropout_on_scores": {"softmax": "weights = self.drop(scores).softmax(dim=-1)", "dropout": "dropped = weights"},
        "dropout_in_eval": {"dropout": "dropped = nn.functional.dropout(weights, 0.1)"},
        "projections_created_in_forward": {"out": "y = nn.Linear(D, D)(merged)"},
        "weights_after_dropout": {"return": "return (y, dropped) if return_weights else y"},
        "weights_not_used": {
            "mix": "context = dropped @ v\nweights = (q @ k.transpose(-2, -1)).softmax(dim=-1)  #!",
        },
        "heads_not_dividing": {
            "qkv": "self.qkv = nn.Linear(d_model, 3 * n_heads * self.d_head)",
            "if": "",
            "raise": "",
            "proj": "self.proj = nn.Linear(n_heads * self.d_head, n_heads * self.d_head)",
            "merge": "merged = context.transpose(1, 2).reshape(B, T, self.n_heads * self.d_head)",
        },
        "state_between_calls": {
            "first": "self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()\nx = x - self.mean",
            "more": "self.mean = 0.0",
        },
        "parameter_unused": {"more": "self.gate = nn.Linear(d_model, n_heads)"},
        "mask_not_a_buffer": {"buffer": "self.mask = mask"},
        "input_changed_in_place": {"out": "x += self.proj(merged)\ny = x"},
        "parameters_not_registered": {
            "proj": "self.proj = [nn.Linear(d_model, d_model)]",
            "out": "y = self.proj[0](merged)",
        },
    },
    make="CausalSelfAttention(D, H, max_seq_len=16)",
)
