"""The contract: sizes, parameters, what is saved, and what is refused in the words of the config."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch

from mhsa_cli.core.model import attention
from mhsa_cli.core.model.cross_attention import MultiHeadCrossAttention
from mhsa_cli.core.model.positions import AlibiPositions, Positions, RopePositions
from tests.core.reference import D_HEAD, MAX, B, D, H, T, draw, redraw


def test_split_and_merge_undo_each_other() -> None:
    """Also with a leading stack of models; and head h holds columns h*d .. (h+1)*d, row by row."""
    for lead in ((B,), (4, B)):
        x = draw(*lead, T, D)
        heads = attention.split_heads(x, H)
        assert heads.shape == (*lead, H, T, D_HEAD)
        assert torch.equal(attention.merge_heads(heads), x)
        for h in range(H):
            assert torch.equal(heads[..., h, :, :], x[..., h * D_HEAD : (h + 1) * D_HEAD])
        y = draw(*lead, H, T, D_HEAD)
        assert torch.equal(attention.split_heads(attention.merge_heads(y), H), y)


def test_splitting_copies_nothing() -> None:
    """Heads are a view: the same storage, and writing into one shows in the other."""
    x = draw(B, T, D)
    heads = attention.split_heads(x, H)
    assert heads.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    heads[1, 2, 3, 4] = 77.0
    assert float(x[1, 3, 2 * D_HEAD + 4]) == 77.0


@pytest.mark.parametrize(
    ("d_model", "n_heads", "without", "with_bias"),
    [(8, h, 256, 288) for h in (1, 2, 4, 8)] + [(768, 12, 2_359_296, 2_362_368), (32, 4, 4096, 4224)],
)
def test_parameters_are_four_squares_whatever_the_heads(
    d_model: int, n_heads: int, without: int, with_bias: int
) -> None:
    """4·D² without bias, 4·D² + 4·D with it."""
    for bias, wanted in ((False, without), (True, with_bias)):
        block = attention.MultiHeadSelfAttention(d_model, n_heads, max_seq_len=5, bias=bias)
        assert sum(p.numel() for p in block.parameters()) == wanted
        assert block.d_head * n_heads == d_model


def test_what_is_saved_is_four_tensors() -> None:
    """The mask follows from max_seq_len and is not saved, but it is a buffer and moves with the block."""
    block = attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX, dropout=0.1)
    shapes = {name: tuple(tensor.shape) for name, tensor in block.state_dict().items()}
    assert shapes == {
        "qkv_proj.weight": (3 * D, D),
        "qkv_proj.bias": (3 * D,),
        "out_proj.weight": (D, D),
        "out_proj.bias": (D,),
    }
    assert [name for name, _ in block.named_buffers()] == ["visible"]
    assert block.visible.shape == (MAX, MAX)
    assert block.visible.dtype == torch.bool
    assert not block.visible.requires_grad
    longer = attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX + 2)
    longer.load_state_dict(block.state_dict())
    assert longer(draw(B, MAX + 2, D)).shape == (B, MAX + 2, D)
    bare = attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX, bias=False)
    assert sorted(bare.state_dict()) == ["out_proj.weight", "qkv_proj.weight"]


def test_the_initial_draw_does_not_depend_on_the_heads() -> None:
    """One seed, every number of heads: the same four tensors."""
    drawn = []
    for heads in (1, H, D_HEAD, D):
        torch.manual_seed(3)
        drawn.append(attention.MultiHeadSelfAttention(D, heads, max_seq_len=MAX).state_dict())
    for other in drawn[1:]:
        assert all(torch.equal(tensor, other[name]) for name, tensor in drawn[0].items())
    bound = 1 / math.sqrt(D)
    for tensor in drawn[0].values():
        assert 0.8 * bound < float(tensor.abs().max()) <= bound


def test_outputs_have_the_shape_of_inputs() -> None:
    """The fused map gives 3·D; outputs are (B, T, D) on both paths, weights (B, H, T, T), for T from 1 to the most."""
    block = attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX)
    assert block.qkv_proj(draw(B, T, D)).shape == (B, T, 3 * D)
    for part in block.project(draw(B, T, D), torch.arange(T)):
        assert part.shape == (B, H, T, D_HEAD)
    for length in (1, T, MAX):
        x = draw(B, length, D)
        assert block(x).shape == (B, length, D)
        y, weights = block(x, return_weights=True)
        assert y.shape == (B, length, D)
        assert weights.shape == (B, H, length, length)


@pytest.mark.parametrize("looking", [False, True])
def test_gradients_reach_every_parameter_and_every_token(looking: bool) -> None:
    """Every row of both maps, and every input, feels the loss on the outputs (the keys' bias alone cannot)."""
    block, x = redraw(attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX), 0), draw(B, T, D).requires_grad_()
    y = block(x, return_weights=True)[0] if looking else block(x)
    (y * draw(B, T, D, seed=3)).sum().backward()
    assert bool((block.qkv_proj.weight.grad.abs().sum(1) > 1e-4).all())
    assert bool((block.out_proj.weight.grad.abs().sum(1) > 1e-4).all())
    assert bool((block.out_proj.bias.grad.abs() > 1e-4).all())
    query, key, value = block.qkv_proj.bias.grad.chunk(3)
    assert bool((query.abs() > 1e-4).all())
    assert bool((value.abs() > 1e-4).all())
    assert float(key.abs().max()) < 1e-4, "adding one number to all scores of a query changes nothing"
    assert bool((x.grad.abs().sum(-1) > 1e-4).all())


def test_it_is_made_as_torchs_modules_are() -> None:
    """The length is the third argument and may be left out; device and dtype say where and what the numbers are."""
    block = attention.MultiHeadSelfAttention(D, H, MAX)
    assert block.max_seq_len == MAX and block.visible.shape == (MAX, MAX)
    longest = attention.MultiHeadSelfAttention(D, H)
    assert longest(draw(1, longest.max_seq_len, D)).shape == (1, longest.max_seq_len, D)
    assert longest.max_seq_len >= 1024


@pytest.mark.parametrize("make", [attention.MultiHeadSelfAttention, MultiHeadCrossAttention])
@pytest.mark.parametrize("bias", [True, False])
def test_device_and_dtype_are_those_of_every_tensor(make: Callable[..., torch.nn.Module], bias: bool) -> None:
    for device in ("cpu", "meta", torch.device("meta")):
        for dtype in (None, torch.float64, torch.bfloat16):
            block = make(D, H, bias=bias, device=device, dtype=dtype)
            assert {t.device for t in (*block.parameters(), *block.buffers())} == {torch.device(device)}
            assert {p.dtype for p in block.parameters()} == {dtype or torch.float32}
    torch.manual_seed(4)
    usual = make(D, H, bias=bias)
    torch.manual_seed(4)
    given = make(D, H, bias=bias, device="cpu", dtype=torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(usual.parameters(), given.parameters(), strict=True))


@pytest.mark.parametrize("kind", ["softmax", "linear", "uniform"])
@pytest.mark.parametrize("positions", [RopePositions(MAX, D_HEAD + 1), AlibiPositions(H, dtype=torch.float64), None])
def test_what_is_made_in_float64_computes_in_float64(kind: str, positions: Positions | None) -> None:
    if kind == "linear" and isinstance(positions, AlibiPositions):
        return
    width = H * (D_HEAD + 1)
    block = attention.MultiHeadSelfAttention(width, H, MAX, kind=kind, positions=positions, dtype=torch.float64)
    narrow = attention.MultiHeadSelfAttention(width, H, MAX, kind=kind, positions=positions)
    narrow.load_state_dict(block.state_dict())
    y, weights = block(draw(B, T, width).double(), return_weights=True)
    assert y.dtype == weights.dtype == torch.float64
    for wide in (y, block(draw(B, T, width).double())):
        assert wide.dtype == torch.float64 and torch.allclose(wide.float(), narrow(draw(B, T, width)), atol=1e-5)
    cross = MultiHeadCrossAttention(width, H, dtype=torch.float64)
    assert cross(draw(B, T, width).double(), draw(B, MAX, width).double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((4, 3), "d_model (4) must be divisible by n_heads (3)"),
        ((1600, 48), "d_model (1600) must be divisible by n_heads (48)"),
        ((6, 7), "d_model (6) must be divisible by n_heads (7)"),
        ((6, 0), "n_heads (0) must be at least 1"),
        ((6, -2), "n_heads (-2) must be at least 1"),
    ],
)
def test_impossible_heads_are_refused(sizes: tuple[int, int], words: str) -> None:
    """Both sizes are named, in the config's words."""
    with pytest.raises(ValueError, match=re.escape(words)):
        attention.MultiHeadSelfAttention(*sizes, max_seq_len=5)


@pytest.mark.parametrize("p", [float("nan"), -0.1, 1.0, 1.5, float("inf")])
def test_impossible_dropout_is_refused(p: float) -> None:
    """1.0 would give zeros for ever, nan everything or nothing."""
    with pytest.raises(ValueError, match=re.escape(f"dropout must be in [0, 1), got {p}")):
        attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX, dropout=p)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="attention kind 'sofmax' is not one of softmax, linear, uniform"):
        attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX, kind="sofmax")


@pytest.mark.parametrize("looking", [False, True])
def test_impossible_inputs_are_refused(looking: bool) -> None:
    """Too long, too wide, too narrow, without a batch, or with a mask that is not a boolean."""
    block = attention.MultiHeadSelfAttention(15, 3, max_seq_len=2)
    with pytest.raises(ValueError, match="input length T=4 exceeds max_seq_len=2"):
        block(draw(7, 4, 15), return_weights=looking)
    for shape in ((7, 2, 14), (7, 2, 30), (2, 15), (15,)):
        words = f"input must be (B, T, d_model=15), got {shape}"
        with pytest.raises(ValueError, match=re.escape(words)):
            block(draw(*shape), return_weights=looking)
    for mask in (torch.ones(2, 2), torch.zeros(2, 2, dtype=torch.int64)):
        words = f"mask must be boolean (True = may attend), got {mask.dtype}"
        with pytest.raises(ValueError, match=re.escape(words)):
            block(draw(7, 2, 15), mask, return_weights=looking)
    for given in ((2, 3), (7, 2, 2), (5, 7, 3, 2, 2)):
        words = f"mask {given} does not broadcast to the weights, (7, 3, 2, 2); a mask per row is (7, 1, 2, 2)"
        with pytest.raises(ValueError, match=re.escape(words)):
            block(draw(7, 2, 15), torch.ones(given, dtype=torch.bool), return_weights=looking)
    for given in ((2,), (2, 2), (7, 1, 1, 2), (3, 2, 1)):
        block(draw(7, 2, 15), torch.ones(given, dtype=torch.bool), return_weights=looking)
