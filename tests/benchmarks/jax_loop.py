"""The lesson in JAX as a process of its own: python jax_loop.py STEPS BATCH_SIZE step|scan, without torch.

step: a jitted step, its loss read each time. scan: as many steps in a call as an epoch has, 120.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
from others.jax_model import Tree, make_loss, make_step, start

VOCAB, SEQ_LEN, D_MODEL, N_HEADS, LR, EPOCH = 64, 12, 32, 4, 5e-3, 120


def weights(draw: np.random.Generator) -> Tree:
    """Draw initial weights as the lesson's modules do."""

    def linear(name: str, d_in: int, d_out: int) -> Tree:
        bound = d_in**-0.5
        shapes = {"weight": (d_out, d_in), "bias": (d_out,)}
        return {f"{name}.{leaf}": draw.uniform(-bound, bound, shape) for leaf, shape in shapes.items()}

    found = {"tok_emb.weight": 0.02 * draw.standard_normal((VOCAB, D_MODEL))}
    found |= linear("blocks.0.attn.qkv_proj", D_MODEL, 3 * D_MODEL)
    found |= linear("blocks.0.attn.out_proj", D_MODEL, D_MODEL) | linear("lm_head", D_MODEL, VOCAB)
    return {name: jnp.asarray(value, jnp.float32) for name, value in found.items()}


def rows(draw: np.random.Generator, steps: int, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw ids and targets of so many steps, (steps, B, T) each."""
    drawn = draw.integers(VOCAB, size=(steps, batch_size, 1), dtype=np.int32).repeat(SEQ_LEN + 1, axis=2)
    return drawn[..., :-1], drawn[..., 1:]


def main(steps: int, batch_size: int, how: str) -> None:
    """Train and print the last loss."""
    draw = np.random.default_rng(42)
    step, state = make_step(make_loss(SEQ_LEN, D_MODEL, N_HEADS), LR), start(weights(draw))
    train = step if how == "step" else lambda state, batches: jax.lax.scan(step, state, batches)
    compiled = jax.jit(train, donate_argnums=0)
    losses: list[float] = []
    for first in range(0, steps, EPOCH):
        inputs, targets = rows(draw, min(EPOCH, steps - first), batch_size)
        if how == "scan":
            state, values = compiled(state, (inputs, targets))
            losses += np.asarray(values).tolist()
            continue
        for batch in zip(inputs, targets, strict=True):
            state, loss = compiled(state, batch)
            losses.append(float(loss))
    print(f"step {steps} loss {losses[-1]:.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
