"""Extreme scores, half precision, and the uniform control: the arithmetic holds and says so in float32."""

from __future__ import annotations

import pytest
import torch

from mhsa_cli.core.model import attention
from tests.core.reference import D_HEAD, MAX, B, D, H, T, array, draw, loop_attention, redraw, worst


def make(seed: int = 0, **settings: object) -> attention.MultiHeadSelfAttention:
    """Build the block of the shared sizes with wide weights."""
    return redraw(attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX, **settings), seed)


def test_extreme_scores_stay_finite_and_exact() -> None:
    """Queries and keys a hundred times as large: scores of thousands, of which exp would overflow."""
    block, x = make().double(), draw(B, T, D).double()
    with torch.no_grad():
        block.qkv_proj.weight[: 2 * D] *= 100
    q, k, _ = block.project(x, torch.arange(T))
    assert float(attention.attention_scores(q, k).detach().abs().max()) > 1e4
    wanted, wanted_weights = loop_attention(block, x)
    y, weights = block(x, return_weights=True)
    assert worst(weights, wanted_weights) <= 1e-9
    assert worst(y, wanted) <= 1e-9
    assert worst(block(x), wanted) <= 1e-9
    single = block.float()
    for found in (single(x.float()), *single(x.float(), return_weights=True)):
        assert bool(found.isfinite().all())


def test_gradients_of_extreme_scores_are_finite() -> None:
    """On both paths."""
    for looking in (False, True):
        block, x = make(), (draw(B, T, D) * 100).requires_grad_()
        y = block(x, return_weights=True)[0] if looking else block(x)
        y.sum().backward()
        assert bool(x.grad.isfinite().all())
        assert all(bool(p.grad.isfinite().all()) for p in block.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_runs_with_a_softmax_in_float32(dtype: torch.dtype) -> None:
    """Forward and backward, with and without a mask; weights come as float32 and sum to one as float32 can."""
    mask = torch.ones(B, 1, 1, T, dtype=torch.bool)
    mask[0, ..., :2] = False
    wanted = make()(draw(B, T, D).to(dtype).float())
    for given in (None, mask):
        block, x = make().to(dtype), draw(B, T, D).to(dtype).requires_grad_()
        y, weights = block(x, given, return_weights=True)
        fused = block(x, given)
        assert y.dtype == fused.dtype == dtype
        assert weights.dtype == torch.float32
        sums = weights.sum(-1)
        assert worst(sums, (sums > 0.5).float()) <= 1e-6
        assert bool(y.isfinite().all())
        assert bool(fused.isfinite().all())
        (y.float().sum() + fused.float().sum()).backward()
        assert bool(x.grad.isfinite().all())
        if given is None:
            assert worst(y.float(), wanted) < 0.1
            assert worst(fused.float(), wanted) < 0.1


def test_half_precision_weights_are_not_rounded_to_half() -> None:
    """A softmax computed in float16 would differ from float32 on the same scores by 1e-4 and more."""
    q, k = (draw(B, H, T, D_HEAD, seed=s).half() for s in (1, 2))
    scores = attention.attention_scores(q, k)
    causal = torch.ones(T, T).tril().bool()
    weights = attention.masked_softmax(scores, causal)
    assert weights.dtype == torch.float32
    wanted = attention.masked_softmax(scores.double(), causal)
    assert wanted.dtype == torch.float64
    assert worst(weights, wanted) <= 1e-6


def test_autocast_keeps_the_weights_in_float32() -> None:
    """Computing in bfloat16 with float32 weights: finite, close, and rows still sum to one."""
    block, x = make(), draw(B, T, D)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, weights = block(x, return_weights=True)
        fused = block(x)
    assert weights.dtype == torch.float32
    assert worst(weights.sum(-1), torch.ones(B, H, T)) <= 1e-6
    for found in (y, fused):
        assert worst(found.float(), block(x)) < 0.1


def test_uniform_is_a_running_mean_of_the_values() -> None:
    """By hand: the context of query t is the plain mean of values 0..t, and heads are no more than parts of it."""
    block, x = make(kind="uniform"), draw(B, T, D)
    values = array(x) @ array(block.qkv_proj.weight)[2 * D :].T + array(block.qkv_proj.bias)[2 * D :]
    y, weights = block(x, return_weights=True)
    assert weights.shape == (B, H, T, T)
    for t in range(T):
        mean = values[:, : t + 1].mean(1)
        wanted = mean @ array(block.out_proj.weight).T + array(block.out_proj.bias)
        assert worst(y[:, t], wanted) <= 2e-6
        assert worst(block(x)[:, t], wanted) <= 2e-6
        assert worst(weights[..., t, : t + 1], torch.full((B, H, t + 1), 1 / (t + 1))) <= 1e-7
        assert bool((weights[..., t, t + 1 :] == 0).all())


def test_uniform_teaches_queries_and_keys_nothing() -> None:
    """Their rows of the fused map get exactly zero gradient, the values' do not: the control learns no pattern."""
    for looking in (False, True):
        block, x = make(kind="uniform"), draw(B, T, D)
        y = block(x, return_weights=True)[0] if looking else block(x)
        (y * draw(B, T, D, seed=4)).sum().backward()
        for gradient in (block.qkv_proj.weight.grad, block.qkv_proj.bias.grad):
            assert bool((gradient[: 2 * D] == 0).all())
            assert bool((gradient[2 * D :] != 0).any())


def test_uniform_spreads_over_the_keys_a_mask_leaves() -> None:
    """Half of the keys hidden: each visible one gets one over their number; a query with none gets zeros."""
    block, x = make(kind="uniform"), draw(B, T, D)
    mask = (torch.arange(T) % 2 == 1).view(1, 1, 1, T)  # keys 1, 3, 5
    y, weights = block(x, mask, return_weights=True)
    assert torch.equal(weights[0, 0, 0], torch.zeros(T))
    assert torch.equal(weights[1, 2, 4], torch.tensor([0, 0.5, 0, 0.5, 0, 0, 0]))
    assert torch.equal(y[:, 0], block.out_proj.bias.expand(B, D))
    assert torch.equal(block(x, mask), y)
