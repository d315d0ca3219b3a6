"""The residual stream as a sum of what embedding, heads, output biases and MLPs write into it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.core.heads.capture import BLOCK_CELLS
from mhsa_cli.core.model.attention import MultiHeadSelfAttention, merge_heads, share_heads
from mhsa_cli.core.model.transformer import TransformerLM, eval_mode
from mhsa_cli.records.heads import EMBEDDING, Mlp, OneWriter, Together, Writer
from mhsa_cli.text import Head


class Stream(NamedTuple):
    """What is read and written on ids (B, T): `inputs` (B, T, D) of every block, the last those of the final norm.

    By layer, `heads` are the head outputs z (B, H, T, d), `attention` their sum with the output bias (B, T, D), and
    `mlps` the outputs (B, T, D), None without an MLP.
    """

    inputs: list[Tensor]
    heads: list[Tensor]
    attention: list[Tensor]
    mlps: list[Tensor | None]


@torch.no_grad()
def run_stream(model: TransformerLM, ids: Tensor) -> Stream:
    """Run ids (B, T) in eval mode; the attention weights are made in blocks of queries."""
    stream = Stream([], [], [], [])
    with eval_mode(model):
        pos = model.pos[: ids.size(1)]
        x = model.embed(ids.to(pos.device), pos)
        for block in model.blocks:
            z = head_outputs(block.inner, block.attn_norm(x), pos)
            y, out = block.inner.out_proj(merge_heads(z)), None
            stream.inputs.append(x)
            x = block.onto(x, y)
            if block.mlp is not None and block.mlp_norm is not None:
                out = block.mlp(block.mlp_norm(x))
                x = block.onto(x, out)
            stream.heads.append(z)
            stream.attention.append(y)
            stream.mlps.append(out)
    stream.inputs.append(x)
    return stream


def head_outputs(attn: MultiHeadSelfAttention, x: Tensor, pos: Tensor) -> Tensor:
    """Compute the head outputs z = A V on x (B, T, D) in blocks of queries: (B, H, T, d)."""
    q, k, v = attn.project(x, pos)
    k, v = share_heads(k, attn.n_heads), share_heads(v, attn.n_heads)
    T, z = x.size(1), torch.empty_like(q)
    rows = max(1, BLOCK_CELLS // (q[..., 0, 0].numel() * T))
    for first, end, A in attn.weights_by_rows(q, k, pos, rows):
        z[..., first:end, :] = A.to(v.dtype) @ v[..., : A.size(-1), :]
    return z


def output_maps(attn: MultiHeadSelfAttention) -> Tensor:
    """View the output projection as one matrix W_O (d, D) per head: (H, d, D)."""
    return attn.out_proj.weight.t().unflatten(0, (attn.n_heads, attn.d_head))


def writers(model: TransformerLM, layer: int) -> list[OneWriter]:
    """List what is added up, with output biases, to the input of block `layer`; n_layers: of the final norm.

    Without residuals that is the layer before alone: its MLP, or its heads if it has none.
    """
    if layer == 0:
        return [EMBEDDING]
    below = model.blocks[layer - 1]
    heads: list[OneWriter] = [Head(layer - 1, h) for h in range(below.inner.n_heads)]
    mlp: list[OneWriter] = [] if below.mlp is None else [Mlp(layer - 1)]
    return [*writers(model, layer - 1), *heads, *mlp] if below.residual else mlp or heads


def written(model: TransformerLM, stream: Stream, writer: Writer) -> Tensor:
    """Compute what a writer adds to the stream: (B, T, D)."""
    if isinstance(writer, Together):
        return torch.stack([written(model, stream, member) for member in writer.members]).sum(0)
    if isinstance(writer, Head):
        return stream.heads[writer.layer][:, writer.head] @ output_maps(model.attention[writer.layer])[writer.head]
    if isinstance(writer, Mlp):
        out = stream.mlps[writer.layer]
        assert out is not None, f"layer {writer.layer} has no MLP"
        return out
    return stream.inputs[0]
