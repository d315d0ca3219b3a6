"""Attention on short rows, with its weights and its gradient written out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mhsa_cli.core.model.attention import MultiHeadSelfAttention, uniform_weights
from mhsa_cli.core.model.layers import padded
from mhsa_cli.core.model.linear_attention import EPSILON
from mhsa_cli.core.model.positions import RopePositions
from mhsa_cli.core.training.analytic.parts import Kept, Pair, Take

WEIGHTS = 2**16  # attention weights computed together: they stay in a core's cache


class Attention:
    """Attention with materialised weights: qkv (M, B*T, (H + 2G) d) to context (M, B*T, H d).

    The H / G queries of a group stand below each other, so that all read the same keys and values.
    """

    def __init__(
        self, layer: int, attn: MultiHeadSelfAttention, qkv: Pair, context: Pair, T: int, kept: Kept | None, take: Take
    ) -> None:
        H, G, d, dtype = attn.n_heads, attn.n_kv_heads, attn.d_head, qkv[0].dtype
        R, per_group = context[0].numel() // (T * H * d), H // G  # R rows of all models together
        sizes = [R * heads * T * d for heads in (H, G, G)]  # of q, k and v
        whole = take(f"heads.{layer}", (padded(sum(sizes)),), dtype)
        # Of uniform attention only the gradient of v is not 0.
        heads = whole[: sum(sizes)], take(f"d_heads.{attn.kind}", (sum(sizes),), dtype)
        # qkv is laid out by token, matrix products need it by head.
        self.by_head, self.d_by_head = (_by_head(t, R, T, H, G, d) for t in heads)
        self.by_token, self.d_by_token = (_by_token(t.view(R, T, -1, d), H, G) for t in qkv)
        self.context_by_token, self.d_context_by_token = (t.view(R, T, H, d).transpose(1, 2) for t in context)
        self.output, self.d_output = (take(name, (R, H, T, d), dtype) for name in (f"output.{layer}", "d_output"))
        q_and_k, d_q_and_k = (t[: sizes[0] + sizes[1]].view(-1, T, d) for t in heads)
        self.transforms: list[_Rotation | _Features] = []
        if isinstance(attn.positions, RopePositions):
            self.transforms.append(_Rotation(attn.positions, (q_and_k, d_q_and_k), take))
        if attn.kind == "linear":
            features = take(f"features.{layer}", whole.shape, dtype)
            self.transforms.append(_Features(whole, (q_and_k, d_q_and_k), features))
        self.kept = kept
        factors = None if kept is None else kept.factors.view(R * G, -1, T)
        output = self.output, self.d_output
        tensors = [*zip(*(t.split(sizes) for t in heads), strict=True), output]
        tensors = [(t.view(R * G, -1, d), d_t.view(R * G, -1, d)) for t, d_t in tensors]
        mask = _mask(attn, T, dtype)
        size = max(1, WEIGHTS // (per_group * T * T) // len(mask)) * len(mask)
        if len(mask) > 1:
            mask = mask.repeat(min(size, R * G) // len(mask), 1, 1)
        self.tiles = [
            TILES[attn.kind](
                [(t[first : first + size], d_t[first : first + size]) for t, d_t in tensors],
                mask[: R * G - first],
                None if factors is None else factors[first : first + size],
                f"{layer}.{first}",
                take,
            )
            for first in range(0, R * G, size)
        ]

    def forward(self) -> None:
        for heads, tokens in zip(self.by_head, self.by_token, strict=True):
            heads.copy_(tokens)
        for transform in self.transforms:
            transform.forward()
        if self.kept is not None:
            self.kept.draw()
        for tile in self.tiles:
            tile.forward()
        self.context_by_token.copy_(self.output)

    def backward(self) -> None:
        self.d_output.copy_(self.d_context_by_token)
        for tile in self.tiles:
            tile.backward()
        for transform in reversed(self.transforms):
            transform.backward()
        for tokens, heads in zip(self.d_by_token, self.d_by_head, strict=True):
            tokens.copy_(heads)


def _mask(attn: MultiHeadSelfAttention, T: int, dtype: torch.dtype) -> Tensor:
    """Return what a tile needs to know about the keys of a query: (1, H/G*T, T), or (G, H/G*T, T) with a bias."""
    visible, G = attn.visible[:T, :T], attn.n_kv_heads
    if attn.kind == "uniform":
        mask = uniform_weights(visible, dtype)
    elif attn.kind == "linear":
        mask = visible.to(dtype)
    else:
        mask = torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, -math.inf)
        pos = torch.arange(T, device=visible.device)
        bias = attn.positions.bias(pos, pos)
        if bias is not None:
            return (mask + bias.to(dtype) / math.log(2)).view(G, -1, T)
    return mask.repeat(attn.n_heads // G, 1).unsqueeze(0)


def _by_head(heads: Tensor, R: int, T: int, H: int, G: int, d: int) -> list[Tensor]:
    """View a buffer as (3, R, H, T, d), or with fewer keys as queries (R, H, T, d) and the rest (2, R, G, T, d)."""
    if G == H:
        return [heads.view(3, R, H, T, d)]
    queries = R * H * T * d
    return [heads[:queries].view(R, H, T, d), heads[queries:].view(2, R, G, T, d)]


def _by_token(qkv: Tensor, H: int, G: int) -> list[Tensor]:
    """View qkv (R, T, H + 2G, d) in the shapes of `_by_head`."""
    if G == H:
        return [qkv.unflatten(2, (3, H)).permute(2, 0, 3, 1, 4)]
    return [qkv[:, :, :H].transpose(1, 2), qkv[:, :, H:].unflatten(2, (2, G)).permute(2, 0, 3, 1, 4)]


class _Rotation:
    """Rotation of queries and keys x (n, T, d) in place."""

    def __init__(self, positions: RopePositions, x: Pair, take: Take) -> None:
        T, d, half = *x[0].shape[1:], positions.layout == "half"
        dtype = x[0].dtype
        cos, sin = positions.table(x[0].device, torch.promote_types(dtype, torch.float32))[:, :T].to(dtype)
        pairs = torch.stack([cos, cos, -sin, sin]).view(2, 2, T, d // 2)
        self.cos, self.sin = pairs.movedim(1, 2 if half else 3).reshape(2, T, d)
        self.minus_sin = -self.sin
        self.x, self.d_x, swapped = *x, take("swapped", x[0].shape, dtype)
        shape, axis = ((2, d // 2), -2) if half else ((d // 2, 2), -1)
        (a, b), *others = (t.unflatten(-1, shape).unbind(axis) for t in (swapped, *x))
        self.swapped, self.swaps, self.d_swaps = swapped, *([(a, t[1]), (b, t[0])] for t in others)

    def forward(self) -> None:
        for target, source in self.swaps:
            target.copy_(source)
        self.x.mul_(self.cos).addcmul_(self.swapped, self.sin)

    def backward(self) -> None:
        for target, source in self.d_swaps:
            target.copy_(source)
        self.d_x.mul_(self.cos).addcmul_(self.swapped, self.minus_sin)


class _Features:
    """The feature map of linear attention on queries and keys x (n, T, d) in place, the first of the buffer `whole`."""

    def __init__(self, whole: Tensor, x: Pair, features: Tensor) -> None:
        (self.x, self.d_x), self.whole, self.elu = x, whole, features
        self.own = features[: self.x.numel()].view(self.x.shape)

    def forward(self) -> None:
        torch.ops.aten.elu.out(self.whole, out=self.elu)
        torch.add(self.own, 1 + EPSILON, out=self.x)

    def backward(self) -> None:
        self.d_x *= self.own.add_(1).clamp_(max=1)  # exp(x) below 0, else 1


class _Tile:
    """Some groups of heads: q and output (n, H/G*T, d), k and v (n, T, d) with their gradients.

    `mask` says which keys a query sees, and `kept` are the factors of dropout, (n, H/G*T, T).
    """

    scale: float  # of the scores, as a product of q and k

    def __init__(self, parts: list[Pair], mask: Tensor, kept: Tensor | None, name: str, take: Take) -> None:
        (self.q, self.d_q), (self.k, self.d_k), (self.v, self.d_v), (self.output, self.d_output) = parts
        (n, rows, d), T, dtype = self.q.shape, self.k.size(1), mask.dtype
        self.mask, self.kept = mask, kept
        self.k_t, self.v_t = self.k.transpose(1, 2), self.v.transpose(1, 2)
        # Padded: exp2 rounds the rest of a vector differently, and bits would depend on the other models.
        shape = (n, rows, T)
        self.padded = take(f"weights.{name}", (padded(n * rows * T),), dtype)
        self.weights, self.d_weights = self.padded[: n * rows * T].view(shape), take("d_weights", shape, dtype)
        self.dropped = self.weights if kept is None else take(f"dropped.{name}", shape, dtype)
        self.dropped_t, self.d_weights_t = self.dropped.transpose(1, 2), self.d_weights.transpose(1, 2)
        self.each_row, self.product = take("each_row", (n, rows, 1), dtype), take("product", (n, rows, d), dtype)
        self.total = take(f"total.{name}", (n, rows, 1), dtype)  # what the weights of a query were divided by

    def weigh(self) -> None:
        """Compute the weights from q and k."""
        raise NotImplementedError

    def to_scores(self) -> None:
        """Turn d_weights, less their mean by the weights, into the gradient of the scores."""
        raise NotImplementedError

    def forward(self) -> None:
        self.weigh()
        if self.kept is not None:
            torch.mul(self.weights, self.kept, out=self.dropped)
        torch.bmm(self.dropped, self.v, out=self.output)

    def backward(self) -> None:
        torch.bmm(self.dropped_t, self.d_output, out=self.d_v)
        torch.bmm(self.d_output, self.v_t, out=self.d_weights)
        if self.kept is not None:
            self.d_weights *= self.kept
        # The mean of d_w by the weights, sum_k d_w w, is also d_output . output.
        torch.mul(self.d_output, self.output, out=self.product)
        torch.sum(self.product, -1, keepdim=True, out=self.each_row)
        self.d_weights -= self.each_row
        self.to_scores()
        torch.baddbmm(self.d_q, self.d_weights, self.k, beta=0, alpha=self.scale, out=self.d_q)
        torch.baddbmm(self.d_k, self.d_weights_t, self.q, beta=0, alpha=self.scale, out=self.d_k)


class _Softmax(_Tile):
    """Weights by a softmax; `mask` is added to the scores, in units of ln 2."""

    def __init__(self, parts: list[Pair], mask: Tensor, kept: Tensor | None, name: str, take: Take) -> None:
        super().__init__(parts, mask, kept, name, take)
        self.scale = 1 / math.sqrt(self.q.size(-1))  # not sqrt(d_model)

    def weigh(self) -> None:
        weights, each_row = self.weights, self.each_row
        # Scores in units of ln 2: exp is ten times slower than exp2 on -inf. torch's softmax is slow on short rows.
        torch.baddbmm(self.mask, self.q, self.k_t, alpha=self.scale / math.log(2), out=weights)
        torch.amax(weights, -1, keepdim=True, out=each_row)
        weights -= each_row
        self.padded.exp2_()
        torch.sum(weights, -1, keepdim=True, out=self.total)
        weights /= self.total

    def to_scores(self) -> None:
        self.d_weights *= self.weights


class _Linear(_Tile):
    """Weights by products of features, those of hidden keys times 0; q and k are the features."""

    scale = 1.0

    def weigh(self) -> None:
        torch.bmm(self.q, self.k_t, out=self.weights)
        self.weights *= self.mask
        torch.sum(self.weights, -1, keepdim=True, out=self.total)
        self.weights /= self.total

    def to_scores(self) -> None:
        self.d_weights.div_(self.total).mul_(self.mask)


class _Uniform:
    """The same with fixed weights, those of `mask`."""

    def __init__(self, parts: list[Pair], mask: Tensor, kept: Tensor | None, name: str, take: Take) -> None:
        _, _, (self.v, self.d_v), (self.output, self.d_output) = parts
        self.weights = self.dropped = mask.expand(len(self.v), -1, -1)
        self.kept = kept

    def forward(self) -> None:
        if self.kept is not None:
            self.dropped = self.weights * self.kept
        torch.bmm(self.dropped, self.v, out=self.output)

    def backward(self) -> None:
        torch.bmm(self.dropped.transpose(1, 2), self.d_output, out=self.d_v)


TILES: dict[str, type[_Softmax | _Linear | _Uniform]] = {"softmax": _Softmax, "linear": _Linear, "uniform": _Uniform}
