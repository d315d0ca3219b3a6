"""The bare block in JAX: a jitted step, an epoch in lax.scan, and many models by vmap inside the scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from others.jax_model import Tree, make_loss, make_step, start
from others.turns import Batches, Pause
from torch import Tensor

from mhsa_cli.config.schema import Config

VERSION = jax.__version__


def loss_of(config: Config) -> Callable[[Tree, jax.Array, jax.Array], jax.Array]:
    """Make the mean loss of a config's model."""
    return make_loss(config.task.seq_len, config.model.d_model, config.model.n_heads)


def arrays(weights: dict[str, Tensor]) -> Tree:
    """Turn our weights into JAX's."""
    return {name: jnp.asarray(weight.numpy()) for name, weight in weights.items()}


def ids(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Turn ids into what JAX computes with."""
    return tensor.numpy().astype(np.int32)


class Step:
    """The jitted step, called from Python; the loss is read after each."""

    def __init__(self, config: Config, weights: dict[str, Tensor]) -> None:
        self.step = make_step(loss_of(config), config.train.lr)
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
    step = jax.vmap(make_step(loss_of(config), config.train.lr))
    train = jax.jit(lambda state, rows: jax.lax.scan(step, state, rows), donate_argnums=0)
    return np.asarray(train(start(arrays(weights), inputs.shape[1:2]), (ids(inputs), ids(targets)))[1])
