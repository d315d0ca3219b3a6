"""Softmax attention between the projections, forward and back: its weights written out, or torch's fused kernel."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from mhsa_cli.core.model.layers import padded
from mhsa_cli.core.training.analytic.layers import Pair, Take

SHORT = 24  # tokens; for longer rows the fused kernel, which keeps no weights, is the faster one
WEIGHTS = 2**16  # numbers that are computed together: with what is made of them they stay in a core's cache


class Attention:
    """Causal attention: qkv (M, B*T, 3D) to context (M, B*T, D), H heads of width d."""

    def __init__(self, layer: int, qkv: Pair, context: Pair, allowed: Tensor, n_heads: int, take: Take) -> None:
        T, D, dtype = len(allowed), context[0].size(-1), qkv[0].dtype
        R, H, d = context[0].numel() // (T * D), n_heads, D // n_heads  # R rows of all models
        mask = torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, -math.inf)
        # In memory the heads of a token lie side by side, but products want every head's tokens together.
        by_token, by_head = (R, T, 3, H, d), (3, R, H, T, d)
        self.qkv_by_token, self.d_qkv_by_token = (t.view(by_token).permute(2, 0, 3, 1, 4) for t in qkv)
        self.context_by_token, self.d_context_by_token = (t.view(R, T, H, d).transpose(1, 2) for t in context)
        self.heads, self.d_heads = take(f"heads.{layer}", by_head, dtype), take("d_heads", by_head, dtype)
        shape = (R, H, T, d)
        self.mixed, self.d_mixed = take(f"mixed.{layer}", shape, dtype), take("d_mixed", shape, dtype)
        flat = [t.view(-1, R * H, T, d) for t in (self.heads, self.d_heads, self.mixed, self.d_mixed)]
        size = max(1, WEIGHTS // (T * T))
        self.pieces = [
            _Piece([t[:, first : first + size] for t in flat], mask, f"{layer}.{first}", take)
            for first in range(0, R * H, size)
        ]

    def forward(self) -> None:
        self.heads.copy_(self.qkv_by_token)
        for piece in self.pieces:
            piece.forward()
        self.context_by_token.copy_(self.mixed)

    def backward(self) -> None:
        self.d_mixed.copy_(self.d_context_by_token)
        for piece in self.pieces:
            piece.backward()
        self.d_qkv_by_token.copy_(self.d_heads)


class _Piece:
    """Some heads of some rows: q, k, v, mixed (n, T, d) and their gradients, weights (n, T, T)."""

    def __init__(self, parts: list[Tensor], mask: Tensor, name: str, take: Take) -> None:
        (self.q, self.k, self.v), (self.d_q, self.d_k, self.d_v), (self.mixed,), (self.d_mixed,) = parts
        (n, T, d), dtype = self.q.shape, mask.dtype
        self.mask, self.scale = mask, 1 / math.sqrt(d)  # not sqrt(d_model)
        self.k_t, self.v_t = self.k.transpose(1, 2), self.v.transpose(1, 2)
        # exp2 finishes a remainder with other rounding: without one a model's bits do not depend on its neighbours.
        self.padded = take(f"weights.{name}", (padded(n * T * T),), dtype)
        self.weights, self.d_weights = self.padded[: n * T * T].view(n, T, T), take("d_weights", (n, T, T), dtype)
        self.weights_t, self.d_weights_t = self.weights.transpose(1, 2), self.d_weights.transpose(1, 2)
        self.each_row, self.product = take("each_row", (n, T, 1), dtype), take("product", (n, T, d), dtype)

    def forward(self) -> None:
        weights, each_row = self.weights, self.each_row
        # Scores in units of ln 2: exp2 takes the mask's -inf in its stride, exp is ten times slower on it. The softmax
        # in its parts: torch's own is slow on rows this short.
        torch.baddbmm(self.mask, self.q, self.k_t, alpha=self.scale / math.log(2), out=weights)
        torch.amax(weights, -1, keepdim=True, out=each_row)
        weights -= each_row
        self.padded.exp2_()
        torch.sum(weights, -1, keepdim=True, out=each_row)
        weights /= each_row
        torch.bmm(weights, self.v, out=self.mixed)

    def backward(self) -> None:
        d_weights = self.d_weights
        torch.bmm(self.weights_t, self.d_mixed, out=self.d_v)
        torch.bmm(self.d_mixed, self.v_t, out=d_weights)
        # Through the softmax, d_scores = w (d_w - sum_k d_w w), where the sum is also d_mixed . mixed.
        torch.mul(self.d_mixed, self.mixed, out=self.product)
        torch.sum(self.product, -1, keepdim=True, out=self.each_row)
        d_scores = d_weights.sub_(self.each_row).mul_(self.weights)
        torch.baddbmm(self.d_q, d_scores, self.k, beta=0, alpha=self.scale, out=self.d_q)
        torch.baddbmm(self.d_k, self.d_weights_t, self.q, beta=0, alpha=self.scale, out=self.d_k)


class FusedAttention:
    """The same by torch's fused kernel, with a small graph of its own for the way back."""

    def __init__(self, qkv: Pair, context: Pair, T: int, n_heads: int) -> None:
        D = context[0].size(-1)
        R, H, d = context[0].numel() // (T * D), n_heads, D // n_heads
        values, self.d_qkv = (t.view(R, T, 3, H, d).permute(2, 0, 3, 1, 4) for t in qkv)
        self.qkv = values.unbind(0)
        self.context, self.d_context = (t.view(R, T, H, d).transpose(1, 2) for t in context)
        self.leaves: list[Tensor] = []
        self.mixed = self.context

    def forward(self) -> None:
        q, k, v = self.leaves = [part.detach().requires_grad_() for part in self.qkv]
        with torch.enable_grad():
            self.mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        self.context.copy_(self.mixed.detach())

    def backward(self) -> None:
        gradients = torch.autograd.grad(self.mixed, self.leaves, self.d_context)
        for target, gradient in zip(self.d_qkv, gradients, strict=True):
            target.copy_(gradient)
