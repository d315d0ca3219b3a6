"""The bare block in JAX, and its update by Adam: no torch and nothing of ours is imported."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Tree = Any


def positions(seq_len: int, d_model: int) -> jax.Array:
    """Give the sinusoidal table (T, D)."""
    rate = np.exp(np.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    angles = np.arange(seq_len)[:, None] * rate
    return jnp.asarray(np.stack([np.sin(angles), np.cos(angles)], -1).reshape(seq_len, d_model), jnp.float32)


def make_loss(T: int, D: int, H: int) -> Callable[[Tree, jax.Array, jax.Array], jax.Array]:
    """Make the mean loss of one model of T tokens, width D and H heads on ids and targets (B, T)."""
    table, causal = positions(T, D), jnp.tril(jnp.ones((T, T), bool))

    def loss(p: Tree, ids: jax.Array, targets: jax.Array) -> jax.Array:
        x = p["tok_emb.weight"][ids] + table
        qkv = x @ p["blocks.0.attn.qkv_proj.weight"].T + p["blocks.0.attn.qkv_proj.bias"]
        q, k, v = (t.reshape(-1, T, H, D // H) for t in jnp.split(qkv, 3, -1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(D // H)
        weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)
        context = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(-1, T, D)
        y = context @ p["blocks.0.attn.out_proj.weight"].T + p["blocks.0.attn.out_proj.bias"]
        log_p = jax.nn.log_softmax(y @ p["lm_head.weight"].T + p["lm_head.bias"])
        return -jnp.take_along_axis(log_p, targets[..., None], -1).mean()

    return loss


def start(p: Tree, models: tuple[int, ...] = ()) -> Tree:
    """Make the state of training: weights, two moments, steps made; of many models with `models` = (M,)."""
    moments = [jax.tree.map(jnp.zeros_like, p) for _ in range(2)]
    return p, *moments, jnp.zeros(models, jnp.float32)


def make_step(loss: Callable[..., jax.Array], lr: float, b1: float = 0.9, b2: float = 0.999) -> Callable[..., Any]:
    """Make one update by Adam: (state, (ids, targets)) to (state, loss)."""

    def step(state: Tree, batch: Any) -> tuple[Tree, jax.Array]:
        p, m, v, t = state
        value, g = jax.value_and_grad(loss)(p, *batch)
        t = t + 1
        m = jax.tree.map(lambda a, b: b1 * a + (1 - b1) * b, m, g)
        v = jax.tree.map(lambda a, b: b2 * a + (1 - b2) * b * b, v, g)
        down, up = 1 - b1**t, 1 - b2**t
        p = jax.tree.map(lambda w, a, b: w - lr * (a / down) / (jnp.sqrt(b / up) + 1e-8), p, m, v)
        return (p, m, v, t), value

    return step
