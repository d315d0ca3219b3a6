"""What each head adds to the logits by itself: through the output matrix, past everything that comes after it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from mhsa_cli.core.heads.capture import BLOCK_CELLS
from mhsa_cli.core.model.attention import MultiHeadSelfAttention, merge_heads, share_heads
from mhsa_cli.core.model.layers import EPS, LayerNorm, RMSNorm
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks.base import IGNORE, Batch
from mhsa_cli.text import Head


class HeldNorm(NamedTuple):
    """A norm with its measured scale held fixed: a linear map of x (B, T, D) and a shift, equal to the norm on that x.

    It subtracts the mean if it `centres`, then multiplies by `factor`, (B, T, D) or (1,).
    """

    centres: bool
    factor: Tensor
    shift: Tensor

    def apply(self, part: Tensor) -> Tensor:
        """Map a part (..., D) of what the norm saw; the shift is a part of its own."""
        return (part - part.mean(-1, keepdim=True) if self.centres else part) * self.factor

    def pull(self, direction: Tensor) -> Tensor:
        """Give the direction (..., D) before the norm that reads what `direction` reads behind it."""
        scaled = direction * self.factor
        return scaled - scaled.mean(-1, keepdim=True) if self.centres else scaled


def held_norm(norm: nn.Module, x: Tensor) -> HeldNorm:
    """Measure a norm's scale on x (..., D). Source: Elhage et al. 2021 (the frozen norm)."""
    zero = x.new_zeros(1)
    if isinstance(norm, LayerNorm):
        scale = (x.var(-1, correction=0, keepdim=True) + EPS).rsqrt()
        return HeldNorm(True, norm.weight * scale, zero if norm.bias is None else norm.bias)
    if isinstance(norm, RMSNorm):
        return HeldNorm(False, norm.weight * (x.square().mean(-1, keepdim=True) + EPS).rsqrt(), zero)
    assert isinstance(norm, nn.Identity), f"no rule holds a {type(norm).__name__} fixed"
    return HeldNorm(False, zero + 1, zero)


def head_results(attn: MultiHeadSelfAttention, x: Tensor, pos: Tensor) -> Tensor:
    """Compute the heads' results z = A V on x (B, T, D), a few queries at a time: (B, H, T, d)."""
    q, k, v = attn.project(x, pos)
    k, v = share_heads(k, attn.n_heads), share_heads(v, attn.n_heads)
    T, z = x.size(1), torch.empty_like(q)
    rows = max(1, BLOCK_CELLS // (q[..., 0, 0].numel() * T))
    for first, end, A in attn.weights_by_rows(q, k, pos, rows):
        z[..., first:end, :] = A.to(v.dtype) @ v[..., :end, :]
    return z


def direct_layers(model: TransformerLM) -> list[int]:
    """List the layers whose heads reach the final vector by addition alone."""
    last = model.blocks[-1]
    if last.residual:
        return list(range(len(model.blocks)))
    return [] if last.mlp is not None else [len(model.blocks) - 1]


def per_head(attn: MultiHeadSelfAttention) -> Tensor:
    """View the output map as one (d, D) matrix a head: (H, d, D)."""
    return attn.out_proj.weight.t().unflatten(0, (attn.n_heads, attn.d_head))


def split_stream(model: TransformerLM, ids: Tensor) -> tuple[dict[int, Tensor], Tensor, Tensor]:
    """Run ids (B, T) through a model in eval mode, keeping apart what reaches the final vector by addition.

    Returns the results z (B, H, T, d) of the direct layers' heads; the sum of embedding, each head, output biases and
    MLPs, as far as they are direct, (B, T, D); and the final vector itself, (B, T, D).
    """
    pos = model.pos[: ids.size(1)]
    x = model.embed(ids, pos)
    total = x if model.blocks[0].residual else torch.zeros_like(x)
    results: dict[int, Tensor] = {}
    direct = direct_layers(model)
    for layer, block in enumerate(model.blocks):
        attn, out = block.inner, None
        z = head_results(attn, block.attn_norm(x), pos)
        y = attn.out_proj(merge_heads(z))
        x = x + y if block.residual else y
        if block.mlp is not None and block.mlp_norm is not None:
            out = block.mlp(block.mlp_norm(x))
            x = x + out if block.residual else out
        if layer in direct:
            results[layer] = z
            for one, W_O in zip(z.unbind(1), per_head(attn), strict=True):
                total = total + one @ W_O
            total = total if attn.out_proj.bias is None else total + attn.out_proj.bias
            total = total if out is None else total + out
    return results, total, x


@torch.no_grad()
def direct_logits(model: TransformerLM, batch: Batch, logits: Tensor) -> tuple[dict[Head, float], float | None]:
    """Measure what each head adds to the right answer's logit beyond the mean of all logits, over scored positions.

    `logits` (B, T, V) are those the parts must add up to. Returns the figures by (layer, head), without the heads
    that have no direct path, and the largest |sum of parts - logits|, None where nothing is direct.
    """
    if not direct_layers(model):
        return {}, None
    results, parts, final = split_stream(model, batch.inputs)
    norm, head = held_norm(model.final_norm, final), model.lm_head
    total = (norm.apply(parts) + norm.shift) @ head.weight.t()
    error = float((total + (0.0 if head.bias is None else head.bias) - logits).abs().max())
    scored = batch.targets != IGNORE
    if not bool(scored.any()):
        return {}, error
    # Right answer less the mean of all: one vector a position, so that no head needs its V logits written out.
    direction = head.weight[batch.targets.clamp(min=0)] - head.weight.mean(0)
    direction = norm.pull(direction)  # (B, T, D)
    figures = {}
    for layer, z in results.items():
        for h, W_O in enumerate(per_head(model.attention[layer])):
            added = (z[:, h] * (direction @ W_O.t())).sum(-1)  # (B, T)
            figures[Head(layer, h)] = float(added[scored].mean())
    return figures, error
