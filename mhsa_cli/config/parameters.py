"""The weights of a built-in model by name and shape, from its config alone."""

from __future__ import annotations

from typing import Any

from mhsa_cli.config.encoder_decoder import source_length

Shape = tuple[int, ...]


def parameter_shapes(c: Any, vocab_size: int, seq_len: int) -> dict[str, Shape]:
    """Map the name of every parameter to its shape, those of tied embeddings once.

    c: the `model` section. seq_len: the task's.
    """
    D, V = c.d_model, vocab_size
    queries, kv = c.n_heads * c.head_width, (c.n_kv_heads or c.n_heads) * c.head_width
    found: dict[str, Shape] = {"tok_emb.weight": (V, D)}
    if c.positions == "learned":
        found["positions.pos_emb.weight"] = ((c.max_seq_len or seq_len) - source_length(c.encoder_layers, seq_len), D)
    for layer in range(c.attention_layers):
        block = f"blocks.{layer}"
        found |= _norm(c, f"{block}.attn_norm")
        found |= _linear(f"{block}.attn.qkv_proj", D, queries + 2 * kv, c.bias)
        found |= _linear(f"{block}.attn.out_proj", queries, D, c.bias)
        # In an encoder-decoder the MLP comes after cross-attention: every second layer behind the encoder.
        behind = layer - c.encoder_layers
        if c.d_mlp and not (c.encoder_layers and behind >= 0 and behind % 2 == 0):
            found |= _norm(c, f"{block}.mlp_norm")
            for name in ("up", "gate") if c.mlp == "swiglu" else ("up",):
                found |= _linear(f"{block}.mlp.{name}", D, c.d_mlp, c.bias)
            found |= _linear(f"{block}.mlp.down", c.d_mlp, D, c.bias)
    found |= _norm(c, "final_norm") | _linear("lm_head", D, V, bias=True)
    if c.tie_embeddings:
        del found["lm_head.weight"]
    return found


def _linear(name: str, d_in: int, d_out: int, bias: bool) -> dict[str, Shape]:
    return {f"{name}.weight": (d_out, d_in)} | ({f"{name}.bias": (d_out,)} if bias else {})


def _norm(c: Any, name: str) -> dict[str, Shape]:
    if c.norm == "none":
        return {}
    shift = c.bias and c.norm == "layernorm"
    return {f"{name}.weight": (c.d_model,)} | ({f"{name}.bias": (c.d_model,)} if shift else {})
