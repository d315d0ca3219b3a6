"""The functions that a course's tests call, each a few lines over documented names; nothing is computed here.

The contract: weights are (d_out, d_in), heads are contiguous blocks of rows, masks say True = may attend, leading axes
are free, rope rotates the pairs (2i, 2i + 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import BinaryIO

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from mhsa_cli import load_checkpoint, save_checkpoint
from mhsa_cli.nn import (
    MLP,
    Block,
    Embedding,
    Linear,
    ModelConfig,
    MultiHeadSelfAttention,
    RMSNorm,
    RopePositions,
    TrainConfig,
    TransformerLM,
    learning_rate,
    scaled_dot_product_attention,
)

Weights = Mapping[str, Tensor]


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    return loaded(Linear(d_in, d_out, bias=False), weight=weights)(in_features)


def run_embedding(vocab_size: int, d_model: int, weights: Tensor, token_ids: Tensor) -> Tensor:
    return loaded(Embedding(vocab_size, d_model), weight=weights)(token_ids)


def run_rmsnorm(d_model: int, eps: float, weights: Tensor, in_features: Tensor) -> Tensor:
    return loaded(RMSNorm(d_model, eps=eps), weight=weights)(in_features)


def run_silu(in_features: Tensor) -> Tensor:
    return F.silu(in_features)


def run_swiglu(
    d_model: int, d_ff: int, w1_weight: Tensor, w2_weight: Tensor, w3_weight: Tensor, in_features: Tensor
) -> Tensor:
    module = MLP(d_model, d_ff, kind="swiglu", bias=False)
    return loaded_swiglu(module, w1_weight, w2_weight, w3_weight)(in_features)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    return scaled_dot_product_attention(Q, K, V, mask)


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    block = MultiHeadSelfAttention(d_model, num_heads, bias=False)
    block.load_projections(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return attended(block, in_features)


def run_multihead_self_attention_with_rope(
    d_model: int,
    num_heads: int,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    token_positions: Tensor | None = None,
) -> Tensor:
    block = MultiHeadSelfAttention(d_model, num_heads, max_seq_len, bias=False)
    block.positions = RopePositions(max_seq_len, block.d_head, theta)
    block.load_projections(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return attended(block, in_features, token_positions)


def run_multihead_self_attention_by_head(d_model: int, num_heads: int, weights: Weights, in_features: Tensor) -> Tensor:
    """An older contract: `q_heads.0.weight` (d_head, d_model) and so on, then `output_proj.weight`."""
    q, k, v = (torch.cat([weights[f"{x}_heads.{h}.weight"] for h in range(num_heads)]) for x in "qkv")
    return run_multihead_self_attention(d_model, num_heads, q, k, v, weights["output_proj.weight"], in_features)


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    return RopePositions(max_seq_len, d_k, theta).turn(in_query_or_key.unsqueeze(-3), token_positions).squeeze(-3)


def run_transformer_block(
    d_model: int, num_heads: int, d_ff: int, max_seq_len: int, theta: float, weights: Weights, in_features: Tensor
) -> Tensor:
    block = Block(course_config(d_model, num_heads, d_ff, theta), max_seq_len)
    return loaded_block(block, weights, "")(in_features)[0]


def run_transformer_lm(
    vocab_size: int,
    context_length: int,
    d_model: int,
    num_layers: int,
    num_heads: int,
    d_ff: int,
    rope_theta: float,
    weights: Weights,
    in_indices: Tensor,
) -> Tensor:
    config = course_config(d_model, num_heads, d_ff, rope_theta, num_layers)
    model = TransformerLM(config, vocab_size=vocab_size, max_seq_len=context_length)
    loaded(model.tok_emb, weight=weights["token_embeddings.weight"])
    for layer, block in enumerate(model.blocks):
        loaded_block(block, weights, f"layers.{layer}.")
    loaded(model.final_norm, weight=weights["ln_final.weight"])
    loaded(model.lm_head, weight=weights["lm_head.weight"], bias=torch.zeros(vocab_size))
    return model(in_indices)


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    return in_features.softmax(dim)


def run_cross_entropy(inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(inputs, targets)


def run_gradient_clipping(parameters: Iterable[nn.Parameter], max_l2_norm: float) -> None:
    nn.utils.clip_grad_norm_(parameters, max_l2_norm)


def get_adamw_cls() -> Callable[..., Optimizer]:
    return AdamW


def run_get_lr_cosine_schedule(
    it: int, max_learning_rate: float, min_learning_rate: float, warmup_iters: int, cosine_cycle_iters: int
) -> float:
    config = TrainConfig(
        epochs=1,
        steps_per_epoch=cosine_cycle_iters,
        warmup_steps=warmup_iters,
        schedule="cosine",
        lr=max_learning_rate,
        min_lr=min_learning_rate,
    )
    return learning_rate(config, it)


def run_save_checkpoint(
    model: nn.Module, optimizer: Optimizer, iteration: int, out: str | PathLike[str] | BinaryIO
) -> None:
    save_checkpoint(out, model, optimizer, iteration)


def run_load_checkpoint(src: str | PathLike[str] | BinaryIO, model: nn.Module, optimizer: Optimizer) -> int:
    return load_checkpoint(src, model, optimizer)


def course_config(d_model: int, n_heads: int, d_mlp: int, theta: float, n_layers: int = 1) -> ModelConfig:
    """The course's block: pre-norm RMSNorm, rope, SwiGLU, residual connections, no biases."""
    return ModelConfig(
        d_model=d_model,
        n_heads=n_heads,
        n_layers=n_layers,
        d_mlp=d_mlp,
        mlp="swiglu",
        norm="rmsnorm",
        residual=True,
        positions="rope",
        rope_theta=theta,
        bias=False,
    )


def loaded(module: nn.Module, **weights: Tensor) -> nn.Module:
    module.load_state_dict(weights)
    return module


def loaded_swiglu(module: nn.Module, gate: Tensor, down: Tensor, up: Tensor) -> nn.Module:
    module.load_state_dict({"gate.weight": gate, "up.weight": up, "down.weight": down})
    return module


def loaded_block(block: Block, weights: Weights, prefix: str) -> Block:
    block.inner.load_projections(*(weights[f"{prefix}attn.{name}_proj.weight"] for name in ("q", "k", "v", "output")))
    loaded_swiglu(block.mlp, *(weights[f"{prefix}ffn.{name}.weight"] for name in ("w1", "w2", "w3")))
    loaded(block.attn_norm, weight=weights[f"{prefix}ln1.weight"])
    loaded(block.mlp_norm, weight=weights[f"{prefix}ln2.weight"])
    return block


def attended(block: MultiHeadSelfAttention, x: Tensor, pos: Tensor | None = None) -> Tensor:
    """Call the block on x (..., T, d_model); a single row gets a batch of one."""
    return block(x, pos=pos) if x.dim() > 2 else block(x.unsqueeze(0), pos=pos).squeeze(0)
