"""Positional schemes: each against its definition, worked out on its own in float64."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from mhsa_cli.config.schema import SCHEMES
from mhsa_cli.core.model.attention import MultiHeadSelfAttention, attention_scores
from mhsa_cli.core.model.kv_cache import LayerCache
from mhsa_cli.core.model.positions import (
    POSITIONS,
    AlibiPositions,
    LearnedPositions,
    Positions,
    RopePositions,
    SinusoidalPositions,
    alibi_slopes,
    sinusoidal_table,
    swap_rope_layout,
)
from tests.core.forms import POSITION_FORMS, Form
from tests.core.reference import draw, redraw, worst

B, T, H, D_HEAD, MAX = 2, 7, 3, 8, 11
D = H * D_HEAD
LAYOUTS = ["interleaved", "half"]


def turned(x: Tensor, pos: Tensor, theta: float, layout: str) -> Tensor:
    """Turn x (..., T, d) by the definition: pairs are complex numbers, multiplied by exp(i pos theta^(-2j/d))."""
    d = x.size(-1)
    x = x.double()
    z = torch.complex(x[..., 0::2], x[..., 1::2]) if layout == "interleaved" else torch.complex(*x.chunk(2, -1))
    rate = torch.tensor([theta ** (-2 * j / d) for j in range(d // 2)], dtype=torch.float64)
    z = z * torch.exp(1j * pos.double().unsqueeze(-1) * rate)
    if layout == "interleaved":
        return torch.view_as_real(z).flatten(-2)
    return torch.cat([z.real, z.imag], -1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("theta", [10000.0, 37.0, 500000.0])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_rope_multiplies_complex_numbers(layout: str, theta: float, dtype: torch.dtype, most: float) -> None:
    q, k, pos = draw(B, H, T, D_HEAD).to(dtype), draw(B, 1, T, D_HEAD, seed=2).to(dtype), torch.arange(3, T + 3)
    found = RopePositions(MAX, D_HEAD, theta, layout).rotate(q, k, pos)
    for x, y in zip((q, k), found, strict=True):
        assert y.dtype == dtype
        assert worst(y, turned(x, pos, theta, layout)) <= most
    assert not torch.equal(found[0], q)


def test_rope_by_hand() -> None:
    """Position 0 stays, d_head 2 turns by one radian a step, and the second pair of d_head 4 by a hundredth of it."""
    rope, x = RopePositions(MAX, 2), torch.tensor([[1.0, 0.0]]).expand(3, 2)
    wanted = [[math.cos(p), math.sin(p)] for p in range(3)]
    assert worst(rope.turn(x, torch.arange(3)), torch.tensor(wanted, dtype=torch.float64)) <= 1e-7
    four = RopePositions(MAX, 4).turn(torch.tensor([[0.0, 0.0, 1.0, 0.0]]), torch.tensor([2]))
    assert worst(four, torch.tensor([[0.0, 0.0, math.cos(0.02), math.sin(0.02)]], dtype=torch.float64)) <= 1e-7


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rope_scores_depend_on_distances_only(layout: str) -> None:
    rope = RopePositions(5000, D_HEAD, 10000.0, layout)
    q, k = draw(B, H, T, D_HEAD).double(), draw(B, H, T, D_HEAD, seed=2).double()
    here = attention_scores(*rope.rotate(q, k, torch.arange(T)))
    for shift in (1, 129, 4990):
        assert worst(attention_scores(*rope.rotate(q, k, torch.arange(shift, T + shift))), here) <= 1e-11
    assert worst(attention_scores(*rope.rotate(q, k, 2 * torch.arange(T))), here) > 0.1
    # The same vectors everywhere: the scores are constant along diagonals, and not everywhere.
    one = attention_scores(*rope.rotate(q[..., :1, :].expand_as(q), k[..., :1, :].expand_as(k), torch.arange(T)))
    assert worst(one[..., 1:, 1:], one[..., :-1, :-1]) <= 1e-12
    assert worst(one[..., 1:, :-1], one[..., :-1, 1:]) > 0.1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_positions_may_be_given_for_each_row(layout: str) -> None:
    """(T,) for all, or (B, T): also out of order, repeated, and far apart."""
    rope, q, k = RopePositions(MAX, D_HEAD, 10000.0, layout), draw(B, H, T, D_HEAD), draw(B, 1, T, D_HEAD, seed=2)
    pos = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [10, 0, 7, 7, 3, 9, 1]])
    for x, y in zip((q, k), rope.rotate(q, k, pos), strict=True):
        assert y.shape == x.shape
        for row in range(B):
            assert torch.equal(y[row], rope.turn(x[row], pos[row]))
            assert worst(y[row], turned(x[row], pos[row], 10000.0, layout)) <= 1e-6
    assert torch.equal(rope.turn(q, pos[:1]), rope.turn(q, pos[0]))


@pytest.mark.parametrize("scheme", [name for name, method in SCHEMES.items() if method != "embed"])
def test_a_block_at_other_positions(scheme: str) -> None:
    """Per-row positions are those of each row alone, on both paths; distances decide, not where a row begins."""
    positions = POSITIONS[scheme](Form(scheme, "softmax", H, 1).config(d_model=D, n_heads=H), MAX)
    block = redraw(MultiHeadSelfAttention(D, H, max_seq_len=MAX, positions=positions), 0).double()
    x, pos = draw(B, T, D).double(), torch.stack([torch.arange(T), torch.arange(T) + 4])
    jumps = torch.tensor([0, 1, 2, 5, 6, 9, 10])
    for looking in (False, True):
        both, plain, far = (block(x, pos=p, return_weights=looking) for p in (pos, None, jumps))
        both, plain, far = (y[0] if looking else y for y in (both, plain, far))
        for row in range(B):
            alone = block(x[row : row + 1], pos=pos[row], return_weights=True)[0]
            assert worst(both[row : row + 1], alone) <= 1e-12
        assert worst(both, plain) <= 1e-12
        assert (worst(far, plain) > 0.01) == (scheme != "none")


@pytest.mark.parametrize("to", LAYOUTS)
def test_layouts_can_be_swapped(to: str) -> None:
    """The rows of the query and key maps in another order: the same outputs, and back again the same weights."""
    other = LAYOUTS[1 - LAYOUTS.index(to)]
    groups, kv = 1, D_HEAD
    blocks = [
        MultiHeadSelfAttention(
            D, H, n_kv_heads=groups, max_seq_len=MAX, positions=RopePositions(MAX, D_HEAD, layout=x), bias=False
        ).double()
        for x in (other, to)
    ]
    q, k, v = (redraw(blocks[0], 0).qkv_proj.weight.data).split([D, kv, kv])
    swapped = swap_rope_layout(q, H, to), swap_rope_layout(k, groups, to)
    blocks[1].load_projections(*swapped, v, blocks[0].out_proj.weight.data)
    x = draw(B, T, D).double()
    assert worst(blocks[1](x), blocks[0](x)) <= 1e-12
    assert torch.equal(swap_rope_layout(swapped[0], H, other), q)
    blocks[1].load_projections(q, k, v, blocks[0].out_proj.weight.data)
    assert worst(blocks[1](x), blocks[0](x)) > 0.01


def test_rope_refuses_what_it_cannot_turn() -> None:
    with pytest.raises(ValueError, match=r"d_head \(5\) must be even"):
        RopePositions(MAX, 5)
    with pytest.raises(ValueError, match="'twisted' is not one of interleaved, half"):
        RopePositions(MAX, 4, layout="twisted")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_late_positions_are_as_exact_as_early_ones(dtype: torch.dtype) -> None:
    """In half precision 4,095 and 4,096 are one number, and in float32 a late angle would lose its last digits."""
    rope = RopePositions(65536, 4).to(dtype)
    pos = torch.tensor([1, 4095, 4096, 65535])
    x = torch.tensor([1.0, 0.0, 1.0, 0.0]).expand(4, 4)
    wanted = turned(x, pos, 10000.0, "interleaved")
    found = rope.turn(x.to(dtype), pos)
    assert found.dtype == dtype and worst(found.float(), wanted) <= torch.finfo(dtype).eps
    assert worst(found[1].float(), found[2]) > 0.1


def test_the_sinusoidal_table_is_the_formula() -> None:
    """Even columns sin(p / 10000^(2i/D)), odd ones the cosine; also far out, and where the last one has no pair."""
    for width in (6, 5, 1):
        table = sinusoidal_table(4099, width)
        assert table.dtype == torch.float32 and table.shape == (4099, width)
        for p in (0, 1, 2, 1000, 4098):
            for c in range(width):
                angle = p / 10000 ** (2 * (c // 2) / width)
                assert abs(float(table[p, c]) - (math.cos(angle) if c % 2 else math.sin(angle))) <= 6e-8
    x, pos = draw(B, 3, 6), torch.tensor([[0, 4, 2], [1, 1, 9]])
    assert torch.equal(SinusoidalPositions(10, 6).embed(x, pos)[1], x[1] + sinusoidal_table(10, 6)[[1, 1, 9]])


def test_learned_positions_add_rows_and_only_used_rows_are_trained() -> None:
    learned = LearnedPositions(MAX, D)
    x, table = draw(B, 3, D), learned.pos_emb.weight
    for pos in (torch.tensor([2, 0, 9]), torch.tensor([[2, 0, 9], [9, 9, 1]])):
        y = learned.embed(x, pos)
        assert torch.equal(y, x + table[pos])
        (gradient,) = torch.autograd.grad(y.sum(), [table])
        count = torch.bincount(pos.expand(B, 3).flatten(), minlength=MAX)
        assert torch.equal(gradient, count.float().unsqueeze(-1).expand(MAX, D))


# The paper's: a power of two starts at 2^(-8/H); others take the one below, then every other slope of the next.
SLOPES = {
    1: [Fraction(1, 256)],
    2: [Fraction(1, 16), Fraction(1, 256)],
    3: [Fraction(1, 16), Fraction(1, 256), Fraction(1, 4)],
    4: [Fraction(1, 4), Fraction(1, 16), Fraction(1, 64), Fraction(1, 256)],
    6: [Fraction(1, 4), Fraction(1, 16), Fraction(1, 64), Fraction(1, 256), Fraction(1, 2), Fraction(1, 8)],
    8: [Fraction(1, 2**i) for i in range(1, 9)],
}
ROOT = [0.7071067811865476, 0.3535533905932738, 0.1767766952966369, 0.08838834764831845]  # 2^-0.5, 2^-1.5, ...
LATER = [0.04419417382415922, 0.02209708691207961, 0.011048543456039806, 0.005524271728019903]


@pytest.mark.parametrize(
    ("n_heads", "wanted"),
    [
        *SLOPES.items(),
        (12, [*SLOPES[8], *ROOT]),
        (16, [x for pair in zip([*ROOT, *LATER], SLOPES[8], strict=True) for x in pair]),
    ],
)
def test_alibi_slopes_are_the_papers(n_heads: int, wanted: list[float]) -> None:
    assert alibi_slopes(n_heads) == pytest.approx([float(x) for x in wanted], rel=1e-15)


def test_alibi_has_a_slope_for_every_number_of_heads() -> None:
    for n_heads in range(1, 70):
        slopes = alibi_slopes(n_heads)
        assert len(set(slopes)) == n_heads and all(0 < s < 1 for s in slopes)


@pytest.mark.parametrize("n_heads", [1, 3, 8, 12])
def test_alibi_falls_linearly_with_distance(n_heads: int) -> None:
    alibi, slopes = AlibiPositions(n_heads), torch.tensor(alibi_slopes(n_heads))
    bias = alibi.bias(torch.arange(T), torch.arange(T))
    assert bias.shape == (n_heads, T, T)
    for h in range(n_heads):
        for q in range(T):
            for k in range(q + 1):
                assert float(bias[h, q, k]) == pytest.approx(-float(slopes[h]) * (q - k), rel=1e-6)
    late = alibi.bias(torch.tensor([2**24 + 1]), torch.tensor([2**24, 2**24 + 1]))  # no neighbours in float32
    assert torch.equal(late[:, 0], torch.stack([-slopes, torch.zeros(n_heads)], -1))


@pytest.mark.parametrize("scheme", [name for name in POSITION_FORMS if name != "none"])
def test_a_cache_goes_on_at_the_next_position(scheme: str) -> None:
    """A block on its own counts on from what its cache holds, and one told other positions keeps them."""
    form = Form(scheme, "softmax", H, 1)
    positions = POSITIONS[scheme.split()[0]](form.config(d_model=D, n_heads=H), 40)
    block = redraw(MultiHeadSelfAttention(D, H, max_seq_len=MAX, positions=positions), 0).double()
    x, far = draw(B, T, D).double(), torch.tensor([3, 4, 9, 11, 20, 21, 39])
    for pos in (None, far):
        full, cache, parts = block(x, pos=pos), LayerCache(), []
        for rows in (slice(0, 2), slice(2, 3), slice(3, T)):
            parts.append(block(x[:, rows], pos=None if pos is None else pos[rows], cache=cache))
        assert worst(torch.cat(parts, 1), full) <= 1e-12
        assert cache.positions is not None
        assert torch.equal(cache.positions, torch.arange(T) if pos is None else far)


def test_every_scheme_acts_at_one_moment_only() -> None:
    x, q, k, pos = draw(B, T, 24), draw(B, 4, T, 6), draw(B, 2, T, 6, seed=2), torch.arange(T)
    assert list(SCHEMES) == list(POSITIONS)
    for name, moment in SCHEMES.items():
        scheme = POSITIONS[name](Form(name, "softmax", 2, 1).config(), T)
        assert isinstance(scheme, Positions)
        assert (scheme.embed(x, pos) is x) == (moment != "embed")
        assert (scheme.rotate(q, k, pos)[0] is q and scheme.rotate(q, k, pos)[1] is k) == (moment != "rotate")
        assert (scheme.bias(pos, pos) is None) == (moment != "bias")
