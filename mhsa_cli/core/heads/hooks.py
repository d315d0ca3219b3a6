"""A forward pass taken apart at its heads: weights A_h, values V_h, and results z_h before out_proj."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.core.model.attention import merge_heads, share_heads
from mhsa_cli.core.model.custom import CustomLayer
from mhsa_cli.core.model.transformer import Block, TransformerLM, eval_mode


class Walk(NamedTuple):
    """What a forward pass met: logits (..., T, V), and per layer the weights (..., H, T, T) and results (..., H, T, d).

    `values` are the heads' values (..., H, T, d).
    """

    logits: Tensor
    weights: list[Tensor]
    values: list[Tensor]
    results: list[Tensor]


@torch.no_grad()
def walk(model: TransformerLM, ids: Tensor) -> Walk:
    """Run ids (B, T), or (M, B, T) in a stack, through the model in eval mode; the logits are its own to rounding.

    The model's weights and mode are left as they are, and what is kept are copies or fresh tensors, never its memory.
    """
    weights, values, results = [], [], []
    with eval_mode(model):
        pos = model.pos[: ids.size(-1)]
        x = model.embed(ids.to(pos.device), pos)
        for block in model.blocks:
            A, v = attend(block, x, pos)
            z = A.to(v.dtype) @ v  # (..., H, T, d)
            weights.append(A)
            values.append(v)
            results.append(z)
            x = finish(block, x, z)
        return Walk(model.lm_head(model.final_norm(x)), weights, values, results)


@torch.no_grad()
def head_weights(model: TransformerLM, ids: Tensor) -> list[Tensor]:
    """Compute every layer's weights (..., H, T, T) on ids (..., T) as `walk` does, and nothing after the last ones."""
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
            if layer + 1 < len(model.blocks):
                x = finish(block, x, A.to(v.dtype) @ v)
    return weights


def attend(block: Block, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
    """Compute a block's weights A (..., H, T, T) and its heads' values V (..., H, T, d) on its input x (..., T, D)."""
    attn = block.inner
    q, k, v = attn.project(block.attn_norm(x), pos)
    return attn.weights(q, share_heads(k, attn.n_heads), None, pos), share_heads(v, attn.n_heads)


def finish(block: Block, x: Tensor, z: Tensor) -> Tensor:
    """Go on from the heads' results z (..., H, T, d) to what the block hands on, (..., T, D)."""
    return block.hand_on(x, block.inner.out_proj(merge_heads(z)))
