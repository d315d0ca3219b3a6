"""A forward pass split at its heads: attention weights A_h, values V_h, and head outputs z_h before out_proj."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.core.model.attention import merge_heads, share_heads
from mhsa_cli.core.model.custom import CustomLayer
from mhsa_cli.core.model.transformer import Block, TransformerLM, eval_mode


class Activations(NamedTuple):
    """Activations of a forward pass: logits (..., T, V), and per layer weights (..., H, T, T), values and head outputs.

    Values and outputs are (..., H, T, d).
    """

    logits: Tensor
    weights: list[Tensor]
    values: list[Tensor]
    outputs: list[Tensor]


@torch.no_grad()
def run_with_activations(model: TransformerLM, ids: Tensor) -> Activations:
    """Run ids (B, T), or (M, B, T) in a stack, in eval mode; the logits equal the model's own to rounding.

    The model's weights and mode do not change; no returned tensor shares memory with them.
    """
    weights, values, outputs = [], [], []
    with eval_mode(model):
        pos = model.pos[: ids.size(-1)]
        x = model.embed(ids.to(pos.device), pos)
        for block in model.blocks:
            A, v = attend(block, x, pos)
            z = A.to(v.dtype) @ v  # (..., H, T, d)
            weights.append(A)
            values.append(v)
            outputs.append(z)
            x = after_heads(block, x, z)
        return Activations(model.lm_head(model.final_norm(x)), weights, values, outputs)


@torch.no_grad()
def head_weights(model: TransformerLM, ids: Tensor) -> list[Tensor]:
    """Compute the attention weights (..., H, T, T) of every layer on ids (..., T) in eval mode, before dropout."""
    weights = []
    with eval_mode(model):
        pos = model.pos[: ids.size(-1)]
        x = model.embed(ids.to(pos.device), pos)
        for layer, block in enumerate(model.blocks):
            if isinstance(block.attn, CustomLayer):
                x, A = block(x, pos, True)
                weights.append(A)
                continue
            A, v = attend(block, x, pos)
            weights.append(A)
            if layer + 1 < len(model.blocks):  # the last layer's output is not needed
                x = after_heads(block, x, A.to(v.dtype) @ v)
    return weights


def attend(block: Block, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
    """Compute a block's weights A (..., H, T, T) and values V (..., H, T, d) on its input x (..., T, D)."""
    attn = block.inner
    q, k, v = attn.project(block.attn_norm(x), pos)
    return attn.weights(q, share_heads(k, attn.n_heads), None, pos), share_heads(v, attn.n_heads)


def after_heads(block: Block, x: Tensor, z: Tensor) -> Tensor:
    """Compute the rest of a block from its input x and its head outputs z (..., H, T, d): (..., T, D)."""
    return block.hand_on(x, block.inner.out_proj(merge_heads(z)))
