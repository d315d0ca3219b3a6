"""Linear attention: one result by three roads, and a memory that does not grow."""

from __future__ import annotations

import pytest
import torch

from mhsa_cli.core.attention import MultiHeadSelfAttention, causal_window
from mhsa_cli.core.cache import LayerCache
from mhsa_cli.core.linear import BLOCK, feature_map, linear_attention, linear_weights
from tests.core.reference import draw

B, H, D_HEAD = 2, 3, 5


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("T", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7])
def test_blocks_recurrence_and_weights_agree(T: int, dtype: torch.dtype, bound: float) -> None:
    q, k, v = (draw(B, H, T, D_HEAD, seed=s).to(dtype) for s in (1, 2, 3))
    in_blocks = linear_attention(q, k, v)
    by_weights = linear_weights(q, k, causal_window(T, T)).to(dtype) @ v
    cache = LayerCache()
    rows = [linear_attention(q[..., t : t + 1, :], k[..., t : t + 1, :], v[..., t : t + 1, :], cache) for t in range(T)]
    assert torch.allclose(in_blocks, by_weights, atol=bound)
    assert torch.allclose(in_blocks, torch.cat(rows, -2), atol=bound)
    assert cache.length == T and cache.numel == B * H * D_HEAD * (D_HEAD + 1)


def test_a_row_by_hand() -> None:
    q, k, v = (draw(1, 1, 3, D_HEAD, seed=s).double() for s in (1, 2, 3))
    fq, fk = feature_map(q)[0, 0], feature_map(k)[0, 0]
    mass = [float(fq[2] @ fk[j]) for j in range(3)]
    wanted = sum(m * v[0, 0, j] for j, m in enumerate(mass)) / sum(mass)
    assert torch.allclose(linear_attention(q, k, v)[0, 0, 2], wanted)
    weights = linear_weights(q, k, causal_window(3, 3))
    assert weights[0, 0, 2].tolist() == pytest.approx([m / sum(mass) for m in mass])


def test_a_cache_of_sums_holds_no_keys_to_look_at() -> None:
    block, x = MultiHeadSelfAttention(15, 3, max_seq_len=9, kind="linear"), draw(2, 4, 15, seed=1)
    cache = LayerCache()
    block(x, cache=cache)
    for options in ({"return_weights": True}, {"mask": torch.ones(4, 4, dtype=torch.bool)}):
        with pytest.raises(ValueError, match="keeps no keys"):
            block(x, cache=cache, **options)


def test_a_query_that_sees_nothing_gets_nothing() -> None:
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    weights = linear_weights(draw(1, 1, 4, 5, seed=1), draw(1, 1, 4, 5, seed=2), mask)
    assert weights[0, 0, 1].tolist() == [0.0] * 4 and bool(weights.isfinite().all())
