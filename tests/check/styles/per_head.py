"""Style `per_head`: a list of single heads, each a torch module with its own mask buffer, laid side by side."""

from tests.check.styles.template import Style

_TEXT = """
import torch
import torch.nn as nn
from torch.nn import functional as F


class Head(nn.Module):
    def __init__(self, n_embd, head_size, block_size, dropout):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))  #: tril
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        B, T, C = x.shape
        k = self.key(x)  #: k
        q = self.query(x)  #: q
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5  #: scores
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))  #: mask
        wei = F.softmax(wei, dim=-1)  #: softmax
        wei = self.dropout(wei)  #: dropout
        v = self.value(x)  #: v
        return wei @ v  #: mix


class MultiHeadAttention(nn.Module):
    def __init__(self, n_embd, n_head, block_size, dropout=0.0):
        super().__init__()
        assert n_embd % n_head == 0  #: assert
        head_size = n_embd // n_head
        heads = [Head(n_embd, head_size, block_size, dropout) for _ in range(n_head)]  #: made
        self.heads = nn.ModuleList(heads)  #: heads
        self.proj = nn.Linear(n_embd, n_embd)  #: proj
        self.dropout = nn.Dropout(dropout)
        #: more

    def forward(self, x):
        out = torch.cat([head(x) for head in self.heads], dim=-1)  #: merge
        out = self.dropout(self.proj(out))  #: out
        return out  #: return
"""

PER_HEAD = Style(
    "per_head",
    "MultiHeadAttention",
    _TEXT,
    {
        "scale_d_model": {"scores": "wei = q @ k.transpose(-2, -1) * C**-0.5"},
        "scale_none": {"scores": "wei = q @ k.transpose(-2, -1)"},
        "scale_multiplied": {"scores": "wei = q @ k.transpose(-2, -1) * k.shape[-1] ** 0.5"},
        "scale_root_2": {"scores": "wei = q @ k.transpose(-2, -1) * (k.shape[-1] // 2) ** -0.5"},
        "scale_seq_len": {"scores": "wei = q @ k.transpose(-2, -1) * k.shape[1] ** -0.5"},
        "scale_constant": {"scores": "wei = q @ k.transpose(-2, -1) / 5"},
        "softmax_over_queries": {"softmax": "wei = F.softmax(wei, dim=1)"},
        "softmax_over_batch": {"softmax": "wei = F.softmax(wei, dim=0)"},
        "softmax_missing": {
            "softmax": "",
            "mask": "wei = wei.masked_fill(self.tril[:T, :T] == 0, 0)",
        },
        "mask_no_effect": {"mask": 'wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))'},
        "mask_inverted": {"mask": 'wei = wei.masked_fill(self.tril[:T, :T] == 1, float("-inf"))'},
        "mask_transposed": {"tril": 'self.register_buffer("tril", torch.triu(torch.ones(block_size, block_size)))'},
        "mask_sees_next": {
            "tril": 'self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size), diagonal=1))'
        },
        "mask_hides_self": {
            "tril": 'self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size), diagonal=-1))'
        },
        "mask_after_softmax": {"softmax": "wei = F.softmax(wei, dim=-1) * self.tril[:T, :T]", "mask": ""},
        "mask_fill_zero": {"mask": "wei = wei.masked_fill(self.tril[:T, :T] == 0, 1e-9)"},
        "merge_by_view": {"merge": "out = torch.stack([head(x) for head in self.heads], dim=1).view(x.shape)"},
        "merge_interleaved": {"merge": "out = torch.stack([head(x) for head in self.heads], dim=-1).flatten(2)"},
        "output_transposed": {"return": "return out.transpose(1, 2)"},
        "query_from_key": {"q": "q = self.key(x)"},
        "key_from_query": {"k": "k = self.query(x)"},
        "value_from_key": {"v": "v = self.key(x)"},
        "value_from_query": {"v": "v = q"},
        "names_q_k_swapped": {"scores": "wei = k @ q.transpose(-2, -1) * k.shape[-1] ** -0.5"},
        "names_q_v_swapped": {"q": "q = self.value(x)", "v": "v = self.query(x)"},
        "one_matrix_for_all_heads": {"made": "heads = [Head(n_embd, head_size, block_size, dropout)] * n_head"},
        "out_missing": {"out": "out = self.dropout(out)"},
        "out_twice": {"merge": "out = self.proj(torch.cat([head(x) for head in self.heads], dim=-1))"},
        "attention_transposed": {"mix": "return wei.transpose(-2, -1) @ v"},
        "dropout_on_scores": {"softmax": "wei = F.softmax(self.dropout(wei), dim=-1)", "dropout": ""},
        "dropout_in_eval": {"dropout": "wei = F.dropout(wei, 0.2)"},
        "projections_created_in_forward": {
            "out": "out = nn.Linear(out.shape[-1], out.shape[-1]).to(x)(out)",
            "proj": "",
        },
        "heads_not_dividing": {
            "proj": "self.proj = nn.Linear(n_head * head_size, n_head * head_size)",
            "assert": "",
        },
        "parameter_unused": {"more": "self.norm = nn.LayerNorm(n_embd)"},
        "mask_not_a_buffer": {"tril": "self.tril = torch.tril(torch.ones(block_size, block_size))"},
        "parameters_not_registered": {"heads": "self.heads = heads"},
    },
    make="MultiHeadAttention(D, H, block_size=16)",
)
