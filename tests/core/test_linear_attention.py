"""Linear attention: blocks, recurrence and implied weights are one function, and its memory does not grow."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from mhsa_cli.core.model import linear_attention as module
from mhsa_cli.core.model.attention import MultiHeadSelfAttention, causal_window
from mhsa_cli.core.model.kv_cache import LayerCache
from mhsa_cli.core.model.linear_attention import EPSILON, linear_attention, linear_weights
from tests.core.reference import array, draw, redraw, worst

B, H, D_HEAD, D_VALUE = 2, 3, 5, 4
LENGTHS = [1, 63, 64, 65, 130]
Tensors = tuple[Tensor, Tensor, Tensor]


def heads(length: int, dtype: torch.dtype = torch.float64, size: float = 1.5) -> Tensors:
    """Draw q, k and v; v has its own width."""
    q, k = (draw(B, H, length, D_HEAD, seed=s) * size for s in (1, 2))
    return q.to(dtype), k.to(dtype), draw(B, H, length, D_VALUE, seed=3).to(dtype)


def loops(q: Tensor, k: Tensor, v: Tensor) -> np.ndarray:
    """Sum over every earlier token, one after another."""
    fq, fk = (np.where(array(t) > 0, array(t) + 1, np.exp(np.minimum(array(t), 0))) + EPSILON for t in (q, k))
    values, out = array(v), np.zeros(v.shape)
    for b in range(B):
        for h in range(H):
            for t in range(v.size(-2)):
                scores = [float(fq[b, h, t] @ fk[b, h, s]) for s in range(t + 1)]
                for s, score in enumerate(scores):
                    out[b, h, t] += score / sum(scores) * values[b, h, s]
    return out


def recurrent(q: Tensor, k: Tensor, v: Tensor, sizes: list[int] | None = None) -> Tensor:
    """Read the tokens one by one, or in pieces, through a cache."""
    cache, sizes = LayerCache(), sizes or [1] * q.size(-2)
    pieces = zip(*(t.split(sizes, -2) for t in (q, k, v)), strict=True)
    out = torch.cat([linear_attention(*piece, cache) for piece in pieces], -2)
    assert cache.length == q.size(-2)
    return out


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_recurrent_parallel_and_materialised_are_one(length: int, dtype: torch.dtype, most: float) -> None:
    q, k, v = heads(length, dtype)
    parallel = linear_attention(q, k, v)
    assert parallel.dtype == dtype and parallel.shape == v.shape
    weights = linear_weights(q, k, causal_window(length, length))
    assert worst(recurrent(q, k, v), parallel) <= most
    assert worst(weights @ v, parallel) <= most
    if length <= 65:
        assert worst(parallel, loops(q, k, v)) <= most


@pytest.mark.parametrize("block", [1, 2, 3, 7, 8, 1000])
def test_the_size_of_a_block_changes_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do the pieces in which a cache is fed; outputs and gradients."""
    q, k, v = (t.requires_grad_() for t in heads(19))
    wanted = linear_attention(q, k, v)
    wanted_gradients = torch.autograd.grad((wanted * draw(*v.shape)).sum(), (q, k, v))
    monkeypatch.setattr(module, "BLOCK", block)
    for found in (linear_attention(q, k, v), recurrent(q, k, v, [4, 1, 9, 5]), recurrent(q, k, v, [19])):
        assert worst(found, wanted) <= 1e-12
        for gradient, other in zip(
            torch.autograd.grad((found * draw(*v.shape)).sum(), (q, k, v)), wanted_gradients, strict=True
        ):
            assert worst(gradient, other) <= 1e-12


def test_a_long_past_does_not_drift_in_float32() -> None:
    """The sums grow with the past; the result is a mean of it and must not drift."""
    length = 20_000
    q, k, v = (draw(1, 1, length, n, seed=s) for s, n in ((1, 2), (2, 2), (3, 1)))
    assert worst(linear_attention(q, k, v), linear_attention(q.double(), k.double(), v.double())) <= 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_are_kept_in_single_precision(dtype: torch.dtype) -> None:
    """Ones added up in half precision stop at 256 (2,048): every later token would be lost."""
    length = 6000
    q, k = torch.zeros(1, 1, length, 1, dtype=dtype), torch.zeros(1, 1, length, 1, dtype=dtype)
    v = (torch.arange(length) >= length // 2).to(dtype).view(1, 1, length, 1)
    out = linear_attention(q, k, v)
    assert out.dtype == dtype and abs(float(out[0, 0, -1, 0]) - 0.5) < 0.01


@pytest.mark.parametrize("size", [0.01, 1.0, 30.0])
def test_implied_weights_are_a_distribution(size: float) -> None:
    """Rows sum to one over what may be seen, the rest is exactly 0; a row that sees nothing is 0."""
    (q, k, _), mask = heads(9, torch.float32, size), causal_window(9, 9)
    weights = linear_weights(q, k, mask)
    assert worst(weights.sum(-1), torch.ones(B, H, 9)) <= 1e-6
    assert bool((weights.triu(1) == 0).all()) and bool((weights[..., mask] > 0).all())
    mask[:, 0] = False
    weights = linear_weights(q, k, mask)
    assert bool((weights[..., 0, :] == 0).all())
    assert worst(weights[..., 1:, :].sum(-1), torch.ones(B, H, 8)) <= 1e-6


@pytest.mark.parametrize("size", [30.0, 120.0])
def test_features_near_zero_give_numbers(size: float) -> None:
    """elu(x) + 1 rounds to 0 for very negative x: outputs and gradients stay finite, and means of the values."""
    q, k, v = heads(9, torch.float32, size)
    q, k = -q.abs(), -k.abs()
    leaves = [t.requires_grad_() for t in (q, k, v)]
    found = linear_attention(q, k, v)
    assert float(found.detach().abs().max()) <= float(v.detach().abs().max()) + 1e-5
    assert all(bool(g.isfinite().all()) for g in torch.autograd.grad(found.sum(), leaves))
    assert worst(linear_weights(q, k, causal_window(9, 9)) @ v, found) <= 1e-5


def test_its_memory_does_not_grow_and_is_shared_by_no_other_kind() -> None:
    linear_block, softmax_block = (
        redraw(MultiHeadSelfAttention(H * D_HEAD, H, n_kv_heads=1, max_seq_len=200, kind=kind), 0)
        for kind in ("linear", "softmax")
    )
    caches, sizes = (LayerCache(), LayerCache()), []
    for x in draw(B, 150, H * D_HEAD).split([1, 1, 70, 78], 1):
        for block, cache in zip((linear_block, softmax_block), caches, strict=True):
            block(x, cache=cache)
        sizes.append(tuple(sum(t.numel() for t in cache.tensors) for cache in caches))
    state = B * H * D_HEAD * (D_HEAD + 1)
    assert sizes == [(state, B * 2 * D_HEAD * n) for n in (1, 2, 72, 150)]
    with pytest.raises(ValueError, match="holds keys"):
        linear_block(draw(B, 1, H * D_HEAD), cache=caches[1])
    with pytest.raises(ValueError, match="holds no keys"):
        softmax_block(draw(B, 1, H * D_HEAD), cache=caches[0])


def test_a_mask_is_obeyed_by_way_of_the_weights() -> None:
    block, x = redraw(MultiHeadSelfAttention(H * D_HEAD, H, max_seq_len=9, kind="linear"), 0), draw(B, 9, H * D_HEAD)
    mask = torch.arange(9) != 2
    y, weights = block(x, mask.view(1, 1, 1, 9), return_weights=True)
    assert torch.equal(block(x, mask.view(1, 1, 1, 9)), y)
    assert bool((weights[..., 2] == 0).all()) and worst(y[:, :2], block(x)[:, :2]) <= 1e-5
    short = block(x[:, mask])
    assert worst(y[:, mask], short) <= 1e-5
