"""Softmax attention by blocks of queries, each with the keys that it sees: no (T, T) tensor in either pass.

The backward pass computes a block's weights again, and draws its dropout again from the same seed.
Source: Rabe and Staats 2021; Dao et al. 2022.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from mhsa_cli.core.model.layers import Dropout
from mhsa_cli.core.model.positions import Positions

QUERIES = 64  # queries of a block
WEIGHTS = 2**17  # attention weights computed together: they stay in a core's cache
STEPS = 2**16  # 16 random bits tell whether a weight is dropped
LOG2_E = 1 / math.log(2)  # scores are in units of ln 2: exp is slower than exp2, on -inf ten times


def blockwise_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pos: Tensor,
    *,
    causal: bool = True,
    window: int | None = None,
    positions: Positions | None = None,
    dropout: Dropout | None = None,
) -> Tensor:
    """Attend in memory linear in T: q, k (B, H, T, d), v (B, H, T, dv) to (B, H, T, dv), or a stack with a leading M.

    pos: (T,) or (..., T), for the bias of `positions`, whose parameters get no gradient. causal: a query sees the keys
    up to its own, with `window` only the last ones of them. dropout: while training it drops weights with its p,
    rounded to a multiple of 2^-16, by draws of its generators. Equal to `dropout(attention_weights(...)) @ v` to
    rounding, but for the draws; a model's bits do not depend on its stack.
    """
    drop = min(round(dropout.p * STEPS), STEPS - 1) if dropout is not None and dropout.training else 0
    window = None if window is None or window >= q.size(-2) else window
    generators: Sequence[Generator | None] | None = dropout.generators if dropout is not None and drop else None

    def attend(q: Tensor, k: Tensor, v: Tensor, pos: Tensor, generator: Generator | None) -> Tensor:
        rows = q.shape[:-3]
        pos = pos if pos.dim() == 1 else pos.expand(*rows, -1).flatten(0, -2)
        q, k, v = (t.flatten(0, -4) for t in (q, k, v))
        seeds = _seeds(q, generator) if drop else None
        out: Tensor = _Attend.apply(q, k, v, _Blocks(q, pos, causal, window, positions, drop, seeds))
        return out.unflatten(0, rows)

    if q.dim() < 5:
        return attend(q, k, v, pos, None if generators is None else generators[0])
    # Model by model: the tiles of several models would be others than those of one.
    each_pos = pos.expand(len(q), *pos.shape[1:]) if pos.dim() == q.dim() - 2 else [pos] * len(q)
    each = zip(q, k, v, each_pos, [None] * len(q) if generators is None else generators, strict=True)
    return torch.stack([attend(*parts) for parts in each])


def _seeds(q: Tensor, generator: Generator | None) -> list[int]:
    """Draw a seed for each block of queries."""
    drawn: list[int] = torch.randint(2**31, (-(-q.size(-2) // QUERIES),), generator=generator, device=q.device).tolist()
    return drawn


class _Tile(NamedTuple):
    """Some heads of a block of queries, with all the keys that it sees."""

    heads: slice  # of all B * H
    queries: slice
    keys: slice
    bias: Tensor | None  # (heads, queries, keys), or with the heads in two axes


class _Blocks:
    """The tiles of one model's attention, their scores and their draws; tensors of tiles share their memory."""

    def __init__(
        self,
        q: Tensor,
        pos: Tensor,
        causal: bool,
        window: int | None,
        positions: Positions | None,
        drop: int,
        seeds: Sequence[int] | None,
    ) -> None:
        (self.B, self.H, self.T), self.device = q.shape[:3], q.device
        self.dtype = torch.promote_types(q.dtype, torch.float32)  # as `masked_softmax`
        self.pos, self.causal, self.window = pos, causal, window
        self.positions = positions if positions is not None and positions.overrides("bias") else None
        # What a block of queries does not see of its last keys, (QUERIES, QUERIES - 1 + window); with 1 for no window.
        keys = window or 1
        seen = torch.ones(QUERIES, QUERIES - 1 + keys, dtype=torch.bool, device=q.device).tril(keys - 1)
        self.hidden = ~(seen if window is None else seen.triu())
        self.drop, self.seeds = drop, seeds
        self.generator = None if seeds is None else Generator(q.device)
        self._scratch: dict[str, Tensor] = {}

    def tiles(self) -> Iterator[_Tile]:
        """Yield the tiles in their order, in which dropout must be drawn."""
        for block, first in enumerate(range(0, self.T, QUERIES)):
            queries = slice(first, min(first + QUERIES, self.T))
            start = 0 if self.window is None else max(0, first - self.window + 1)
            keys = slice(start, queries.stop if self.causal else self.T)
            if self.generator is not None and self.seeds is not None:
                self.generator.manual_seed(self.seeds[block])
            bias = None
            if self.positions is not None:
                bias = self.positions.bias(self.pos[..., queries], self.pos[..., keys])
            size = self._heads(QUERIES * (keys.stop - start))
            for head in range(0, self.B * self.H, size):
                part = slice(head, min(head + size, self.B * self.H))
                yield _Tile(part, queries, keys, None if bias is None else self._bias_of(bias, part))

    def _heads(self, weights: int) -> int:
        """Return how many heads are computed together: a divisor or a multiple of H."""
        size = WEIGHTS // weights
        if size >= self.H:
            return size - size % self.H
        return max(n for n in range(1, self.H + 1) if self.H % n == 0 and n <= max(size, 1))

    def _bias_of(self, bias: Tensor, heads: slice) -> Tensor:
        """Return the bias of some heads of (H, Tq, Tk) or (B, H, Tq, Tk)."""
        bias = bias.expand(self.B, self.H, *bias.shape[-2:])
        row, end = heads.start // self.H, -(-heads.stop // self.H)
        if end - row > 1:
            return bias[row:end]
        return bias[row, heads.start - row * self.H : heads.stop - row * self.H]

    def scratch(self, name: str, shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
        """Return memory of this name, valid up to the next tile."""
        size = math.prod(shape)
        if name not in self._scratch or self._scratch[name].numel() < size:
            self._scratch[name] = torch.empty(size, dtype=dtype or self.dtype, device=self.device)
        return self._scratch[name][:size].view(shape)

    def clear(self) -> None:
        """Give the memory back."""
        self._scratch.clear()

    def scores(self, q: Tensor, k: Tensor, tile: _Tile) -> Tensor:
        """Compute a tile's scores (heads, Tq, Tk), -inf on unseen keys, from q, already scaled, and k (B * H, d, T)."""
        q, k = q[tile.heads, :, tile.queries], k[tile.heads, :, tile.keys]
        scores = torch.bmm(q.mT, k, out=self.scratch("scores", (len(q), q.size(-1), k.size(-1))))
        if tile.bias is not None:
            scores.view(tile.bias.shape).add_(tile.bias, alpha=LOG2_E)
        if self.causal:
            hidden = self.hidden[-q.size(-1) :, -k.size(-1) :]
            scores[..., -hidden.size(-1) :].masked_fill_(hidden, -math.inf)
        return scores

    def kept(self, shape: Sequence[int]) -> Tensor:
        """Draw which weights of the next tile are kept: 1, or 0 with probability drop / STEPS."""
        n = math.prod(shape)
        # MPS draws no 64-bit numbers, which are the fastest by far on a CPU.
        dtype = torch.int32 if self.device.type == "mps" else torch.int64
        limits, each = torch.iinfo(dtype), dtype.itemsize // 2
        bits = self.scratch("bits", (-(-n // each),), dtype)
        bits.random_(limits.min, limits.max, generator=self.generator)
        draws = bits.view(torch.int16)[:n].view(shape)
        return torch.ge(draws, self.drop - STEPS // 2, out=self.scratch("kept", shape))


class _Attend(torch.autograd.Function):
    """q, k, v (B, H, T, d) of one model to (B, H, T, d); inside, keys and queries lie along rows: (B * H, d, T)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, blocks: _Blocks) -> Tensor:
        ctx.blocks, ctx.shape, ctx.dtype = blocks, (blocks.B, blocks.H), q.dtype
        q, k, v = (_by_head(t, blocks.dtype) for t in (q, k, v))
        q *= LOG2_E / math.sqrt(q.size(1))
        out, log_sums = torch.empty_like(v), v.new_empty(*v.shape[::2], 1)
        with torch.autocast(q.device.type, enabled=False):
            for tile in blocks.tiles():
                heads, queries, keys, _ = tile
                weights = blocks.scores(q, k, tile)
                row_max = weights.amax(-1, keepdim=True)
                total = weights.sub_(row_max).exp2_().sum(-1, keepdim=True)
                log_sums[heads, queries] = total.log2() + row_max
                if blocks.drop:
                    weights *= blocks.kept(weights.shape)
                    total *= 1 - blocks.drop / STEPS
                out[heads, :, queries] = torch.bmm(v[heads, :, keys], weights.mT) / total.mT
        blocks.clear()
        ctx.save_for_backward(q, k, v, out, log_sums)
        return _as_given(out, ctx)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        blocks, (q, k, v, out, log_sums) = ctx.blocks, ctx.saved_tensors
        d_out = _by_head(d_out, blocks.dtype)
        # Through the softmax, d_scores = w (d_w - sum_k d_w w), where the sum is also d_out . out.
        row_dots = (d_out * out).sum(1).unsqueeze(-1)
        d_out = d_out / (1 - blocks.drop / STEPS)
        d_q, d_k, d_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        with torch.autocast(q.device.type, enabled=False):
            for tile in blocks.tiles():
                heads, queries, keys, _ = tile
                weights = blocks.scores(q, k, tile).sub_(log_sums[heads, queries]).exp2_()
                d_part = d_out[heads, :, queries]
                d_weights = blocks.scratch("d_weights", weights.shape)
                torch.bmm(d_part.mT, v[heads, :, keys], out=d_weights)
                used = weights
                if blocks.drop:
                    kept = blocks.kept(weights.shape)
                    d_weights *= kept
                    used = kept.mul_(weights)
                d_v[heads, :, keys].baddbmm_(d_part, used)
                d_scores = d_weights.sub_(row_dots[heads, queries]).mul_(weights)
                d_q[heads, :, queries] = torch.bmm(k[heads, :, keys], d_scores.mT)
                d_k[heads, :, keys].baddbmm_(q[heads, :, queries], d_scores)
        blocks.clear()
        d_q *= 1 / math.sqrt(q.size(1))
        d_k *= 1 / LOG2_E  # q holds the scale
        return _as_given(d_q, ctx), _as_given(d_k, ctx), _as_given(d_v, ctx), None


def _by_head(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Copy (B, H, T, d) as (B * H, d, T): products of weights with rows along T are up to ten times as fast."""
    return x.to(dtype).transpose(-2, -1).flatten(0, 1).clone(memory_format=torch.contiguous_format)


def _as_given(x: Tensor, ctx: Any) -> Tensor:
    return x.mT.unflatten(0, ctx.shape).to(ctx.dtype)
