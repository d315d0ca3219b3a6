"""The bare block as Equinox writes it: its own layers and attention, vmapped over rows, in a filter_jit step."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from others.jax_block import arrays, ids
from others.jax_model import make_step, positions, start
from others.turns import Batches, Pause
from torch import Tensor

from mhsa_cli.config.schema import Config

VERSION = eqx.__version__


class Block(eqx.Module):
    """Embedding, attention, head; its four projections are apart."""

    tokens: eqx.nn.Embedding
    attention: eqx.nn.MultiheadAttention
    head: eqx.nn.Linear

    def __init__(self, config: Config, weights: dict[str, Tensor]) -> None:
        D, H, V, key = config.model.d_model, config.model.n_heads, config.task.vocab_size, jax.random.key(0)
        biases = {f"use_{name}_bias": True for name in ("query", "key", "value", "output")}
        w = arrays(weights)
        self.tokens = eqx.nn.Embedding(weight=w["tok_emb.weight"])
        attention = eqx.nn.MultiheadAttention(H, D, key=key, **biases)
        qkv = zip(*(jnp.split(w[f"blocks.0.attn.qkv_proj.{part}"], 3) for part in ("weight", "bias")), strict=True)
        out = w["blocks.0.attn.out_proj.weight"], w["blocks.0.attn.out_proj.bias"]
        names = ("query_proj", "key_proj", "value_proj", "output_proj")
        for name, pair in zip(names, [*qkv, out], strict=True):
            where = lambda a, name=name: [getattr(getattr(a, name), part) for part in ("weight", "bias")]  # noqa: E731
            attention = eqx.tree_at(where, attention, list(pair))
        self.attention = attention
        head = eqx.nn.Linear(D, V, key=key)
        self.head = eqx.tree_at(lambda h: [h.weight, h.bias], head, [w["lm_head.weight"], w["lm_head.bias"]])

    def __call__(self, row: jax.Array, table: jax.Array, causal: jax.Array) -> jax.Array:
        """Compute the logits of one row of ids (T,)."""
        x = jax.vmap(self.tokens)(row) + table
        return jax.vmap(self.head)(self.attention(x, x, x, mask=causal))


class Equinox:
    """The step, called from Python; the loss is read after each. Adam is the one of the JAX loops."""

    def __init__(self, config: Config, weights: dict[str, Tensor]) -> None:
        T, D = config.task.seq_len, config.model.d_model
        table, causal = positions(T, D), jnp.tril(jnp.ones((T, T), bool))
        learned, self.fixed = eqx.partition(Block(config, weights), eqx.is_inexact_array)

        def loss(p: Any, rows: jax.Array, targets: jax.Array) -> jax.Array:
            block = eqx.combine(p, self.fixed)
            log_p = jax.nn.log_softmax(jax.vmap(lambda row: block(row, table, causal))(rows))
            return -jnp.take_along_axis(log_p, targets[..., None], -1).mean()

        self.step, self.state = make_step(loss, config.train.lr), start(learned)
        self.parameters = sum(leaf.size for leaf in jax.tree.leaves(learned))

    def run(self, batches: Batches, pause: Pause) -> None:
        """Train on every batch."""
        step, state = eqx.filter_jit(self.step, donate="all"), self.state
        for inputs, targets in [(ids(x), ids(y)) for x, y in batches]:
            state, loss = step(state, (jnp.asarray(inputs), jnp.asarray(targets)))
            pause(float(loss))
