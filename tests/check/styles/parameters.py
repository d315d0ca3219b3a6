"""Style `parameters`: a torch module of plain matrices (x @ W), with a mask that is added to the scores."""

from tests.check.styles.template import Style

_TEXT = """
import torch
from torch import nn, softmax


class SelfAttention(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float = 0.0):
        super().__init__()
        if dim % heads != 0:  #: if
            raise ValueError("dim must be divisible by heads")  #: raise
        self.dim, self.heads, self.dim_head = dim, heads, dim // heads
        inner = dim  #: inner
        self.w_q = nn.Parameter(torch.randn(dim, inner) * dim**-0.5)  #: w_q
        self.w_k = nn.Parameter(torch.randn(dim, inner) * dim**-0.5)  #: w_k
        self.w_v = nn.Parameter(torch.randn(dim, inner) * dim**-0.5)  #: w_v
        self.w_o = nn.Parameter(torch.randn(dim, dim) * dim**-0.5)  #: w_o
        self.dropout = nn.Dropout(dropout)
        #: more

    def split(self, t: torch.Tensor) -> torch.Tensor:
        b, n, _ = t.shape
        return t.reshape(b, n, self.heads, self.dim_head).permute(0, 2, 1, 3)  #: split

    def merge(self, t: torch.Tensor) -> torch.Tensor:
        return t.permute(0, 2, 1, 3).flatten(2)  #: merge

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None):
        #: first
        q = self.split(x @ self.w_q)  #: q
        k = self.split(x @ self.w_k)  #: k
        v = self.split(x @ self.w_v)  #: v
        dots = torch.matmul(q, k.transpose(2, 3))  #: scores
        dots = dots * self.dim_head**-0.5  #: scale
        if mask is not None:  #: has_mask
            dots = dots + mask  #: mask
        attn = softmax(dots, -1)  #: softmax
        out = torch.matmul(self.dropout(attn), v)  #: mix
        out = self.merge(out) @ self.w_o  #: out
        return out, attn  #: return
"""

PARAMETERS = Style(
    "parameters",
    "SelfAttention",
    _TEXT,
    {
        "scale_d_model": {"scale": "dots = dots * self.dim**-0.5"},
        "scale_none": {"scale": ""},
        "scale_d_head_unrooted": {"scale": "dots = dots / self.dim_head"},
        "scale_n_heads": {"scale": "dots = dots * self.heads**-0.5"},
        "scale_after_softmax": {"softmax": "attn = softmax(dots, -1) * self.dim_head**-0.5", "scale": ""},
        "softmax_over_queries": {"softmax": "attn = softmax(dots, 2)"},
        "softmax_over_heads": {"softmax": "attn = softmax(dots, 1)"},
        "softmax_twice": {"softmax": "attn = softmax(softmax(dots, -1), -1)"},
        "mask_no_effect": {"mask": "dots + mask"},
        "mask_transposed": {"mask": "dots = dots + mask.transpose(-2, -1)"},
        "mask_argument_raises": {"has_mask": "if mask:"},
        "split_by_view": {"split": "return t.reshape(b, self.heads, n, self.dim_head)"},
        "merge_by_view": {"merge": "return t.reshape(t.shape[0], t.shape[2], -1)"},
        "key_reshaped": {"scores": "dots = torch.matmul(q, k.reshape(*k.shape[:2], self.dim_head, -1))"},
        "merge_interleaved": {"merge": "return t.permute(0, 2, 3, 1).flatten(2)"},
        "batch_folded_wrong": {
            "mix": "out = torch.matmul(self.dropout(attn), v).flatten(0, 1)\n"
            "out = out.view(self.heads, -1, *out.shape[1:]).transpose(0, 1)  #!"
        },
        "value_from_key": {"v": "v = self.split(x @ self.w_k)"},
        "value_unprojected": {"v": "v = self.split(x)"},
        "names_q_k_swapped": {"scores": "dots = torch.matmul(k, q.transpose(2, 3))"},
        "names_k_v_swapped": {"k": "k = self.split(x @ self.w_v)", "v": "v = self.split(x @ self.w_k)"},
        "names_q_v_swapped": {"q": "q = self.split(x @ self.w_v)", "v": "v = self.split(x @ self.w_q)"},
        "one_matrix_for_all_heads": {
            "inner": "inner = self.dim_head",
            "split": "return t.unsqueeze(1).repeat(1, self.heads, 1, 1)",
        },
        "out_missing": {"out": "out = self.merge(out)"},
        "out_twice": {"out": "out = self.merge(out) @ self.w_o @ self.w_o"},
        "attention_transposed": {"mix": "out = torch.matmul(self.dropout(attn).transpose(2, 3), v)"},
        "dropout_in_eval": {"mix": "out = torch.matmul(torch.dropout(attn, 0.1, True), v)"},
        "weights_after_dropout": {"mix": "attn = self.dropout(attn)\nout = torch.matmul(attn, v)"},
        "weights_not_used": {"return": "return out, softmax(q @ k.transpose(2, 3), -1)"},
        "heads_not_dividing": {
            "inner": "inner = heads * self.dim_head",
            "if": "",
            "raise": "",
            "w_o": "self.w_o = nn.Parameter(torch.randn(inner, inner) * dim**-0.5)",
        },
        "parameter_unused": {"more": "self.b_o = nn.Parameter(torch.zeros(dim))"},
        "input_changed_in_place": {"out": "x += self.merge(out) @ self.w_o\nout = x"},
        "parameters_not_registered": {
            "w_q": "self.w_q = torch.randn(dim, inner) * dim**-0.5",
            "w_k": "self.w_k = torch.randn(dim, inner) * dim**-0.5",
            "w_v": "self.w_v = torch.randn(dim, inner) * dim**-0.5",
            "w_o": "self.w_o = torch.randn(dim, dim) * dim**-0.5",
        },
    },
    make="SelfAttention(dim=D, heads=H)",
    call="block(x, torch.zeros(T, T).masked_fill(~keep, -1e9))",
)
