"""The bare block in JAX: a jitted step, an epoch in lax.scan, and many models by vmap inside the scan."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from others.turns import Batches, Pause
from torch import Tensor

from mhsa_cli.config.schema import Config

VERSION = jax.__version__
Tree = Any


def positions(seq_len: int, d_model: int) -> jax.Array:
    """Give the sinusoidal table (T, D)."""
    rate = np.exp(np.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    angles = np.arange(seq_len)[:, None] * rate
    return jnp.asarray(np.stack([np.sin(angles), np.cos(angles)], -1).reshape(seq_len, d_model), jnp.float32)


def make_loss(config: Config) -> Callable[[Tree, jax.Array, jax.Array], jax.Array]:
    """Make the mean loss of one model on ids and targets (B, T)."""
    T, D, H = config.task.seq_len, config.model.d_model, config.model.n_heads
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


def arrays(weights: dict[str, Tensor]) -> Tree:
    """Turn our weights into JAX's."""
    return {name: jnp.asarray(weight.numpy()) for name, weight in weights.items()}


def ids(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Turn ids into what JAX computes with."""
    return tensor.numpy().astype(np.int32)


class Step:
    """The jitted step, called from Python; the loss is read after each."""

    def __init__(self, config: Config, weights: dict[str, Tensor]) -> None:
        self.step = make_step(make_loss(config), config.train.lr)
        self.state = start(arrays(weights))
        self.parameters = sum(leaf.size for leaf in jax.tree.leaves(self.state[0]))

    def run(self, batches: Batches, pause: Pause) -> None:
        """Train on every batch."""
        step, state = jax.jit(self.step, donate_argnums=0), self.state
        for inputs, targets in [(ids(x), ids(y)) for x, y in batches]:
            state, loss = step(state, (inputs, targets))
            pause(float(loss))


class Scan(Step):
    """EPOCH steps in one call."""

    EPOCH = 120

    def run(self, batches: Batches, pause: Pause) -> None:
        """Train on every batch."""
        epoch, state = jax.jit(lambda state, rows: jax.lax.scan(self.step, state, rows), donate_argnums=0), self.state
        inputs, targets = (np.stack([ids(pair[i]) for pair in batches]) for i in (0, 1))
        for first in range(0, len(batches), self.EPOCH):
            chosen = slice(first, first + self.EPOCH)
            state, losses = epoch(state, (inputs[chosen], targets[chosen]))
            pause(*np.asarray(losses))


def many(config: Config, weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> np.ndarray[Any, Any]:
    """Train M models at once on ids (steps, M, B, T), compiled anew; weights have a leading M. Returns (steps, M)."""
    jax.clear_caches()
    step = jax.vmap(make_step(make_loss(config), config.train.lr))
    train = jax.jit(lambda state, rows: jax.lax.scan(step, state, rows), donate_argnums=0)
    return np.asarray(train(start(arrays(weights), inputs.shape[1:2]), (ids(inputs), ids(targets)))[1])
