"""Cross-attention: queries of one sequence, keys and values of another."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mhsa_cli.core.model.attention import (
    attention_weights,
    fused_attention,
    mask_all,
    merge_heads,
    share_heads,
    split_heads,
)
from mhsa_cli.core.model.layers import AnyDevice, Linear
from mhsa_cli.core.ranges import check_boolean, check_heads, check_size, check_vectors


class MultiHeadCrossAttention(nn.Module):
    """Multi-head attention of x to every token of another sequence, `context`, without a causal mask.

    Shapes: x (B, Tq, D), context (B, Tk, d_context) to (B, Tq, D); weights (B, H, Tq, Tk).
    Raises: ValueError for an argument that is out of range or does not fit.
    Example: `y = MultiHeadCrossAttention(32, 4)(decoder_states, encoder_states, padding=ids != 0)`
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_context: int | None = None,
        n_kv_heads: int | None = None,
        bias: bool = True,
        device: AnyDevice = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Build the block and draw its weights.

        d_model: width D of x and of the output, a multiple of n_heads.
        n_heads: number of heads H; each is d_head = D / H wide.
        d_context: width of the context; None: d_model.
        n_kv_heads: key/value heads G, a divisor of n_heads; each serves H / G query heads. None: H.
        bias: whether the three projections have biases.
        device, dtype: those of the parameters, as in torch.nn.Linear.
        """
        super().__init__()
        self.n_heads, self.n_kv_heads = n_heads, n_heads if n_kv_heads is None else n_kv_heads
        check_heads(d_model, n_heads, self.n_kv_heads)
        self.d_context = d_model if d_context is None else d_context
        check_size("d_context", self.d_context)
        self.d_model, self.d_head = d_model, d_model // n_heads
        self.q_proj = Linear(d_model, d_model, bias, device=device, dtype=dtype)
        kv_width = 2 * self.n_kv_heads * self.d_head  # rows: K, then V
        self.kv_proj = Linear(self.d_context, kv_width, bias, device=device, dtype=dtype)
        self.out_proj = Linear(d_model, d_model, bias, device=device, dtype=dtype)

    def forward(
        self, x: Tensor, context: Tensor, *, padding: Tensor | None = None, return_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend: x (B, Tq, D) to (B, Tq, D), and with `return_weights` also the weights (B, H, Tq, Tk).

        padding: boolean (B, Tk), True where context holds a real token; a row of padding alone gives zeros.
        """
        sizes = x.dim() > 2 and x.shape[:-2] == context.shape[:-2] and context.size(-2) > 0
        if not sizes or x.size(-1) != self.d_model or context.size(-1) != self.d_context:
            found = f"{tuple(x.shape)} and {tuple(context.shape)}"
            raise ValueError(f"wanted x (B, Tq, {self.d_model}) and context (B, Tk, {self.d_context}), got {found}")
        check_vectors(x, context)
        if padding is not None:
            check_boolean("padding", padding)
            if padding.shape != context.shape[:-1]:
                raise ValueError(f"padding must be {tuple(context.shape[:-1])}, got {tuple(padding.shape)}")
        q = split_heads(self.q_proj(x), self.n_heads)  # (B, H, Tq, d)
        k, v = (
            share_heads(split_heads(t, self.n_kv_heads), self.n_heads)  # (B, H, Tk, d)
            for t in self.kv_proj(context).chunk(2, dim=-1)
        )
        mask = None  # or (B, 1, Tq, Tk)
        if padding is not None:
            mask = padding[..., None, None, :] & mask_all(q.size(-2), k.size(-2), x.device)
        if not return_weights:
            return self.out_proj(merge_heads(fused_attention(q, k, v, mask, None, causal=False)))
        weights = attention_weights(q, k, mask)
        return self.out_proj(merge_heads(weights.to(v.dtype) @ v)), weights
