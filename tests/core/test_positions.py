"""Positions: each scheme against its definition."""

from __future__ import annotations

import math

import pytest
import torch

from mhsa_cli.core.attention import MultiHeadSelfAttention, attention_scores
from mhsa_cli.core.positions import (
    AlibiPositions,
    RopePositions,
    alibi_slopes,
    sinusoidal_table,
    swap_rope_layout,
)
from tests.core.reference import draw

B, H, T, D_HEAD, MAX = 2, 3, 5, 8, 11


def by_complex_numbers(x: torch.Tensor, pos: torch.Tensor, theta: float) -> torch.Tensor:
    """The definition: pair i is a complex number, turned by pos * theta^(-2i/d)."""
    z = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    i = torch.arange(x.size(-1) // 2, dtype=torch.float64)
    angle = pos.double().unsqueeze(-1) * theta ** (-2 * i / x.size(-1))
    return torch.view_as_real(z * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


@pytest.mark.parametrize("theta", [10000.0, 500.0])
def test_rope_is_a_turn_of_complex_numbers(theta: float) -> None:
    rope, x, pos = RopePositions(MAX, D_HEAD, theta), draw(B, H, T, D_HEAD, seed=1), torch.tensor([0, 2, 3, 7, 10])
    assert torch.allclose(rope.turn(x, pos).double(), by_complex_numbers(x, pos, theta), atol=1e-6)


def test_late_positions_are_as_exact_as_early_ones() -> None:
    rope, x, pos = RopePositions(60_000, D_HEAD), draw(1, 1, 3, D_HEAD, seed=2), torch.tensor([0, 4097, 59_999])
    assert torch.allclose(rope.turn(x, pos).double(), by_complex_numbers(x, pos, 10000.0), atol=1e-6)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_scores_depend_on_distances_only(layout: str) -> None:
    rope = RopePositions(40, D_HEAD, layout=layout)
    q, k = draw(B, H, T, D_HEAD, seed=3), draw(B, H, T, D_HEAD, seed=4)
    near, far = (attention_scores(*rope.rotate(q, k, torch.arange(T) + start)) for start in (0, 31))
    assert torch.allclose(near, far, atol=1e-5)
    assert not torch.allclose(near, attention_scores(q, k), atol=1e-2)


def test_positions_may_differ_from_row_to_row() -> None:
    rope, x = RopePositions(MAX, D_HEAD), draw(B, H, T, D_HEAD, seed=5)
    pos = torch.tensor([[0, 1, 2, 3, 4], [6, 5, 9, 0, 2]])
    rows = torch.stack([rope.turn(x[b], pos[b]) for b in range(B)])
    assert torch.equal(rope.turn(x, pos), rows)


def test_both_layouts_compute_the_same_with_reordered_weights() -> None:
    d_model, x = H * D_HEAD, draw(B, T, H * D_HEAD, seed=6)
    blocks = {
        layout: MultiHeadSelfAttention(d_model, H, max_seq_len=MAX, positions=RopePositions(MAX, D_HEAD, layout=layout))
        for layout in ("interleaved", "half")
    }
    source, target = blocks["interleaved"], blocks["half"]
    target.load_state_dict(source.state_dict())
    assert not torch.allclose(source(x), target(x), atol=1e-3)
    for tensor in (target.qkv_proj.weight, target.qkv_proj.bias):
        rows = tensor.data.view(3, d_model, -1)
        for part in (0, 1):
            rows[part] = swap_rope_layout(rows[part].clone(), H, "half")
    assert torch.allclose(source(x), target(x), atol=1e-6)
    there = swap_rope_layout(source.out_proj.weight.data, H, "half")
    assert torch.equal(swap_rope_layout(there, H, "interleaved"), source.out_proj.weight.data)


def test_what_rope_cannot_turn_is_refused() -> None:
    with pytest.raises(ValueError, match=r"d_head \(5\) must be even"):
        RopePositions(MAX, 5)
    with pytest.raises(ValueError, match="'pairs' is not one of interleaved, half"):
        RopePositions(MAX, 4, layout="pairs")


def test_alibi_slopes_are_the_papers() -> None:
    assert alibi_slopes(8) == [2**-i for i in range(1, 9)]
    assert alibi_slopes(4) == [2**-2, 2**-4, 2**-6, 2**-8]
    assert alibi_slopes(1) == [2**-8]
    assert alibi_slopes(6) == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    assert alibi_slopes(12)[8:] == pytest.approx([2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])
    for n_heads in (1, 2, 3, 5, 7, 16, 24):
        assert len(alibi_slopes(n_heads)) == n_heads and all(0 < s < 1 for s in alibi_slopes(n_heads))


def test_alibi_falls_linearly_with_distance() -> None:
    alibi, pos = AlibiPositions(3), torch.tensor([2, 3, 5, 9])
    bias = alibi.bias(pos, torch.arange(10))
    for head, slope in enumerate(alibi_slopes(3)):
        for i, q in enumerate(pos.tolist()):
            assert bias[head, i].tolist() == pytest.approx([-slope * (q - k) for k in range(10)])


def test_the_sinusoidal_table_is_its_formula() -> None:
    table = sinusoidal_table(MAX, 7)
    for p in range(MAX):
        for column in range(7):
            angle = p / 10000 ** ((column - column % 2) / 7)
            wanted = math.cos(angle) if column % 2 else math.sin(angle)
            assert float(table[p, column]) == pytest.approx(wanted, abs=1e-5)
