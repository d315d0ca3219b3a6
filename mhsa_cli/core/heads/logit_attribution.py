"""Direct logit attribution: what each head adds to the logits through the output matrix, skipping later layers."""

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


class FrozenNorm(NamedTuple):
    """A norm with its scale frozen at a measured x (B, T, D): a linear map and a shift, equal to the norm on that x.

    It subtracts the mean if `centres`, then multiplies by `factor`, (B, T, D) or (1,).
    """

    centres: bool
    factor: Tensor
    shift: Tensor

    def apply(self, part: Tensor) -> Tensor:
        """Map a summand (..., D) of x, without the shift."""
        return (part - part.mean(-1, keepdim=True) if self.centres else part) * self.factor

    def pull_back(self, direction: Tensor) -> Tensor:
        """Apply the transposed map to a direction (..., D) behind the norm."""
        scaled = direction * self.factor
        return scaled - scaled.mean(-1, keepdim=True) if self.centres else scaled


def frozen_norm(norm: nn.Module, x: Tensor) -> FrozenNorm:
    """Freeze a norm's scale at x (..., D). Source: Elhage et al. 2021."""
    zero = x.new_zeros(1)
    if isinstance(norm, LayerNorm):
        scale = (x.var(-1, correction=0, keepdim=True) + EPS).rsqrt()
        return FrozenNorm(True, norm.weight * scale, zero if norm.bias is None else norm.bias)
    if isinstance(norm, RMSNorm):
        return FrozenNorm(False, norm.weight * (x.square().mean(-1, keepdim=True) + EPS).rsqrt(), zero)
    assert isinstance(norm, nn.Identity), f"no rule freezes a {type(norm).__name__}"
    return FrozenNorm(False, zero + 1, zero)


def head_outputs(attn: MultiHeadSelfAttention, x: Tensor, pos: Tensor) -> Tensor:
    """Compute the head outputs z = A V on x (B, T, D) in blocks of queries: (B, H, T, d)."""
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


def output_maps(attn: MultiHeadSelfAttention) -> Tensor:
    """View the output projection as one matrix W_O (d, D) per head: (H, d, D)."""
    return attn.out_proj.weight.t().unflatten(0, (attn.n_heads, attn.d_head))


def split_stream(model: TransformerLM, ids: Tensor) -> tuple[dict[int, Tensor], Tensor, Tensor]:
    """Run ids (B, T) in eval mode and separate what reaches the final vector by addition.

    Returns the head outputs z (B, H, T, d) of the direct layers; the sum of embedding, heads, output biases and MLPs as
    far as they are direct, (B, T, D); and the final vector (B, T, D).
    """
    pos = model.pos[: ids.size(1)]
    x = model.embed(ids, pos)
    total = x if model.blocks[0].residual else torch.zeros_like(x)
    outputs: dict[int, Tensor] = {}
    direct = direct_layers(model)
    for layer, block in enumerate(model.blocks):
        attn, out = block.inner, None
        z = head_outputs(attn, block.attn_norm(x), pos)
        y = attn.out_proj(merge_heads(z))
        x = x + y if block.residual else y
        if block.mlp is not None and block.mlp_norm is not None:
            out = block.mlp(block.mlp_norm(x))
            x = x + out if block.residual else out
        if layer in direct:
            outputs[layer] = z
            for head, W_O in zip(z.unbind(1), output_maps(attn), strict=True):
                total = total + head @ W_O
            total = total if attn.out_proj.bias is None else total + attn.out_proj.bias
            total = total if out is None else total + out
    return outputs, total, x


@torch.no_grad()
def direct_logits(model: TransformerLM, batch: Batch, logits: Tensor) -> tuple[dict[Head, float], float | None]:
    """Compute each head's direct effect on the correct logit minus that on the mean logit, over scored positions.

    `logits` (B, T, V) are the model's. Returns the figures of heads with a direct path by (layer, head), and the
    residual error, the largest |sum of parts - logits|; None where nothing is direct.
    """
    if not direct_layers(model):
        return {}, None
    outputs, parts, final = split_stream(model, batch.inputs)
    norm, head = frozen_norm(model.final_norm, final), model.lm_head
    total = (norm.apply(parts) + norm.shift) @ head.weight.t()
    error = float((total + (0.0 if head.bias is None else head.bias) - logits).abs().max())
    scored = batch.targets != IGNORE
    if not bool(scored.any()):
        return {}, error
    # One direction per position, the correct logit minus the mean: no head needs all V logits.
    direction = head.weight[batch.targets.clamp(min=0)] - head.weight.mean(0)
    direction = norm.pull_back(direction)  # (B, T, D)
    figures = {}
    for layer, z in outputs.items():
        for h, W_O in enumerate(output_maps(model.attention[layer])):
            added = (z[:, h] * (direction @ W_O.t())).sum(-1)  # (B, T)
            figures[Head(layer, h)] = float(added[scored].mean())
    return figures, error
