"""Laws of the block: the future and the neighbours do not reach a row, and weights are a distribution per head."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mhsa_cli.core.model import attention
from tests.core.reference import D_HEAD, MAX, B, D, H, T, coins, draw, redraw, worst


def make(seed: int = 0, **settings: object) -> attention.MultiHeadSelfAttention:
    """Build the block of the shared sizes with wide weights."""
    block = attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX, **settings)
    return redraw(block, seed)


def outputs(block: attention.MultiHeadSelfAttention, x: Tensor, mask: Tensor | None = None) -> list[Tensor]:
    """Run both paths."""
    return [block(x, mask), block(x, mask, return_weights=True)[0]]


@pytest.mark.parametrize("kind", ["softmax", "uniform"])
def test_a_changed_future_leaves_the_past_bit_equal(kind: str) -> None:
    """And the token itself does change: the law is not kept by a block that does nothing."""
    block, x = make(kind=kind), draw(B, T, D)
    for cut in range(1, T):
        changed = x.clone()
        changed[:, cut:] = draw(B, T - cut, D, seed=cut + 2)
        for before, after in zip(outputs(block, x), outputs(block, changed), strict=True):
            assert torch.equal(before[:, :cut], after[:, :cut]), f"token {cut} reached back"
            assert bool((before[:, cut] != after[:, cut]).any()), f"token {cut} does not see itself"


def test_every_earlier_token_reaches_a_later_one() -> None:
    """A mask that hides too much would pass every law about leaks."""
    block, x = make(), draw(B, T, D)
    for source in range(T):
        changed = x.clone()
        changed[:, source] += 1.0
        for before, after in zip(outputs(block, x), outputs(block, changed), strict=True):
            assert bool((before[:, source:] != after[:, source:]).any(-1).all()), f"token {source} is not seen"


def test_the_first_token_sees_itself_alone() -> None:
    """By hand: its context is its own value, whatever the scores."""
    block, x = make(), draw(B, T, D)
    value = x[:, 0] @ block.qkv_proj.weight[2 * D :].T + block.qkv_proj.bias[2 * D :]
    wanted = value @ block.out_proj.weight.T + block.out_proj.bias
    for y in outputs(block, x):
        assert worst(y[:, 0], wanted) <= 2e-6


def test_masked_keys_do_not_leak_whatever_they_hold() -> None:
    """NaN and infinity in a future key leave earlier queries bit-equal on both paths."""
    q, k, v = (draw(B, H, T, D_HEAD, seed=s) for s in (1, 2, 3))
    causal = torch.ones(T, T).tril().bool()
    for bad in (float("nan"), float("inf"), 1e20):
        broken = k.clone()
        broken[..., 4, :] = bad
        for attend in (
            lambda keys: attention.fused_attention(q, keys, v, None, None),
            lambda keys: attention.attention_weights(q, keys, causal) @ v,
        ):
            assert torch.equal(attend(broken)[..., :4, :], attend(k)[..., :4, :]), f"a key of {bad} reached back"


def test_masked_values_leak_only_where_they_are_not_finite() -> None:
    """A weight of exactly 0 times NaN or infinity is NaN, on both paths: padding must hold finite vectors."""
    block, x = make(), draw(B, T, D)
    clean = block(x, return_weights=True)[1]
    for bad in (float("nan"), float("inf")):
        broken = x.clone()
        broken[:, 4] = bad
        for y in outputs(block, broken):
            assert not y[:, :4].isfinite().any()
        weights = block(broken, return_weights=True)[1]
        assert torch.equal(weights[..., :4, :], clean[..., :4, :]), "the weights of earlier queries stay right"
    huge = x.clone()
    huge[:, 4] = 1e20
    for y, wanted in zip(outputs(block, huge), outputs(block, x), strict=True):
        assert torch.equal(y[:, :4], wanted[:, :4])


def test_the_content_of_padding_does_not_reach_real_tokens() -> None:
    """Rows of three lengths; the mask stands on the keys, shape (B, 1, 1, T), not on the queries."""
    rows = 4
    block, x = make(), draw(rows, T, D)
    lengths = torch.tensor([3, 6, 1, 5]).view(rows, 1)
    real = torch.arange(T) < lengths  # (rows, T)
    changed = torch.where(real.unsqueeze(-1), x, draw(rows, T, D, seed=5) * 50)
    mask = real.view(rows, 1, 1, T)
    for before, after in zip(outputs(block, x, mask), outputs(block, changed, mask), strict=True):
        assert torch.equal(before[real], after[real])
        assert bool((before[~real] != after[~real]).any())
    # A row with its padding equals the row cut short.
    for row in range(rows):
        length = int(lengths[row])
        for padded, short in zip(outputs(block, x, mask), outputs(block, x[row : row + 1, :length]), strict=True):
            assert worst(padded[row : row + 1, :length], short) <= 2e-6


def test_padding_in_front_is_unseen_too() -> None:
    """A row that starts with padding equals the row without it; its padding queries see nothing and get no context."""
    block, x, pad = make(), draw(B, T, D), 3
    mask = (torch.arange(T) >= pad).view(1, 1, 1, T)
    for y, short in zip(outputs(block, x, mask), outputs(block, x[:, pad:]), strict=True):
        assert worst(y[:, pad:], short) <= 2e-6
        assert torch.equal(y[:, :pad], block.out_proj.bias.expand(B, pad, D))


def test_a_row_does_not_know_its_neighbours() -> None:
    """Rows together are the rows one by one, in any order, also with a mask per row."""
    rows = 4
    block, x = make(), draw(rows, T, D)
    for mask in (None, coins(rows, 1, 1, T), coins(rows, H, T, T)):
        for path, together in enumerate(outputs(block, x, mask)):
            for row in range(rows):
                one = None if mask is None else mask[row : row + 1]
                assert worst(together[row : row + 1], outputs(block, x[row : row + 1], one)[path]) <= 2e-6
            order = torch.tensor([2, 0, 3, 1])
            assert worst(together[order], outputs(block, x[order], None if mask is None else mask[order])[path]) <= 2e-6
            two = outputs(block, x[:2], None if mask is None else mask[:2])[path]
            assert worst(together[:2], two) <= 2e-6


def test_weights_are_a_distribution_over_the_past_for_each_head() -> None:
    """Shape (B, H, T, T), rows sum to one, the future exactly 0, every visible key above 0, no two heads alike."""
    heads = 4
    block = redraw(attention.MultiHeadSelfAttention(heads * D_HEAD, heads, max_seq_len=MAX), 1)
    _, weights = block(draw(B, T, heads * D_HEAD), return_weights=True)
    assert weights.shape == (B, heads, T, T)
    assert weights.dtype == torch.float32
    assert worst(weights.sum(-1), torch.ones(B, heads, T)) <= 1e-6
    past = torch.ones(T, T).tril().bool()
    assert bool((weights[..., ~past] == 0).all())
    assert bool((weights[..., past] > 0).all())
    for one in range(heads):
        for other in range(one):
            assert worst(weights[:, one], weights[:, other]) > 0.05, "heads must not be averaged"


def test_weights_are_those_before_dropout() -> None:
    """In training with dropout they still sum to one and equal those without; the output does feel the dropout."""
    x = draw(B, T, D)
    y, weights = make(dropout=0.5).train()(x, return_weights=True)
    calm, calm_weights = make()(x, return_weights=True)
    assert worst(weights.sum(-1), torch.ones(B, H, T)) <= 1e-6
    assert torch.equal(weights, calm_weights)
    assert worst(y, calm) > 0.1


def test_dropout_is_off_in_eval() -> None:
    """Two calls give the same bits, and those of a block without dropout, on both paths."""
    x = draw(B, T, D)
    block = make(dropout=0.5).eval()
    for first, second, plain in zip(outputs(block, x), outputs(block, x), outputs(make(), x), strict=True):
        assert torch.equal(first, second)
        assert torch.equal(first, plain)
    block.train()
    assert not torch.equal(block(x), block(x))


def test_dropping_weights_keeps_the_expected_output() -> None:
    """The mean over many draws is the output without dropout: what is kept is scaled by 1/(1-p)."""
    torch.manual_seed(0)
    block, x = make(dropout=0.3), draw(1, T, D)
    mean = block.train()(x.expand(4000, T, D)).mean(0, keepdim=True)
    assert worst(mean, block.eval()(x)) < 0.15


@pytest.mark.parametrize("size", [0.1, 1.0, 3.0])
def test_a_constant_added_to_all_scores_changes_nothing(size: float) -> None:
    """The softmax is blind to it: the keys' bias adds the same number to every score of a query."""
    block, x = make(), draw(B, T, D)
    before = block(x, return_weights=True)[1]
    with torch.no_grad():
        block.qkv_proj.bias[D : 2 * D] += size
    assert worst(block(x, return_weights=True)[1], before) <= 2e-6
