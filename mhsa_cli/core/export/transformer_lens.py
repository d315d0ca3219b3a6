"""Weights and config for a HookedTransformer of TransformerLens, in the names and shapes of its state dict.

Source: Nanda and Bloom 2022, TransformerLens.
"""

from __future__ import annotations

import json
import math
from typing import Any

from safetensors.torch import save
from torch import Tensor

from mhsa_cli.config.schema import ModelConfig
from mhsa_cli.core.export import Files, Source
from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.model.layers import EPS
from mhsa_cli.core.model.positions import LearnedPositions, RopePositions, SinusoidalPositions
from mhsa_cli.core.model.transformer import MLP, Block, TransformerLM
from mhsa_cli.errors import UsageError

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def to_transformer_lens(run: Source) -> Files:
    """Write model.safetensors, a HookedTransformer's state dict, and config.json, its HookedTransformerConfig.

    The weights keep the run's dtype, which the config cannot express in JSON.
    Raises: UsageError with every reason why TransformerLens cannot compute this model.
    """
    reasons = obstacles(run.config.model)
    if reasons:
        message = "TransformerLens cannot compute this model:\n  " + "\n  ".join(reasons)
        raise UsageError(message, "export the plain weights with --to npz; configs/gpt_block.yaml is supported")
    model, *_ = run.trained()
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state_dict(model).items()}
    config = hooked_config(run.config.model, model.tok_emb.weight.size(0), model.max_seq_len)
    return {WEIGHTS: save(tensors), CONFIG: (json.dumps(config, indent=1) + "\n").encode()}


# Each scheme by its name there: "standard" is a table of vectors, for none a table of zeros.
POSITION_TYPES = {
    **dict.fromkeys(("learned", "sinusoidal", "none"), "standard"),
    "rope": "rotary",
    "alibi": "alibi",
}


def obstacles(c: ModelConfig) -> list[str]:
    """List the settings that TransformerLens does not support."""
    found = []
    if c.encoder_layers:
        found.append(f"model.encoder_layers is {c.encoder_layers}: its HookedTransformer has no cross-attention")
    if not c.residual:
        found.append("model.residual is false: its blocks always have residuals")
    if c.attention != "softmax":
        found.append(f"model.attention is {c.attention}: its attention is softmax")
    if c.positions not in POSITION_TYPES:
        found.append(f"model.positions is {c.positions}: it has no such positions")
    if c.d_mlp and c.mlp == "swiglu" and c.bias:
        found.append("model.mlp is swiglu with model.bias: its gated MLP has no bias before the product")
    if c.positions == "alibi" and c.n_heads & (c.n_heads - 1):
        found.append(f"model.positions is alibi with {c.n_heads} heads: its slopes differ unless it is a power of two")
    return found


def hooked_config(c: ModelConfig, vocab_size: int, max_seq_len: int) -> dict[str, Any]:
    """Return the HookedTransformerConfig of a model as a dict for `from_dict`."""
    d_head = c.head_width
    config: dict[str, Any] = {
        "n_layers": c.n_layers,
        "d_model": c.d_model,
        "n_ctx": max_seq_len,
        "d_head": d_head,
        "n_heads": c.n_heads,
        "d_vocab": vocab_size,
        "d_vocab_out": vocab_size,
        "attn_only": c.d_mlp == 0,
        "act_fn": "silu" if c.mlp == "swiglu" else c.mlp,  # exact GELU, not tanh
        "gated_mlp": c.d_mlp > 0 and c.mlp == "swiglu",
        "d_mlp": c.d_mlp or None,
        "normalization_type": {"none": None, "layernorm": "LN", "rmsnorm": "RMS"}[c.norm],
        "eps": EPS,
        "positional_embedding_type": POSITION_TYPES[c.positions],
        "attention_dir": "causal" if c.causal else "bidirectional",
        "use_attn_scale": True,
        "attn_scale": math.sqrt(d_head),  # the divisor of scores
        "default_prepend_bos": False,
        "init_weights": False,
        "device": "cpu",
    }
    if c.n_kv_heads not in (None, c.n_heads):
        config["n_key_value_heads"] = c.n_kv_heads
    if c.positions == "rope":
        config |= {"rotary_dim": d_head, "rotary_base": c.rope_theta}
        config["rotary_adjacent_pairs"] = c.rope_layout == "interleaved"
    if c.window is not None:
        config |= {"use_local_attn": True, "window_size": c.window, "attn_types": ["local"] * c.n_layers}
    return config


def state_dict(model: TransformerLM) -> dict[str, Tensor]:
    """Return all weights in the names and shapes of TransformerLens; missing biases are zero.

    Shapes: W_Q (H, D, d), W_K and W_V (G, D, d), W_O (H, d, D), their biases (H, d), (G, d), (D,); W_in (D, d_mlp).
    """
    found: dict[str, Tensor] = {"embed.W_E": model.tok_emb.weight}
    table = position_table(model)
    if table is not None:
        found["pos_embed.W_pos"] = table
    for layer, block in enumerate(model.blocks):
        found |= {f"blocks.{layer}.{name}": tensor for name, tensor in _block(block).items()}
    found |= _norm("ln_final", model.final_norm)
    found["unembed.W_U"] = model.lm_head.weight.T
    found["unembed.b_U"] = _bias(model.lm_head)
    return found


def position_table(model: TransformerLM) -> Tensor | None:
    """Return the table added to the token embeddings, (max_seq_len, D); None with rope."""
    positions = model.positions
    if isinstance(positions, RopePositions):
        return None
    if isinstance(positions, LearnedPositions):
        return positions.pos_emb.weight
    if isinstance(positions, SinusoidalPositions):
        return positions.table
    return model.tok_emb.weight.new_zeros(model.max_seq_len, model.tok_emb.weight.size(1))  # with alibi it is unused


def _block(block: Block) -> dict[str, Tensor]:
    found = _norm("ln1", block.attn_norm) | {f"attn.{n}": t for n, t in _attention(block.inner).items()}
    if block.mlp is not None and block.mlp_norm is not None:
        found |= _norm("ln2", block.mlp_norm) | {f"mlp.{n}": t for n, t in _mlp(block.mlp).items()}
    return found


def _attention(attn: MultiHeadSelfAttention) -> dict[str, Tensor]:
    H, G, d = attn.n_heads, attn.n_kv_heads, attn.d_head
    weights = attn.qkv_proj.weight.split(attn.widths)  # rows of Q, K, V: (H d, D), (G d, D), (G d, D)
    biases = _bias(attn.qkv_proj).split(attn.widths)
    found = {}
    for name, heads, weight, bias in zip("QKV", (H, G, G), weights, biases, strict=True):
        mark = "_" if heads != H else ""  # the name of shared KV heads
        found[f"{mark}W_{name}"] = weight.unflatten(0, (heads, d)).transpose(1, 2)  # (heads, D, d)
        found[f"{mark}b_{name}"] = bias.unflatten(0, (heads, d))
    found["W_O"] = attn.out_proj.weight.T.unflatten(0, (H, d))  # (H, d, D)
    found["b_O"] = _bias(attn.out_proj)
    return found


def _mlp(mlp: MLP) -> dict[str, Tensor]:
    found = {"W_in": mlp.up.weight.T, "b_in": _bias(mlp.up)}
    if mlp.gate is not None:
        found["W_gate"] = mlp.gate.weight.T
    return found | {"W_out": mlp.down.weight.T, "b_out": _bias(mlp.down)}


def _norm(name: str, norm: Any) -> dict[str, Tensor]:
    weight = getattr(norm, "weight", None)
    if weight is None:
        return {}
    centred = hasattr(norm, "bias")  # LayerNorm
    return {f"{name}.w": weight} | ({f"{name}.b": _bias(norm)} if centred else {})


def _bias(part: Any) -> Tensor:
    return part.weight.new_zeros(part.weight.size(0)) if part.bias is None else part.bias
