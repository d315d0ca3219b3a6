"""Multi-head self-attention: one fused projection, heads as views, one mask, one output projection.

Sizes: B batch, T tokens, D = d_model, H = n_heads, G = n_kv_heads, d = d_head (default: D / H). All functions also
take a stack of M models, whose parameters and inputs have a leading M.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mhsa_cli.config.custom_attention import KINDS
from mhsa_cli.core.model.blockwise_attention import blockwise_attention
from mhsa_cli.core.model.kv_cache import LayerCache
from mhsa_cli.core.model.layers import AnyDevice, Dropout, Linear, WithTables, product
from mhsa_cli.core.model.linear_attention import linear_attention, linear_weights, unmasked_linear_attention
from mhsa_cli.core.model.positions import Positions
from mhsa_cli.core.model.projections import NamedProjections
from mhsa_cli.core.ranges import check_boolean, check_heads, check_mask, check_positions, check_size, check_vectors

LONG = 512  # tokens of a row from which blocks of queries are as fast as the kernels on a CPU, and need less memory


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """View (..., T, D) as heads: (..., H, T, d). No data is copied."""
    return x.unflatten(-1, (n_heads, -1)).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """Undo `split_heads`: (..., H, T, d) to (..., T, D), heads side by side."""
    return x.transpose(-3, -2).flatten(-2)


def attention_scores(q: Tensor, k: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute the scores q k^T / sqrt(d_head): q (..., Tq, d), k (..., Tk, d) to (..., Tq, Tk).

    `bias` is added and must broadcast. Source: Vaswani et al. 2017.
    """
    # Always contiguous: rounding must not depend on the number of stacked models.
    scores = product(q.contiguous() / math.sqrt(q.size(-1)), k.contiguous().transpose(-2, -1))
    return scores if bias is None else scores + bias


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Compute the softmax of scores over the visible keys (`mask` True), in float32 or higher.

    Shapes: scores (..., Tq, Tk); mask boolean, broadcastable to them. A row without a visible key gives zeros and zero
    gradient, not NaN.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if mask is None:
        return scores.softmax(-1)
    check_boolean("mask", mask)
    empty = ~mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask, -math.inf)
    if not empty.is_meta and not bool(empty.any()):
        return scores.softmax(-1)
    # Empty rows are filled before the softmax: replacing its NaN afterwards would leave NaN in the gradient.
    return scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Compute the attention weights before dropout: (..., Tq, Tk), rows sum to one."""
    return masked_softmax(attention_scores(q, k, bias), mask)


def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attend: q (..., Tq, d), k (..., Tk, d), v (..., Tk, dv) to (..., Tq, dv); `mask` boolean, True = may attend.

    Without a mask every query attends to every key. A query without a visible key gives zeros.
    """
    return product(attention_weights(q, k, mask).to(v.dtype), v)


def uniform_weights(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute uniform attention weights over the visible keys of a mask (..., Tq, Tk), in its shape."""
    return mask.to(dtype) / mask.sum(-1, keepdim=True).clamp(min=1)


def share_heads(x: Tensor, n_heads: int) -> Tensor:
    """Repeat KV heads for the query heads: (..., G, T, d) to (..., H, T, d); head h uses group h // (H / G).

    Source: Ainslie et al. 2023 (grouped-query attention); G = 1 is Shazeer 2019 (multi-query).
    """
    groups = x.size(-3)
    return x if groups == n_heads else x.repeat_interleave(n_heads // groups, dim=-3)


def causal_window(n_queries: int, n_keys: int, window: int | None = None, device: AnyDevice = None) -> Tensor:
    """Build the causal mask (Tq, Tk), True = visible, of the last Tq queries; each sees the last `window` keys."""
    mask = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril(n_keys - n_queries)
    return mask if window is None else mask.triu(n_keys - n_queries - window + 1)


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, *, causal: bool = True
) -> Tensor:
    """Attend without materialising the weights: q, k, v (..., H, T, d) to (..., H, T, d).

    With `mask` None every query sees the keys up to its own, or all keys if not `causal`; fewer queries than keys are
    the last ones. Equal to `attention_weights(...) @ v` to rounding. Source: Dao et al. 2022, in torch.
    """
    lead, T, d = q.shape[:-2], q.size(-2), v.size(-1)
    # The CPU kernel needs four dimensions: fold a stack's M into the batch.
    q, k, v = (t.flatten(0, t.dim() - 4) if t.dim() > 3 else t[(None,) * (4 - t.dim())] for t in (q, k, v))
    if q.device.type == "mps":  # some of its kernels misread strided views
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    causal = causal and T > 1  # a single query is the last one and sees all keys
    if mask is None and bias is None and (not causal or k.size(-2) == T):  # is_causal aligns at the first key
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).view(*lead, T, d)
    if mask is None:
        mask = causal_window(T, k.size(-2), device=q.device) if causal else mask_all(T, k.size(-2), q.device)
    empty = ~mask.any(-1, keepdim=True)  # (..., Tq, 1); see masked_softmax
    allowed = mask | empty
    if bias is not None:
        allowed = bias.to(q.dtype).masked_fill(~allowed, -math.inf)
    allowed = allowed[(None,) * (len(lead) + 2 - allowed.dim())]
    if allowed.shape[: len(lead) - 1].numel() > 1:  # it differs between rows
        allowed = allowed.expand(*lead, *allowed.shape[-2:])
    allowed = allowed.reshape(allowed.shape[:-3].numel(), *allowed.shape[-3:])  # (M*B or 1, H or 1, Tq, Tk)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    return out.view(*lead, T, d).masked_fill(empty, 0.0)


def mask_all(n_queries: int, n_keys: int, device: torch.device) -> Tensor:
    """Build a mask where every query sees every key."""
    return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)


class MultiHeadSelfAttention(NamedProjections, WithTables):
    """Multi-head self-attention, causal by default: one fused `qkv_proj` (D to (H + 2G) d), one `out_proj` (H d to D).

    Shapes: x (B, T, D) to (B, T, D), or (M, B, T, D) in a stack; weights (B, H, T, T). Parameters: qkv_proj.weight
    ((H + 2G) d, D), its rows q of all heads, then k, then v; out_proj.weight (D, H d). W_Q, W_K, W_V, W_O, each
    (d_out, d_in), and b_Q, b_K, b_V, b_O are views of them, to read and to write.
    Raises: ValueError for an argument that is out of range or does not fit.
    Example: `y, weights = MultiHeadSelfAttention(32, 4, 12)(x, return_weights=True)`
    Source: Vaswani et al. 2017.
    """

    visible: Tensor

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        max_seq_len: int = 1024,
        *,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        kind: str = "softmax",
        window: int | None = None,
        positions: Positions | None = None,
        causal: bool = True,
        device: AnyDevice = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Build the block and draw its weights.

        d_model: width D of input and output, a multiple of n_heads unless d_head is given.
        n_heads: number of heads H.
        max_seq_len: longest input, tokens; the mask `visible` is (max_seq_len, max_seq_len).
        n_kv_heads: key/value heads G, a divisor of n_heads; each serves H / G query heads. None: H; 1: multi-query.
        d_head: width d of a head. None: D / H.
        bias: whether both projections have biases.
        dropout: probability in [0, 1) of dropping attention weights and outputs in training.
        kind: "softmax"; "linear" (a feature map in its place); "uniform" (equal weights on all visible keys, frozen).
        window: number of keys that a query sees, its own the last one; None: all before it. Softmax only.
        positions: a module of `core.model.positions` that rotates q and k or adds to the scores; None: no positions.
        causal: whether a query sees the keys up to its own; False: all keys, as in an encoder.
        device, dtype: those of the parameters, as in torch.nn.Linear.
        """
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        self.d_head = check_heads(d_model, n_heads, n_kv_heads, d_head)
        check_size("max_seq_len", max_seq_len)
        if kind not in KINDS:
            raise ValueError(f"attention kind {kind!r} is not one of {', '.join(KINDS)}")
        if window is not None:
            check_size("window", window)
            if kind != "softmax":
                raise ValueError(f"window ({window}) belongs to kind 'softmax', got kind {kind!r}")
            if not causal:
                raise ValueError(f"window ({window}) ends at the query: it needs causal=True")
        self.d_model, self.n_heads, self.n_kv_heads = d_model, n_heads, n_kv_heads
        self.max_seq_len, self.kind, self.window, self.causal = max_seq_len, kind, window, causal
        self.masked = window is not None  # by more than the kernels' own causal mask
        self.widths = [heads * self.d_head for heads in (n_heads, n_kv_heads, n_kv_heads)]  # of q, k and v
        self.qkv_proj = Linear(d_model, sum(self.widths), bias, device=device, dtype=dtype)
        self.out_proj = Linear(self.widths[0], d_model, bias, device=device, dtype=dtype)
        self.weights_dropout = Dropout(dropout)
        self.out_dropout = Dropout(dropout)
        if positions is not None and not isinstance(positions, Positions):
            raise ValueError(f"positions ({positions!r}) must be one of the modules of mhsa_cli.core.model.positions")
        self.positions = positions or Positions()
        self.positions.check_fit(self.d_head, n_heads, kind, max_seq_len)
        self.register_tables(device)

    def tables(self, device: AnyDevice) -> dict[str, Tensor]:
        """Compute the keys that each query sees, (max_seq_len, max_seq_len) boolean, True = may attend."""
        mask = causal_window(self.max_seq_len, self.max_seq_len, self.window, device)
        return {"visible": mask if self.causal else torch.ones_like(mask)}

    def project(self, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries (..., H, T, d), keys and values (..., G, T, d) of x (..., T, D), q and k rotated by `pos`."""
        return self._by_head(self.qkv_proj(x), pos)

    def _by_head(self, qkv: Tensor, pos: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = qkv.split(self.widths, dim=-1)
        q, k, v = split_heads(q, self.n_heads), split_heads(k, self.n_kv_heads), split_heads(v, self.n_kv_heads)
        q, k = self.positions.rotate(q, k, pos)
        return q, k, v

    def attend(self, qkv: Tensor, pos: Tensor) -> Tensor:
        """Attend with the outputs of `qkv_proj` on whole rows, (..., T, (H + 2G) d), to (..., T, H d)."""
        return merge_heads(self._attend(*self._by_head(qkv, pos), pos)[0])

    def weights(
        self, q: Tensor, k: Tensor, mask: Tensor | None, pos: Tensor, k_pos: Tensor | None = None, first: int = 0
    ) -> Tensor:
        """Materialise the weights of queries (..., H, Tq, d) on keys (..., H, Tk, d), before dropout: (..., H, Tq, Tk).

        Queries have the indices first, first + 1, ... in the sequence; keys start at 0.
        """
        allowed = self.visible[first : first + q.size(-2), : k.size(-2)]
        if mask is not None:
            allowed = allowed & mask
        if self.kind == "uniform":
            uniform = uniform_weights(allowed, torch.promote_types(q.dtype, torch.float32))
            return uniform.expand(*q.shape[:-1], k.size(-2))
        if self.kind == "linear":
            return linear_weights(q, k, allowed)
        return attention_weights(q, k, allowed, self.positions.bias(pos, pos if k_pos is None else k_pos))

    def weights_by_rows(self, q: Tensor, k: Tensor, pos: Tensor, rows: int) -> Iterator[tuple[int, int, Tensor]]:
        """Yield the weights in blocks of `rows` queries, (first, end, weights), on all keys that these may see.

        q and k (..., H, T, d) are of a whole sequence; no (T, T) tensor is made. Keys are the first ones: those before
        `end` if the block is causal.
        """
        for first in range(0, q.size(-2), rows):
            end = min(first + rows, q.size(-2))
            keys = end if self.causal else q.size(-2)
            part = q[..., first:end, :], k[..., :keys, :]
            yield first, end, self.weights(*part, None, pos[first:end], pos[:keys], first)

    def by_blocks(self, T: int, dropping: bool) -> bool:
        """Whether rows of T tokens are attended to by blocks of queries, where torch's kernel needs a (T, T) tensor."""
        biased = self.positions.overrides("bias")
        if T < LONG or self.kind != "softmax" or not (dropping or biased or self.window is not None):
            return False
        if self.masked and self.window is None or torch.compiler.is_compiling():  # it cannot trace the blocks
            return False
        return not (biased and any(p.requires_grad for p in self.positions.parameters()))

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        return_weights: bool = False,
        pos: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend: x (..., T, D) to (..., T, D), and with `return_weights` also the weights (..., H, T, Tk).

        mask: boolean, True = may attend, broadcastable to (..., H, T, Tk); combined with `visible` by `&`. Float masks
            are refused, and inverted ones that leave no key. A query without a visible key has weights of zeros.
        return_weights: materialise the weights, before dropout, in place of the fused kernel.
        pos: positions of the tokens, (T,) or (B, T), int64; None: they count on from the cache, or from 0.
        cache: keys and values of the tokens before x, which x then attends to as well; it is extended. Tk counts both.
        """
        if x.dim() < 3 or x.size(-1) != self.d_model:
            raise ValueError(f"input must be (B, T, d_model={self.d_model}), got {tuple(x.shape)}")
        check_vectors(x)
        T, past = x.size(-2), 0 if cache is None else cache.length
        if cache is not None and not self.causal:
            raise ValueError("a cache needs causal=True: without a mask, new tokens change what earlier ones attend to")
        if past + T > self.max_seq_len:
            cached = f" after {past} cached tokens" if past else ""
            raise ValueError(f"input length T={T}{cached} exceeds max_seq_len={self.max_seq_len}")
        if mask is not None:
            visible = self.visible[past : past + T, : past + T]
            check_mask(mask, (*x.shape[:-2], self.n_heads, T, past + T), visible)
        if pos is None:
            pos = torch.arange(past, past + T, device=x.device)
        else:
            check_positions(pos, tuple(x.shape[:-1]), x.device)
        context, weights = self._attend(*self.project(x, pos), pos, mask, cache, return_weights)
        y = self.out_dropout(self.out_proj(merge_heads(context)))
        return y if weights is None else (y, weights)

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        pos: Tensor,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
        return_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend with projected heads, as of `project`: (..., H, T, d), and if wanted the weights."""
        T, past = q.size(-2), 0 if cache is None else cache.length
        dropping = self.training and self.weights_dropout.p > 0
        free = mask is None and past == 0 and not return_weights and q.device.type == "cpu"
        by_blocks = free and self.by_blocks(T, dropping)
        exact = return_weights or (dropping and not by_blocks) or self.kind == "uniform"
        if self.kind == "linear" and cache is not None and (exact or mask is not None):
            raise ValueError(
                "linear attention holds no keys in its cache: weights, mask and dropout are not supported with one"
            )
        if self.kind == "linear" and mask is None and not exact:
            k, v = share_heads(k, self.n_heads), share_heads(v, self.n_heads)
            return linear_attention(q, k, v, cache) if self.causal else unmasked_linear_attention(q, k, v), None
        k_pos = pos
        if cache is not None:
            k, v, k_pos = cache.extend(k, v, pos)
        k, v = share_heads(k, self.n_heads), share_heads(v, self.n_heads)
        if by_blocks:
            form: dict[str, Any] = {"window": self.window, "positions": self.positions}
            form |= {"causal": self.causal, "dropout": self.weights_dropout}
            return blockwise_attention(q, k, v, pos, **form), None
        if exact or self.kind == "linear":
            weights = self.weights(q, k, mask, pos, k_pos, past)
            context = product(self.weights_dropout(weights).to(v.dtype), v)  # (..., H, T, d)
            return context, weights if return_weights else None
        combined = None
        if mask is not None or self.masked:
            combined = self.visible[past : past + T, : past + T]
            combined = combined if mask is None else combined & mask
        return fused_attention(q, k, v, combined, self.positions.bias(pos, k_pos), causal=self.causal), None
