"""Direct logit attribution: what each head adds to the logits through the output matrix, skipping later layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mhsa_cli.core.heads.causal import ratio
from mhsa_cli.core.heads.stream import Stream, output_maps, run_stream, writers, written
from mhsa_cli.core.model.layers import EPS, LayerNorm, RMSNorm
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks.base import IGNORE, Batch
from mhsa_cli.records.claims import Claim, unmeasured
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


class RowMean(NamedTuple):
    """A mean over scored tokens, and its standard error over the rows; None with one row."""

    mean: float
    se: float | None


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


def direct_layers(model: TransformerLM) -> list[int]:
    """List the layers whose heads reach the final vector by addition alone."""
    last = model.blocks[-1]
    if last.residual:
        return list(range(len(model.blocks)))
    return [] if last.mlp is not None else [len(model.blocks) - 1]


@torch.no_grad()
def direct_logits(model: TransformerLM, batch: Batch, logits: Tensor) -> tuple[dict[Head, RowMean], float | None]:
    """Compute each head's direct effect on the correct logit minus that on the mean logit, over scored positions.

    `logits` (B, T, V) are the model's. Returns the figures of heads with a direct path by (layer, head), and the
    residual error, the largest |sum of parts - logits|; None where nothing is direct.
    """
    if not direct_layers(model):
        return {}, None
    stream = run_stream(model, batch.inputs)
    norm, head = frozen_norm(model.final_norm, stream.inputs[-1]), model.lm_head
    total = (norm.apply(sum_of_parts(model, stream)) + norm.shift) @ head.weight.t()
    error = float((total + (0.0 if head.bias is None else head.bias) - logits).abs().max())
    scored = batch.targets != IGNORE
    if not bool(scored.any()):
        return {}, error
    return {one: row_mean(added, scored) for one, added in head_logits(model, stream, batch.targets)}, error


def sum_of_parts(model: TransformerLM, stream: Stream) -> Tensor:
    """Add up what reaches the final vector by addition: embedding, heads, output biases and MLPs, (B, T, D)."""
    total = torch.zeros_like(stream.inputs[-1])
    for writer in writers(model, len(model.blocks)):
        total = total + written(model, stream, writer)
    for layer in direct_layers(model):
        bias = model.attention[layer].out_proj.bias
        total = total if bias is None else total + bias
    return total


def head_logits(model: TransformerLM, stream: Stream, targets: Tensor) -> Iterator[tuple[Head, Tensor]]:
    """Yield every head with a direct path, and what it adds to the target's logit less the mean logit: (B, T)."""
    norm, W_U = frozen_norm(model.final_norm, stream.inputs[-1]), model.lm_head.weight
    # One direction per position, the correct logit minus the mean: no head needs all V logits.
    direction = norm.pull_back(W_U[targets.clamp(min=0)] - W_U.mean(0))  # (B, T, D)
    for layer in direct_layers(model):
        for h, W_O in enumerate(output_maps(model.attention[layer])):
            yield Head(layer, h), (stream.heads[layer][:, h] * (direction @ W_O.t())).sum(-1)


@torch.no_grad()
def direct_by_position(model: TransformerLM, batch: Batch) -> tuple[list[int], dict[Head, list[float | None]]]:
    """Compute the figures of `direct_logits` by query position, each the mean over the rows scored there.

    Returns the number of these rows by position, and the figures by head, None where no row is scored.
    """
    targets = batch.targets.to(model.pos.device)
    scored = targets != IGNORE
    counts = scored.sum(0)
    found: dict[Head, list[float | None]] = {}
    for head, added in head_logits(model, run_stream(model, batch.inputs), targets):
        means = (added.double() * scored).sum(0) / counts
        found[head] = [mean if n else None for mean, n in zip(means.tolist(), counts.tolist(), strict=True)]
    return counts.tolist(), found


def direct_notes(model: TransformerLM, batch: Batch) -> list[Claim]:
    """Say what direct logits omit in this model."""
    layers = direct_layers(model)
    if not layers:
        return [unmeasured("no direct logits")]
    notes = []
    if len(layers) < len(model.blocks):
        notes.append(unmeasured("direct logits of the last layer only"))
    if not isinstance(model.final_norm, nn.Identity):
        notes.append(unmeasured("direct logits hold the norm"))
    if not bool((batch.targets != IGNORE).any()):
        notes.append(unmeasured("no scored token"))
    return notes


def row_mean(values: Tensor, scored: Tensor) -> RowMean:
    """Average values (B, T) over the scored ones; the standard error is that of a ratio of sums."""
    (mean,), (se,) = ratio(values.where(scored, 0.0).sum(1).unsqueeze(0), scored.sum(1))
    return RowMean(mean, se if len(values) > 1 else None)
