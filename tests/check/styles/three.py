"""Style `three`: a torch module with a projection each, heads never moved (einsum), and a mask made in each call."""

from tests.check.styles.template import Style

_TEXT = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__()
        assert embed_dim % num_heads == 0, "embed_dim must be divisible by num_heads"  #: assert
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.query = nn.Linear(embed_dim, embed_dim, bias=False)  #: query
        self.key = nn.Linear(embed_dim, embed_dim, bias=False)  #: key
        self.value = nn.Linear(embed_dim, embed_dim, bias=False)  #: value
        self.fc_out = nn.Linear(embed_dim, embed_dim)  #: fc_out
        self.dropout = nn.Dropout(dropout)
        #: more

    def forward(self, x):
        batch, length, width = x.size()
        heads, head_dim = self.num_heads, self.head_dim
        #: first
        q = self.query(x)  #: q
        k = self.key(x)  #: k
        v = self.value(x)  #: v
        q = q.view(batch, length, heads, head_dim)  #: split_q
        k = k.view(batch, length, heads, head_dim)  #: split_k
        v = v.view(batch, length, heads, head_dim)  #: split_v
        energy = torch.einsum("bqhd,bkhd->bhqk", q, k)  #: scores
        energy = energy * head_dim**-0.5  #: scale
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(diagonal=1)  #: future
        energy = torch.where(future, torch.finfo(energy.dtype).min, energy)  #: mask
        attention = F.softmax(energy, dim=-1)  #: softmax
        context = torch.einsum("bhqk,bkhd->bqhd", self.dropout(attention), v)  #: mix
        out = context.reshape(batch, length, width)  #: merge
        return self.fc_out(out), attention  #: return
"""

_VIEW = {
    "split_q": "q = q.view(batch, heads, length, head_dim).permute(0, 2, 1, 3)",
    "split_k": "k = k.view(batch, heads, length, head_dim).permute(0, 2, 1, 3)",
    "split_v": "v = v.view(batch, heads, length, head_dim).permute(0, 2, 1, 3)",
}
_MERGE_BY_VIEW = {"merge": "out = context.permute(0, 2, 1, 3).reshape(batch, length, width)"}

THREE = Style(
    "three",
    "MultiHeadAttention",
    _TEXT,
    {
        "scale_d_model": {"scale": "energy = energy / self.embed_dim**0.5"},
        "scale_none": {"scale": ""},
        "scale_d_head_unrooted": {"scale": "energy = energy / head_dim"},
        "scale_multiplied": {"scale": "energy = energy * head_dim**0.5"},
        "scale_twice": {
            "split_q": "q = q.view(batch, length, heads, head_dim) * head_dim**-0.5",
        },
        "scale_root_2": {"scale": "energy = energy * (head_dim / 2) ** -0.5"},
        "scale_seq_len": {"scale": "energy = energy / q.size(1) ** 0.5"},
        "scale_n_heads": {"scale": "energy = energy / q.size(2) ** 0.5"},
        "scale_constant": {"scale": "energy = energy * 0.125"},
        "scale_after_softmax": {"softmax": "attention = F.softmax(energy, dim=-1) * head_dim**-0.5", "scale": ""},
        "softmax_over_queries": {"softmax": "attention = F.softmax(energy, dim=2)"},
        "softmax_over_heads": {"softmax": "attention = F.softmax(energy, dim=1)"},
        "softmax_over_batch": {"softmax": "attention = F.softmax(energy, dim=0)"},
        "softmax_missing": {"softmax": "attention = energy", "mask": "energy = torch.where(future, 0.0, energy)"},
        "softmax_is_sigmoid": {"softmax": "attention = torch.sigmoid(energy - torch.tensor(energy.size(-1)).log())"},
        "softmax_twice": {"softmax": "attention = F.softmax(F.softmax(energy, dim=-1), dim=-1)"},
        "mask_no_effect": {"mask": "energy = torch.where(future, -1e-9, 0.0) + energy"},
        "mask_inverted": {"mask": "energy = torch.where(future, energy, torch.finfo(energy.dtype).min)"},
        "mask_transposed": {"mask": "energy = torch.where(future.t(), torch.finfo(energy.dtype).min, energy)"},
        "mask_sees_next": {
            "future": "future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(diagonal=2)"
        },
        "mask_hides_self": {"future": "future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu()"},
        "mask_after_softmax": {"softmax": "attention = F.softmax(energy, dim=-1) * ~future", "mask": ""},
        "mask_fill_zero": {"mask": "energy = torch.where(future, 0.0, energy)"},
        "split_by_view": _VIEW,
        "merge_by_view": _MERGE_BY_VIEW,
        "split_and_merge_by_view": {**_VIEW, **_MERGE_BY_VIEW},
        "key_reshaped": {
            "scores": "turned = k.transpose(1, 2).reshape(batch, heads, head_dim, length)  #!\n"
            'energy = torch.einsum("bqhd,bhdk->bhqk", q, turned)'
        },
        "merge_interleaved": {"merge": "out = context.transpose(2, 3).reshape(batch, length, width)"},
        "split_interleaved_k": {"split_k": "k = k.view(batch, length, head_dim, heads).transpose(2, 3)"},
        "output_transposed": {"return": "return self.fc_out(out).permute(0, 2, 1), attention"},
        "batch_folded_wrong": {
            "mix": 'folded = torch.einsum("bhqk,bkhd->hbqd", self.dropout(attention), v).flatten(0, 1)\n'
            "context = folded.view(batch, heads, length, head_dim).transpose(1, 2)  #!"
        },
        "query_from_key": {"q": "q = self.key(x)"},
        "key_from_query": {"k": "k = self.query(x)"},
        "value_from_key": {"v": "v = self.key(x)"},
        "value_from_query": {"v": "v = self.query(x)"},
        "value_unprojected": {"v": "v = x"},
        "names_q_k_swapped": {"scores": 'energy = torch.einsum("bqhd,bkhd->bhqk", k, q)'},
        "names_k_v_swapped": {"k": "k = self.value(x)", "v": "v = self.key(x)"},
        "names_q_v_swapped": {"q": "q = self.value(x)", "v": "v = self.query(x)"},
        "one_matrix_for_all_heads": {
            "query": "self.query = nn.Linear(embed_dim, self.head_dim, bias=False)",
            "key": "self.key = nn.Linear(embed_dim, self.head_dim, bias=False)",
            "value": "self.value = nn.Linear(embed_dim, self.head_dim, bias=False)",
            "split_q": "q = q.view(batch, length, 1, head_dim).repeat(1, 1, heads, 1)",
            "split_k": "k = k.view(batch, length, 1, head_dim).repeat(1, 1, heads, 1)",
            "split_v": "v = v.view(batch, length, 1, head_dim).repeat(1, 1, heads, 1)",
        },
        "out_missing": {"return": "return out, attention", "fc_out": ""},
        "out_twice": {"merge": "out = self.fc_out(context.reshape(batch, length, width))"},
        "attention_transposed": {
            "mix": 'context = torch.einsum("bhkq,bkhd->bqhd", self.dropout(attention), v)',
        },
        "dropout_on_scores": {
            "softmax": "energy = self.dropout(energy)\nattention = F.softmax(energy, dim=-1)",
        },
        "dropout_in_eval": {
            "mix": 'attention = F.dropout(attention, p=0.1)\ncontext = torch.einsum("bhqk,bkhd->bqhd", attention, v)',
        },
        "projections_created_in_forward": {
            "v": "v = nn.Linear(width, width, bias=False).to(x)(x)",
            "value": "",
        },
        "weights_after_dropout": {
            "mix": 'attention = self.dropout(attention)\ncontext = torch.einsum("bhqk,bkhd->bqhd", attention, v)',
        },
        "weights_not_used": {"return": "return self.fc_out(out), attention.transpose(-2, -1)"},
        "heads_not_dividing": {
            "query": "self.query = nn.Linear(embed_dim, num_heads * self.head_dim, bias=False)",
            "key": "self.key = nn.Linear(embed_dim, num_heads * self.head_dim, bias=False)",
            "value": "self.value = nn.Linear(embed_dim, num_heads * self.head_dim, bias=False)",
            "assert": "",
            "fc_out": "self.fc_out = nn.Linear(num_heads * self.head_dim, num_heads * self.head_dim)",
            "merge": "out = context.reshape(batch, length, heads * head_dim)",
        },
        "state_between_calls": {
            "split_v": "v = v.view(batch, length, heads, head_dim)\n"
            "if self.last is not None and self.last.shape == v.shape:\n"
            "    v = (v + self.last) / 2\n"
            "self.last = v.detach()  #!",
            "more": "self.last = None",
        },
        "parameter_unused": {"more": "self.scale = nn.Parameter(torch.ones(num_heads))"},
        "mask_not_a_buffer": {
            "more": "self.future = torch.ones(64, 64, dtype=torch.bool).triu(diagonal=1)",
            "future": "future = self.future[:length, :length]",
        },
        "input_changed_in_place": {"first": "x.div_(x.norm(dim=-1, keepdim=True))"},
        "parameters_not_registered": {
            "query": "self.inputs = [nn.Linear(embed_dim, embed_dim, bias=False) for _ in range(3)]",
            "key": "",
            "value": "",
            "q": "q, k, v = (layer(x) for layer in self.inputs)",
            "k": "",
            "v": "",
        },
    },
    make="MultiHeadAttention(embed_dim=D, num_heads=H)",
)
