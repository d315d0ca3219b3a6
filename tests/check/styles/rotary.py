"""Styles with rotary positions: `rope` (pairs, positions given), `rope_half` (fused, halves), `rope_complex`."""

from tests.check.styles.template import Style

_PAIRS = """
import torch
from torch import nn


class RotaryEmbedding(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        rates = theta ** (-torch.arange(0, d_k, 2) / d_k)  #: rates
        angles = torch.outer(torch.arange(max_seq_len), rates)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x, token_positions):
        cos, sin = self.cos[token_positions], self.sin[token_positions]  #: look_up
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)  #: turn
        return turned.flatten(-2)


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model, num_heads, max_seq_len, rope_theta=10000.0):
        super().__init__()
        assert d_model % num_heads == 0
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)
        self.rope = RotaryEmbedding(rope_theta, self.head_dim, max_seq_len)
        causal = torch.tril(torch.ones(max_seq_len, max_seq_len, dtype=torch.bool))
        self.register_buffer("causal_mask", causal, persistent=False)

    def split(self, x):
        return x.view(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def forward(self, x, token_positions):
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(x))
        v = self.split(self.v_proj(x))
        q = self.rope(q, token_positions)  #: q
        k = self.rope(k, token_positions)  #: k
        #: more
        seq_len = x.size(1)
        scores = q @ k.transpose(-1, -2) / self.head_dim**0.5
        scores = scores.masked_fill(~self.causal_mask[:seq_len, :seq_len], float("-inf"))
        context = torch.softmax(scores, dim=-1) @ v
        return self.out_proj(context.transpose(1, 2).flatten(2))
"""

ROPE = Style(
    "rope",
    "MultiHeadSelfAttention",
    _PAIRS,
    {
        "rope_on_value": {"more": "v = self.rope(v, token_positions)"},
        "rope_ignored": {"q": "", "k": ""},
        "rope_over_heads": {
            "q": "q = self.rope(q.transpose(1, 2), torch.arange(self.num_heads)).transpose(1, 2)",
            "k": "k = self.rope(k.transpose(1, 2), torch.arange(self.num_heads)).transpose(1, 2)",
        },
        "rope_exponent": {"rates": "rates = theta ** (-(torch.arange(0, d_k, 2) + 2) / d_k)"},
        "rope_only_query": {"k": ""},
        "rope_key_shifted": {"k": "k = self.rope(k, token_positions + 1)"},
        "rope_pairs_differ": {
            "k": "k = self.rope(k.unflatten(-1, (2, -1)).mT.flatten(-2), token_positions)\n"
            "k = k.unflatten(-1, (-1, 2)).mT.flatten(-2)"
        },
        "rope_angles_mixed": {
            "turn": "cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)\n"
            "turned = (x * cos + torch.stack((-odd, even), dim=-1).flatten(-2) * sin).unflatten(-1, (-1, 2))"
        },
        "rope_backwards": {"turn": "turned = torch.stack((even * cos + odd * sin, odd * cos - even * sin), dim=-1)"},
    },
    make="MultiHeadSelfAttention(D, H, max_seq_len=16)",
    call="block(x, torch.arange(T))",
)

_HALVES = """
import math

import torch
from torch import nn


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)  #: half


class RopeAttention(nn.Module):
    def __init__(self, hidden_size, num_attention_heads, base=10000.0):
        super().__init__()
        self.n_heads, self.head_dim = num_attention_heads, hidden_size // num_attention_heads
        self.qkv_proj = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        self.o_proj = nn.Linear(hidden_size, hidden_size, bias=False)
        inv_freq = 1.0 / base ** (torch.arange(0, self.head_dim, 2).float() / self.head_dim)  #: rates
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, hidden_states):
        bsz, q_len, _ = hidden_states.shape
        qkv = self.qkv_proj(hidden_states).view(bsz, q_len, 3, self.n_heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        angle = torch.arange(q_len)[:, None] * self.inv_freq  #: angle
        angle = torch.cat((angle, angle), dim=-1)  #: laid_out
        cos, sin = angle.cos(), angle.sin()
        q = q * cos + rotate_half(q) * sin  #: q
        k = k * cos + rotate_half(k) * sin  #: k
        #: more
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.head_dim)
        scores = scores + torch.full((q_len, q_len), -torch.inf).triu(1)
        attn_output = torch.matmul(scores.softmax(-1), v).transpose(1, 2)
        return self.o_proj(attn_output.reshape(bsz, q_len, -1))
"""

ROPE_HALF = Style(
    "rope_half",
    "RopeAttention",
    _HALVES,
    {
        "rope_on_value": {"more": "v = v * cos + rotate_half(v) * sin"},
        "rope_ignored": {"q": "q, k = q.contiguous(), k.contiguous()", "k": ""},
        "rope_over_heads": {"angle": "angle = torch.arange(self.n_heads)[:, None, None] * self.inv_freq"},
        "rope_exponent": {
            "rates": "inv_freq = 1.0 / base ** (2 * torch.arange(0, self.head_dim, 2).float() / self.head_dim)"
        },
        "rope_only_query": {"k": ""},
        "rope_key_shifted": {"k": "k = k * cos.roll(1, 0) + rotate_half(k) * sin.roll(1, 0)"},
        "rope_pairs_differ": {
            "k": "k_turned = torch.stack((-k[..., 1::2], k[..., ::2]), dim=-1).flatten(-2)\n"
            "k = k * angle.chunk(2, -1)[0].repeat_interleave(2, -1).cos() + (  #!\n"
            "    k_turned * angle.chunk(2, -1)[0].repeat_interleave(2, -1).sin())"
        },
        "rope_angles_mixed": {"laid_out": "angle = angle.repeat_interleave(2, dim=-1)"},
        "rope_backwards": {"half": "return torch.cat((second, -first), dim=-1)"},
    },
    make="RopeAttention(hidden_size=D, num_attention_heads=H)",
)

_POLAR = """
import torch
import torch.nn as nn
import torch.nn.functional as F


def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: dim // 2] / dim))  #: rates
    freqs = torch.outer(torch.arange(end), freqs)
    return torch.polar(torch.ones_like(freqs), freqs)  #: polar


def apply_rotary_emb(x, freqs_cis):
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(pairs * freqs_cis).flatten(3).type_as(x)  #: apply


class Attention(nn.Module):
    def __init__(self, dim, n_heads, max_seq_len=64):
        super().__init__()
        self.n_heads, self.head_dim = n_heads, dim // n_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.freqs_cis = precompute_freqs_cis(self.head_dim, max_seq_len)

    def forward(self, x):
        bsz, seqlen, _ = x.shape
        xq, xk, xv = (w(x).view(bsz, seqlen, self.n_heads, self.head_dim) for w in (self.wq, self.wk, self.wv))
        freqs_cis = self.freqs_cis[:seqlen, None]  #: rows
        xq = apply_rotary_emb(xq, freqs_cis)  #: q
        xk = apply_rotary_emb(xk, freqs_cis)  #: k
        #: more
        xq, xk, xv = (t.transpose(1, 2) for t in (xq, xk, xv))
        output = F.scaled_dot_product_attention(xq, xk, xv, is_causal=True)
        return self.wo(output.transpose(1, 2).reshape(bsz, seqlen, -1))
"""

ROPE_COMPLEX = Style(
    "rope_complex",
    "Attention",
    _POLAR,
    {
        "rope_on_value": {"more": "xv = apply_rotary_emb(xv, freqs_cis)"},
        "rope_ignored": {"apply": "return torch.view_as_real(pairs).flatten(3).type_as(x)"},
        "rope_over_heads": {"rows": "freqs_cis = self.freqs_cis[: self.n_heads]"},
        "rope_exponent": {"rates": "freqs = 1.0 / (theta ** (torch.arange(dim // 2) / dim))"},
        "rope_only_query": {"k": ""},
        "rope_key_shifted": {"k": "xk = apply_rotary_emb(xk, self.freqs_cis[1 : seqlen + 1, None])"},
        "rope_pairs_differ": {
            "k": "xk = apply_rotary_emb(xk.unflatten(-1, (2, -1)).mT.flatten(-2), freqs_cis)\n"
            "xk = xk.unflatten(-1, (-1, 2)).mT.flatten(-2)"
        },
        "rope_angles_mixed": {
            "apply": "cos, sin = (torch.cat((part, part), -1) for part in (freqs_cis.real, freqs_cis.imag))\n"
            "return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin"
        },
        "rope_backwards": {"apply": "return torch.view_as_real(pairs * freqs_cis.conj()).flatten(3).type_as(x)"},
    },
    make="Attention(D, H)",
)
