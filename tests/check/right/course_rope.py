"""The block of a course that starts from nothing: its own Linear, its own softmax, rotary positions."""

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    def __init__(self, in_features: int, out_features: int, device=None, dtype=None) -> None:
        super().__init__()
        std = (2.0 / (in_features + out_features)) ** 0.5
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        nn.init.trunc_normal_(self.weight, std=std, a=-3 * std, b=3 * std)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("...i,oi->...o", x, self.weight)


class RotaryPositionalEmbedding(nn.Module):
    def __init__(self, theta: float, d_k: int, max_seq_len: int, device=None) -> None:
        super().__init__()
        rates = 1.0 / theta ** (torch.arange(0, d_k, 2, device=device) / d_k)
        angles = torch.arange(max_seq_len, device=device)[:, None] * rates[None, :]
        self.register_buffer("cosines", torch.cos(angles), persistent=False)
        self.register_buffer("sines", torch.sin(angles), persistent=False)

    def forward(self, x: Tensor, token_positions: Tensor) -> Tensor:
        cos, sin = self.cosines[token_positions], self.sines[token_positions]
        if cos.dim() == 3:  # (B, T, d / 2): the same for every head
            cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        first, second = x[..., ::2], x[..., 1::2]
        turned = torch.empty_like(x)
        turned[..., ::2] = first * cos - second * sin
        turned[..., 1::2] = first * sin + second * cos
        return turned


def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = torch.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    scores = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return torch.einsum("...qk,...kd->...qd", scores / scores.sum(dim=-1, keepdim=True), v)


class MultiHeadSelfAttention(nn.Module):
    def __init__(
        self, d_model: int, num_heads: int, max_seq_len: int, rope_theta: float = 10000.0, device=None, dtype=None
    ) -> None:
        super().__init__()
        assert d_model % num_heads == 0
        self.d_model, self.num_heads, self.head_dim = d_model, num_heads, d_model // num_heads
        self.q_proj = Linear(d_model, d_model, device, dtype)
        self.k_proj = Linear(d_model, d_model, device, dtype)
        self.v_proj = Linear(d_model, d_model, device, dtype)
        self.out_proj = Linear(d_model, d_model, device, dtype)
        self.rope = RotaryPositionalEmbedding(rope_theta, self.head_dim, max_seq_len, device)
        triangle = torch.ones(max_seq_len, max_seq_len, dtype=torch.bool, device=device).tril()
        self.register_buffer("causal_mask", triangle, persistent=False)

    def forward(self, x: Tensor, token_positions: Tensor) -> Tensor:
        batch, seq_len, _ = x.shape

        def by_head(t: Tensor) -> Tensor:
            return t.view(batch, seq_len, self.num_heads, self.head_dim).transpose(1, 2)

        q = self.rope(by_head(self.q_proj(x)), token_positions)
        k = self.rope(by_head(self.k_proj(x)), token_positions)
        v = by_head(self.v_proj(x))
        out = scaled_dot_product_attention(q, k, v, mask=self.causal_mask[:seq_len, :seq_len])
        return self.out_proj(out.transpose(1, 2).contiguous().view(batch, seq_len, self.d_model))
