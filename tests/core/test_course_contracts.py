"""The signatures that courses test against, met by a few lines each, and checked against loops in float64.

Masks say True where a query may look; weights are (d_out, d_in); heads are contiguous blocks of rows; leading axes are
free. An older contract gives every head's weights on their own.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from mhsa_cli.core.model.attention import MultiHeadSelfAttention, attention_weights, fused_attention
from mhsa_cli.core.model.positions import Positions, RopePositions
from tests.core.reference import array, coins, draw, worst

D, H, D_HEAD, T, MAX = 12, 3, 4, 7, 11
THETA = 10000.0


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    positions: Positions | None = None,
    token_positions: Tensor | None = None,
) -> Tensor:
    """Causal attention of in_features (..., T, d_in)."""
    T = in_features.size(-2)
    block = MultiHeadSelfAttention(d_model, num_heads, max_seq_len=T, bias=False, positions=positions)
    block = block.to(in_features.dtype)
    block.load_projections(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    rows = in_features if in_features.dim() > 2 else in_features.unsqueeze(0)
    with torch.no_grad():
        return block(rows, pos=token_positions).view(*in_features.shape[:-1], -1)


def run_multihead_self_attention_with_rope(
    d_model: int,
    num_heads: int,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    token_positions: Tensor | None = None,
) -> Tensor:
    """The same with queries and keys turned by their positions, (..., T) or none for 0, 1, 2 ..."""
    rope = RopePositions(max_seq_len, d_model // num_heads, theta)
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return run_multihead_self_attention(d_model, num_heads, *weights, in_features, rope, token_positions)


def run_multihead_self_attention_by_head(
    d_model: int, num_heads: int, weights: dict[str, Tensor], in_features: Tensor
) -> Tensor:
    """The older contract: `q_heads.0.weight` (d_head, d_model) and so on, then `output_proj.weight`."""
    q, k, v = (torch.cat([weights[f"{x}_heads.{h}.weight"] for h in range(num_heads)]) for x in "qkv")
    return run_multihead_self_attention(d_model, num_heads, q, k, v, weights["output_proj.weight"], in_features)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    """Q (..., Tq, d), K and V (..., Tk, d), mask (..., Tq, Tk) with True where a query may look."""
    return attention_weights(Q, K, mask) @ V


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    """Turn (..., T, d_k) by positions (..., T)."""
    return RopePositions(max_seq_len, d_k, theta).turn(in_query_or_key.unsqueeze(-3), token_positions).squeeze(-3)


def turned(x: np.ndarray, position: int, theta: float) -> np.ndarray:
    """Turn one vector, pair by pair."""
    out = np.empty_like(x)
    for i in range(0, len(x), 2):
        angle = position / theta ** (i / len(x))
        out[i] = x[i] * np.cos(angle) - x[i + 1] * np.sin(angle)
        out[i + 1] = x[i] * np.sin(angle) + x[i + 1] * np.cos(angle)
    return out


def mixed(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Attention of one head: q (Tq, d), k and v (Tk, d)."""
    out = np.zeros((len(q), v.shape[1]))
    for t in range(len(q)):
        powers = np.array([np.exp(q[t] @ k[s] / np.sqrt(len(q[t]))) if mask[t, s] else 0.0 for s in range(len(k))])
        out[t] = powers @ v / powers.sum()
    return out


def wanted_attention(weights: list[Tensor], x: Tensor, positions: Tensor | None, theta: float = THETA) -> np.ndarray:
    """Every row of x (..., T, d_in) on its own, head by head."""
    q_map, k_map, v_map, out_map = (array(w) for w in weights)
    rows = array(x).reshape(-1, *x.shape[-2:])
    places = None if positions is None else array(positions.expand(*x.shape[:-1])).reshape(len(rows), -1)
    mask = np.tril(np.ones((x.size(-2),) * 2, dtype=bool))
    out = np.zeros((*rows.shape[:2], D))
    for n, row in enumerate(rows):
        for h in range(H):
            part = slice(h * D_HEAD, (h + 1) * D_HEAD)
            q, k, v = (row @ m[part].T for m in (q_map, k_map, v_map))
            if places is not None:
                q, k = (np.stack([turned(y[t], places[n, t], theta) for t in range(len(y))]) for y in (q, k))
            out[n][:, part] = mixed(q, k, v, mask)
    return (out @ out_map.T).reshape(*x.shape[:-1], D)


def maps() -> list[Tensor]:
    """Draw q, k, v and o weights (d_out, d_in)."""
    return [draw(D, D, seed=s) / D**0.5 for s in range(4)]


LEADS = [(), (1,), (5,), (2, 5), (2, 1, 5)]


@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_multihead_self_attention(lead: tuple[int, ...]) -> None:
    x, weights = draw(*lead, T, D, seed=9), maps()
    found = run_multihead_self_attention(D, H, *weights, x)
    assert found.shape == (*lead, T, D)
    assert worst(found, wanted_attention(weights, x, None)) <= 1e-6


@pytest.mark.parametrize("lead", LEADS, ids=str)
@pytest.mark.parametrize("theta", [10000.0, 50.0])
def test_multihead_self_attention_with_rope(lead: tuple[int, ...], theta: float) -> None:
    """Positions (T,), (1, T), one list for each row, or none."""
    x, weights, straight = draw(*lead, T, D, seed=9), maps(), torch.arange(T)
    own = torch.randint(0, MAX, (*lead, T), generator=torch.Generator().manual_seed(5))
    for given in (straight, straight.unsqueeze(0), torch.tensor([2, 3, 4, 5, 8, 9, 10]), own, None):
        found = run_multihead_self_attention_with_rope(D, H, MAX, theta, *weights, x, given)
        positions = straight if given is None else given
        positions = positions.view(T) if positions.numel() == T else positions
        assert found.shape == (*lead, T, D)
        assert worst(found, wanted_attention(weights, x, positions, theta)) <= 1e-6


def test_weights_of_single_heads() -> None:
    x, weights = draw(5, T, D, seed=9), maps()
    named = {
        f"{name}_heads.{h}.weight": part
        for name, weight in zip("qkv", weights, strict=False)
        for h, part in enumerate(weight.split(D_HEAD))
    }
    found = run_multihead_self_attention_by_head(D, H, {**named, "output_proj.weight": weights[3]}, x)
    assert worst(found, wanted_attention(weights, x, None)) <= 1e-6


@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (2, 3, 1)], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_scaled_dot_product_attention(lead: tuple[int, ...], masked: bool) -> None:
    """(B, T, d) and (B, H, T, d) and beyond; queries and keys of two lengths; the fused path too."""
    q, k, v = draw(*lead, 4, 6, seed=1), draw(*lead, T, 6, seed=2), draw(*lead, T, 9, seed=3)
    mask = coins(*lead, 4, T) if masked else torch.ones(*lead, 4, T, dtype=torch.bool)
    mask[..., 0] = True
    parts = [array(t).reshape(-1, *t.shape[-2:]) for t in (q, k, v, mask)]
    wanted = np.stack([mixed(*one) for one in zip(*parts, strict=True)]).reshape(*lead, 4, 9)
    assert worst(run_scaled_dot_product_attention(q, k, v, mask if masked else None), wanted) <= 1e-6
    if lead:
        assert worst(fused_attention(q, k, v, mask if masked else None, None, causal=False), wanted) <= 1e-6


@pytest.mark.parametrize("lead", [(), (5,), (2, 3)], ids=str)
@pytest.mark.parametrize("theta", [10000.0, 50.0])
def test_rope(lead: tuple[int, ...], theta: float) -> None:
    x = draw(*lead, T, 6, seed=4)
    own = torch.randint(0, MAX, (*lead, T), generator=torch.Generator().manual_seed(5))
    straight = torch.arange(T)
    for positions in (straight, straight.expand(*lead, T), own):
        places = array(positions.expand(*lead, T)).reshape(-1)
        rows = array(x).reshape(-1, 6)
        wanted = np.stack([turned(row, p, theta) for row, p in zip(rows, places, strict=True)]).reshape(x.shape)
        assert worst(run_rope(6, theta, MAX, x, positions), wanted) <= 1e-6


def test_loading_projections_replaces_all() -> None:
    """One call: biases of the block count no more."""
    weights, x = maps(), draw(5, T, D, seed=9)
    block = MultiHeadSelfAttention(D, H, max_seq_len=MAX)
    block.load_projections(*weights)
    assert worst(block(x), wanted_attention(weights, x, None)) <= 1e-6
    shared = MultiHeadSelfAttention(D, H, n_kv_heads=1, max_seq_len=MAX)
    shared.load_projections(weights[0], weights[1][:D_HEAD], weights[2][:D_HEAD], weights[3])
    spread = [weights[0], *(w[:D_HEAD].repeat(H, 1) for w in weights[1:3]), weights[3]]
    assert worst(shared(x), wanted_attention(spread, x, None)) <= 1e-6
