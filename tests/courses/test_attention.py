"""Attention as a course tests it: any leading axes, masks, rope at positions of the caller's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from mhsa_cli.core.model.attention import fused_attention
from mhsa_cli.nn import MultiHeadSelfAttention
from tests.core.reference import array, coins, draw, worst
from tests.courses import adapters, by_hand

D, H, D_HEAD, T, MAX = 12, 3, 4, 7, 11
LEADS = [(), (1,), (5,), (2, 5), (2, 1, 5)]


def maps() -> list[Tensor]:
    """Draw q, k, v and o weights (d_out, d_in)."""
    return [draw(D, D, seed=s) / D**0.5 for s in range(4)]


def expected(weights: list[Tensor], x: Tensor, positions: Tensor | None = None, theta: float = 10000.0) -> np.ndarray:
    return by_hand.attention(
        [*map(array, weights)], H, array(x), None if positions is None else array(positions), theta
    )


@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_multihead_self_attention(lead: tuple[int, ...]) -> None:
    x, weights = draw(*lead, T, D, seed=9), maps()
    found = adapters.run_multihead_self_attention(D, H, *weights, x)
    assert found.shape == (*lead, T, D)
    assert worst(found, expected(weights, x)) <= 1e-6


@pytest.mark.parametrize("lead", LEADS, ids=str)
@pytest.mark.parametrize("theta", [10000.0, 50.0])
def test_multihead_self_attention_with_rope(lead: tuple[int, ...], theta: float) -> None:
    """Positions (T,), (1, T), one list for each row, or none."""
    x, weights, straight = draw(*lead, T, D, seed=9), maps(), torch.arange(T)
    own = torch.randint(0, MAX, (*lead, T), generator=torch.Generator().manual_seed(5))
    for given in (straight, straight.unsqueeze(0), torch.tensor([2, 3, 4, 5, 8, 9, 10]), own, None):
        found = adapters.run_multihead_self_attention_with_rope(D, H, MAX, theta, *weights, x, given)
        positions = straight if given is None else given
        positions = positions.view(T) if positions.numel() == T else positions
        assert found.shape == (*lead, T, D)
        assert worst(found, expected(weights, x, positions, theta)) <= 1e-6


def test_weights_of_single_heads() -> None:
    x, weights = draw(5, T, D, seed=9), maps()
    named = {
        f"{name}_heads.{h}.weight": part
        for name, weight in zip("qkv", weights, strict=False)
        for h, part in enumerate(weight.split(D_HEAD))
    }
    found = adapters.run_multihead_self_attention_by_head(D, H, {**named, "output_proj.weight": weights[3]}, x)
    assert worst(found, expected(weights, x)) <= 1e-6


@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (2, 3, 1)], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_scaled_dot_product_attention(lead: tuple[int, ...], masked: bool) -> None:
    """(B, T, d) and (B, H, T, d) and beyond; queries and keys of two lengths; the fused path too."""
    q, k, v = draw(*lead, 4, 6, seed=1), draw(*lead, T, 6, seed=2), draw(*lead, T, 9, seed=3)
    mask = coins(*lead, 4, T) if masked else torch.ones(*lead, 4, T, dtype=torch.bool)
    mask[..., 0] = True
    parts = [array(t).reshape(-1, *t.shape[-2:]) for t in (q, k, v, mask)]
    wanted = np.stack([by_hand.mixed(*one) for one in zip(*parts, strict=True)]).reshape(*lead, 4, 9)
    assert worst(adapters.run_scaled_dot_product_attention(q, k, v, mask if masked else None), wanted) <= 1e-6
    if lead:
        assert worst(fused_attention(q, k, v, mask if masked else None, None, causal=False), wanted) <= 1e-6


def test_a_query_without_a_key_gives_zeros() -> None:
    q, k, v = draw(2, 4, 6, seed=1), draw(2, T, 6, seed=2), draw(2, T, 9, seed=3)
    mask = torch.ones(4, T, dtype=torch.bool)
    mask[2] = False
    found = adapters.run_scaled_dot_product_attention(q, k, v, mask)
    assert not found[:, 2].any() and found[:, [0, 1, 3]].all()


@pytest.mark.parametrize("lead", [(), (5,), (2, 3)], ids=str)
@pytest.mark.parametrize("theta", [10000.0, 50.0])
def test_rope(lead: tuple[int, ...], theta: float) -> None:
    x = draw(*lead, T, 6, seed=4)
    own = torch.randint(0, MAX, (*lead, T), generator=torch.Generator().manual_seed(5))
    straight = torch.arange(T)
    for positions in (straight, straight.expand(*lead, T), own):
        places = array(positions.expand(*lead, T)).reshape(-1)
        rows = array(x).reshape(-1, 6)
        turned = [by_hand.turned(row, p, theta) for row, p in zip(rows, places, strict=True)]
        assert worst(adapters.run_rope(6, theta, MAX, x, positions), np.stack(turned).reshape(x.shape)) <= 1e-6


def test_loading_projections_replaces_all() -> None:
    """One call: biases of the block count no more."""
    weights, x = maps(), draw(5, T, D, seed=9)
    block = MultiHeadSelfAttention(D, H, max_seq_len=MAX)
    block.load_projections(*weights)
    assert worst(block(x), expected(weights, x)) <= 1e-6
    shared = MultiHeadSelfAttention(D, H, n_kv_heads=1, max_seq_len=MAX)
    shared.load_projections(weights[0], weights[1][:D_HEAD], weights[2][:D_HEAD], weights[3])
    spread = [weights[0], *(w[:D_HEAD].repeat(H, 1) for w in weights[1:3]), weights[3]]
    assert worst(shared(x), expected(spread, x)) <= 1e-6
