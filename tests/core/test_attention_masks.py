"""Masks: queries that may see nothing, and masks of every shape that broadcasts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mhsa_cli.core.model import attention
from mhsa_cli.core.model.cross_attention import MultiHeadCrossAttention
from mhsa_cli.core.model.kv_cache import LayerCache
from tests.core.reference import D_HEAD, MAX, B, D, H, T, coins, draw, redraw, worst

PATHS = [False, True]


def empty_rows() -> list[Tensor]:
    """Give masks that leave some queries nothing to see, causal and padding together; one of each shape."""
    keys = torch.ones(B, 1, 1, T, dtype=torch.bool)
    keys[0, ..., :3] = False  # padding in front: queries 0..2 of row 0 see nothing
    keys[1] = False  # a row of nothing but padding
    square = torch.ones(T, T, dtype=torch.bool)
    square[4] = False
    heads = coins(B, H, T, T)
    heads[0, 1] = False  # one head of one row sees nothing at all
    heads[1, 2, 5] = False
    return [keys, square, square.view(1, 1, T, T), heads]


@pytest.mark.parametrize("looking", PATHS)
@pytest.mark.parametrize("which", range(4))
def test_a_query_that_sees_nothing_gets_nothing(which: int, looking: bool) -> None:
    """Its weights are a row of zeros, its head's context zero; no NaN, and no other row is touched."""
    mask = empty_rows()[which]
    block = redraw(attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX), 0)
    x = draw(B, T, D)
    out = block(x, mask, return_weights=True) if looking else (block(x, mask), None)
    assert bool(out[0].isfinite().all())
    q, k, v = block.project(x, torch.arange(T))
    allowed = (torch.ones(T, T).tril().bool() & mask).expand(B, H, T, T)
    empty = ~allowed.any(-1)
    assert bool(empty.any())
    context = attention.fused_attention(q, k, v, allowed, None)
    weights = attention.attention_weights(q, k, allowed)
    for found in (context, weights, weights @ v):
        assert bool((found[empty] == 0).all())
    assert worst(weights.sum(-1), (~empty).float()) <= 1e-6
    assert worst(context, weights @ v) <= 1e-6
    if out[1] is not None:
        assert bool((out[1][empty] == 0).all())
        assert worst(out[1].sum(-1), (~empty).float()) <= 1e-6
    nothing = empty.all(1)  # (B, T): no head sees anything, so only the bias of the last map remains
    assert torch.equal(out[0][nothing], block.out_proj.bias.expand_as(out[0][nothing]))


@pytest.mark.parametrize("looking", PATHS)
@pytest.mark.parametrize("which", range(4))
def test_a_query_that_sees_nothing_leaves_every_gradient_finite(which: int, looking: bool) -> None:
    """With a loss on all rows and on the others only: NaN patched after the softmax would return in the backward."""
    mask = empty_rows()[which]
    seen = (torch.ones(T, T).tril().bool() & mask).expand(B, H, T, T).any(-1).any(1)  # (B, T)
    for scored in (torch.ones(B, T, dtype=torch.bool), seen):
        block = redraw(attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX), 0)
        x = draw(B, T, D).requires_grad_()
        y = block(x, mask, return_weights=True)[0] if looking else block(x, mask)
        (y[scored] ** 2).sum().backward()
        for name, gradient in [("x", x.grad), *((n, p.grad) for n, p in block.named_parameters())]:
            assert gradient is not None, name
            assert bool(gradient.isfinite().all()), name
            assert bool((gradient != 0).any()), name


def test_an_empty_row_gives_zeros_and_zero_gradient() -> None:
    """The softmax by itself: scores of a row without a visible key get exactly no gradient."""
    scores = (draw(2, 3, 5, seed=3) * 10).requires_grad_()
    mask = coins(2, 3, 5)
    mask[1, 2] = False
    weights = attention.masked_softmax(scores, mask)
    (weights * draw(2, 3, 5, seed=4)).sum().backward()
    assert bool((weights[1, 2] == 0).all())
    assert bool((scores.grad[1, 2] == 0).all())
    assert bool((scores.grad[~mask] == 0).all())
    assert bool((scores.grad[mask].abs() > 0).any())


def test_masked_softmax_by_hand() -> None:
    """Scores ln 1, ln 2, ln 5, ln 8: with all keys 1/16, 2/16, 5/16, 8/16; without the third 1/11, 2/11, 0, 8/11."""
    scores = torch.tensor([[0.0, math.log(2), math.log(5), math.log(8)]])
    wanted = torch.tensor([[1, 2, 5, 8]]) / 16
    assert worst(attention.masked_softmax(scores, None), wanted) <= 1e-7
    assert worst(attention.masked_softmax(scores, torch.ones(1, 4, dtype=torch.bool)), wanted) <= 1e-7
    third = torch.tensor([[True, True, False, True]])
    assert worst(attention.masked_softmax(scores, third), torch.tensor([[1, 2, 0, 8]]) / 11) <= 1e-7


def test_a_given_mask_can_hide_but_never_reveal() -> None:
    """It is combined with the causal one by `and`: an all-True mask changes nothing, bit for bit in the weights."""
    block, x = redraw(attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX), 0), draw(B, T, D)
    y, weights = block(x, return_weights=True)
    for shape in ((T, T), (B, 1, 1, T), (B, H, T, T), (1, 1, T, T)):
        everything = torch.ones(shape, dtype=torch.bool)
        same, same_weights = block(x, everything, return_weights=True)
        assert torch.equal(weights, same_weights)
        assert torch.equal(y, same)
        assert worst(block(x, everything), block(x)) <= 2e-6
        some = coins(*shape)
        hidden = block(x, some, return_weights=True)[1]
        assert bool((hidden[~some.expand(B, H, T, T)] == 0).all())


def test_masked_weights_are_zero_even_below_any_fill_value() -> None:
    """Visible scores of -1e11 lie below -1e9: a finite fill would hand the weight to the hidden keys."""
    q = torch.full((B, H, T, D_HEAD), 1e5) + draw(B, H, T, D_HEAD) * 1e3
    causal = torch.ones(T, T).tril().bool()
    weights = attention.attention_weights(q, -q, causal)
    assert float(attention.attention_scores(q, -q).max()) < -1e9
    assert bool((weights[..., ~causal] == 0).all())
    assert worst(weights.sum(-1), torch.ones(B, H, T)) <= 1e-6
    assert worst(attention.fused_attention(q, -q, draw(B, H, T, D_HEAD), None, None)[..., 0, :],
                 draw(B, H, T, D_HEAD)[..., 0, :]) <= 1e-6  # fmt: skip


@pytest.mark.parametrize("length", [1, 2, 5, MAX])
def test_the_mask_is_the_corner_of_a_longer_one(length: int) -> None:
    """A block built for more tokens than it is given equals one built for exactly as many."""
    long, exact = (attention.MultiHeadSelfAttention(D, H, max_seq_len=m) for m in (MAX + 2, length))
    exact.load_state_dict(redraw(long, 2).state_dict())
    x = draw(B, length, D)
    for mask in (None, coins(B, H, length, length)):
        assert torch.equal(long(x, mask), exact(x, mask))
        y, weights = long(x, mask, return_weights=True)
        wanted, wanted_weights = exact(x, mask, return_weights=True)
        assert torch.equal(weights, wanted_weights)
        assert torch.equal(y, wanted)


@pytest.mark.parametrize("kind", ["softmax", "linear", "uniform"])
@pytest.mark.parametrize("looking", PATHS)
def test_an_inverted_causal_mask_is_refused(kind: str, looking: bool) -> None:
    """Of any shape that broadcasts, and with keys in a cache; the way out works, and equals no mask."""
    block, x = redraw(attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX, kind=kind), 0), draw(B, T, D)
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    for inverted in (later, later.expand(B, 1, T, T), later.expand(B, H, T, T)):
        with pytest.raises(ValueError, match="~mask"):
            block(x, inverted, return_weights=looking)
        y = block(x, ~inverted, return_weights=looking)
        assert worst(y[0] if looking else y, block(x)) <= 2e-6


def test_an_inverted_mask_is_refused_after_cached_tokens_too() -> None:
    block, x = redraw(attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX), 0), draw(B, T, D)
    cache = LayerCache()
    block(x[:, :4], cache=cache)
    with pytest.raises(ValueError, match="~mask"):
        block(x[:, 4:], torch.ones(T, T, dtype=torch.bool).triu(1)[4:], cache=cache)
    assert cache.length == 4


def test_masks_that_may_be_meant_are_taken() -> None:
    """Rows of padding alone, one query that sees itself, and a mask without a single True."""
    block, x = redraw(attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX), 0), draw(B, T, D)
    only = torch.ones(T, T, dtype=torch.bool).triu(1)
    only[3, 3] = True
    for mask in (only, torch.zeros(T, T, dtype=torch.bool), torch.arange(T) >= T - 1):
        weights = block(x, mask, return_weights=True)[1]
        assert torch.equal(weights != 0, (mask & block.visible[:T, :T]).expand(B, H, T, T))


def test_a_block_that_is_not_causal_takes_a_mask_of_later_keys() -> None:
    block, later = (
        attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX, causal=False),
        torch.ones(T, T).triu(1).bool(),
    )
    weights = block(draw(B, T, D), later, return_weights=True)[1]
    assert torch.equal(weights != 0, later.expand(B, H, T, T))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_a_mask_of_numbers_is_refused_wherever_one_is_passed(dtype: torch.dtype) -> None:
    numbers, x = torch.zeros(T, T).to(dtype), draw(B, T, D)
    for call in (
        lambda: attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX)(x, numbers),
        lambda: attention.attention_weights(x, x, numbers),
        lambda: attention.masked_softmax(numbers.float(), numbers),
        lambda: MultiHeadCrossAttention(D, H)(x, x, padding=torch.zeros(B, T).to(dtype)),
    ):
        with pytest.raises(ValueError, match=f"{dtype}.* == 0"):
            call()
