"""The attention block: one fused projection, heads as views, one mask, one output projection.

Sizes: B batch, T tokens, D = d_model, H = n_heads, d = d_head = D / H. Every function also serves a stack of M models:
parameters then carry a leading M, and so do their inputs. Nothing else changes.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mhsa_cli.core.layers import Dropout, Linear
from mhsa_cli.core.positions import Positions


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """View (..., T, D) as heads: (..., H, T, d). No data is copied."""
    return x.unflatten(-1, (n_heads, -1)).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """Undo `split_heads`: (..., H, T, d) to (..., T, D), heads side by side."""
    return x.transpose(-3, -2).flatten(-2)


def attention_scores(q: Tensor, k: Tensor, bias: Tensor | None = None) -> Tensor:
    """Score every query against every key: q (..., Tq, d), k (..., Tk, d) to (..., Tq, Tk).

    The divisor is sqrt(d_head), not sqrt(d_model). `bias` is added and must broadcast.
    Source: Vaswani et al. 2017.
    """
    # One layout whatever the sizes: rounding must not depend on how many models are stacked.
    scores = q.contiguous() @ k.contiguous().transpose(-2, -1) / math.sqrt(q.size(-1))
    return scores if bias is None else scores + bias


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Normalise scores over the keys a query may see (`mask` True), in float32 at least.

    Shapes: scores (..., Tq, Tk); mask boolean, broadcastable to them.
    A row without any visible key gives zeros, and zero gradient, not NaN.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if mask is None:
        return scores.softmax(-1)
    # An empty row is made harmless before the softmax: patching its NaN afterwards would leave NaN in the gradient.
    empty = ~mask.any(-1, keepdim=True)
    weights = scores.masked_fill(~mask, -math.inf).masked_fill(empty, 0.0).softmax(-1)
    return weights.masked_fill(empty, 0.0)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Give each query's distribution over the keys: (..., Tq, Tk), rows sum to one, before any dropout."""
    return masked_softmax(attention_scores(q, k, bias), mask)


def uniform_weights(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Spread every query evenly over the keys it may see. Shapes: mask (..., Tq, Tk), the result the same."""
    return mask.to(dtype) / mask.sum(-1, keepdim=True).clamp(min=1)


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    """Attend without materialising the weights: q, k, v (..., H, T, d) to (..., H, T, d).

    `mask` None means causal; fewer queries than keys are the last ones. Equal to `attention_weights(...) @ v` to
    rounding.
    """
    lead, (T, d) = q.shape[:-2], q.shape[-2:]
    # The CPU kernel takes four dimensions only: a stack's M folds into the batch.
    q, k, v = (t if t.dim() == 4 else t.flatten(0, t.dim() - 4) for t in (q, k, v))
    if q.device.type == "mps":  # some of its kernels misread strided views
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    if mask is None and bias is None and k.size(-2) == T:  # is_causal would align at the first key
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.view(*lead, T, d)
    if mask is None:
        mask = torch.ones(T, k.size(-2), dtype=torch.bool, device=q.device).tril(k.size(-2) - T)
    empty = ~mask.any(-1, keepdim=True)  # (..., Tq, 1); see masked_softmax
    allowed = mask | empty
    if bias is not None:
        allowed = bias.to(q.dtype).masked_fill(~allowed, -math.inf)
    while allowed.dim() < len(lead) + 2:
        allowed = allowed.unsqueeze(0)
    allowed = allowed.expand(*lead, *allowed.shape[-2:]).reshape(*q.shape[:2], *allowed.shape[-2:])
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    return out.view(*lead, T, d).masked_fill(empty, 0.0)


class MultiHeadSelfAttention(nn.Module):
    """Causal multi-head self-attention with one fused `qkv_proj` (D to 3D) and one `out_proj` (D to D).

    Shapes: x (B, T, D) to (B, T, D); weights (B, H, T, T). `mask` is boolean, True = may attend, broadcastable to
    (B, H, T, T); it is combined with the causal mask by `&`.
    Kinds: "softmax", or "uniform": attention frozen evenly over the past, the control that learns no pattern.
    Raises: ValueError if n_heads does not divide d_model, or an input is longer than max_seq_len.
    Example: `y, weights = MultiHeadSelfAttention(32, 4, max_seq_len=12)(x, return_weights=True)`
    """

    causal_mask: Tensor

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        max_seq_len: int,
        bias: bool = True,
        dropout: float = 0.0,
        kind: str = "softmax",
        positions: Positions | None = None,
    ) -> None:
        super().__init__()
        if n_heads < 1:
            raise ValueError(f"n_heads ({n_heads}) must be at least 1")
        if d_model % n_heads:
            raise ValueError(f"d_model ({d_model}) must be divisible by n_heads ({n_heads})")
        if kind not in ("softmax", "uniform"):
            raise ValueError(f"attention kind {kind!r} is not one of softmax, uniform")
        self.d_model, self.n_heads, self.d_head = d_model, n_heads, d_model // n_heads
        self.max_seq_len, self.kind = max_seq_len, kind
        self.qkv_proj = Linear(d_model, 3 * d_model, bias)  # rows: Q of all heads, then K, then V
        self.out_proj = Linear(d_model, d_model, bias)
        self.weights_dropout = Dropout(dropout)
        self.out_dropout = Dropout(dropout)
        self.positions = positions or Positions()
        # Not saved: it follows from max_seq_len, and a saved copy would contradict a changed config.
        mask = torch.ones(max_seq_len, max_seq_len, dtype=torch.bool).tril()
        self.register_buffer("causal_mask", mask, persistent=False)

    def project(self, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute every head's queries, keys and values: x (..., T, D) to three (..., H, T, d)."""
        q, k, v = (split_heads(t, self.n_heads) for t in self.qkv_proj(x).chunk(3, dim=-1))
        q, k = self.positions.rotate(q, k, pos)
        return q, k, v

    def weights(self, q: Tensor, k: Tensor, mask: Tensor | None, pos: Tensor) -> Tensor:
        """Materialise the attention weights (..., H, T, T), before dropout."""
        T = q.size(-2)
        allowed = self.causal_mask[:T, :T]
        if mask is not None:
            allowed = allowed & mask
        if self.kind == "uniform":
            even = uniform_weights(allowed, torch.promote_types(q.dtype, torch.float32))
            return even.expand(*q.shape[:-1], T)
        return attention_weights(q, k, allowed, self.positions.bias(pos, pos))

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, return_weights: bool = False, pos: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend: x (..., T, D) to (..., T, D), and with `return_weights` also the weights (..., H, T, T)."""
        if x.dim() < 3 or x.size(-1) != self.d_model:
            raise ValueError(f"input must be (B, T, d_model={self.d_model}), got {tuple(x.shape)}")
        T = x.size(-2)
        if self.max_seq_len < T:
            raise ValueError(f"input length T={T} exceeds max_seq_len={self.max_seq_len}")
        if mask is not None and mask.dtype != torch.bool:
            raise ValueError(f"mask must be boolean (True = may attend), got {mask.dtype}")
        pos = torch.arange(T, device=x.device) if pos is None else pos
        q, k, v = self.project(x, pos)
        dropping = self.training and self.weights_dropout.p > 0
        if self.kind == "softmax" and not return_weights and not dropping:
            combined = None if mask is None else self.causal_mask[:T, :T] & mask
            context = fused_attention(q, k, v, combined, self.positions.bias(pos, pos))
            return self.out_dropout(self.out_proj(merge_heads(context)))
        weights = self.weights(q, k, mask, pos)
        context = self.weights_dropout(weights).to(v.dtype) @ v  # (..., H, T, d)
        y = self.out_dropout(self.out_proj(merge_heads(context)))
        return (y, weights) if return_weights else y
