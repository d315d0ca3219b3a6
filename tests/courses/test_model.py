"""The parts of a transformer, its block and the language model, against plain formulas in float64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.core.reference import array, draw, worst
from tests.courses import adapters, by_hand

B, T, D, H, D_FF, V, LAYERS, MAX = 2, 7, 12, 3, 20, 17, 2, 9
THETA = 10000.0


def drawn(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Draw weights by name; vectors, the scales of norms, around 1."""
    weights = {}
    for seed, (name, shape) in enumerate(shapes.items()):
        weight = draw(*shape, seed=seed) / shape[-1] ** 0.5
        weights[name] = weight if len(shape) > 1 else 1 + weight
    return weights


def block_shapes(prefix: str = "") -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {f"attn.{name}_proj.weight": (D, D) for name in ("q", "k", "v", "output")}
    shapes |= {"ln1.weight": (D,), "ln2.weight": (D,)}
    shapes |= {"ffn.w1.weight": (D_FF, D), "ffn.w2.weight": (D, D_FF), "ffn.w3.weight": (D_FF, D)}
    return {prefix + name: shape for name, shape in shapes.items()}


def arrays(weights: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: array(weight) for name, weight in weights.items()}


@pytest.mark.parametrize("lead", [(), (B,), (B, T)], ids=str)
def test_linear_embedding_norm_and_activations(lead: tuple[int, ...]) -> None:
    x, w1, w2, w3 = draw(*lead, D, seed=1), draw(D_FF, D, seed=2), draw(D, D_FF, seed=3), draw(D_FF, D, seed=4)
    assert worst(adapters.run_linear(D, D_FF, w1, x), array(x) @ array(w1).T) <= 2e-6
    ids = torch.randint(V, lead, generator=torch.Generator().manual_seed(3))
    table = draw(V, D, seed=5)
    assert torch.equal(adapters.run_embedding(V, D, table, ids), table[ids])
    assert worst(adapters.run_silu(x), by_hand.silu(array(x))) <= 1e-6
    w1, w2, w3 = (w / w.size(1) ** 0.5 for w in (w1, w2, w3))
    assert worst(adapters.run_swiglu(D, D_FF, w1, w2, w3, x), by_hand.swiglu(*map(array, (w1, w2, w3, x)))) <= 1e-6
    for eps in (1e-5, 0.1):
        wanted = by_hand.rmsnorm(array(x), array(table[0]), eps)
        assert worst(adapters.run_rmsnorm(D, eps, table[0], x), wanted) <= 1e-6


@pytest.fixture(params=[(torch.float32, 5e-6), (torch.float64, 1e-12)], ids=lambda param: str(param[0]))
def tolerance(request: pytest.FixtureRequest) -> Iterator[float]:
    """In float32, and in float64, where rounding hides nothing."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param[0])
    yield request.param[1]
    torch.set_default_dtype(before)


@pytest.mark.parametrize("theta", [THETA, 30.0])
def test_the_block(theta: float, tolerance: float) -> None:
    weights, x = drawn(block_shapes()), draw(B, T, D, seed=40)
    found = adapters.run_transformer_block(D, H, D_FF, MAX, theta, weights, x)
    assert worst(found, by_hand.block(arrays(weights), "", H, theta, array(x))) <= tolerance


@pytest.mark.parametrize("length", [1, T, MAX])
def test_the_language_model(length: int, tolerance: float) -> None:
    """Also of rows shorter than the context."""
    shapes = {name: shape for layer in range(LAYERS) for name, shape in block_shapes(f"layers.{layer}.").items()}
    shapes |= {"token_embeddings.weight": (V, D), "ln_final.weight": (D,), "lm_head.weight": (V, D)}
    weights, ids = drawn(shapes), torch.randint(V, (B, length), generator=torch.Generator().manual_seed(6))
    found = adapters.run_transformer_lm(V, MAX, D, LAYERS, H, D_FF, THETA, weights, ids)
    assert found.shape == (B, length, V)
    assert worst(found, by_hand.lm(arrays(weights), LAYERS, H, THETA, ids.numpy())) <= tolerance
