"""Cross-attention against loops in float64 and torch's own block, with padding and with rows of padding alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mhsa_cli.core.model.cross_attention import MultiHeadCrossAttention
from mhsa_cli.core.training.stack import stack_models
from tests.core.reference import array, draw, redraw, worst

B, TQ, TK, H, D_HEAD, D_CONTEXT = 3, 7, 5, 4, 2, 6
D = H * D_HEAD


def make(seed: int = 0, **settings: object) -> MultiHeadCrossAttention:
    settings = {"d_context": D_CONTEXT, **settings}
    return redraw(MultiHeadCrossAttention(D, H, **settings), seed)


def padding_of(*lengths: int, most: int = TK) -> Tensor:
    """True on the first so many tokens of each row."""
    return torch.arange(most) < torch.tensor(lengths).unsqueeze(-1)


def loops(block: MultiHeadCrossAttention, x: Tensor, context: Tensor, real: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Compute outputs and weights query by query from the parameters alone."""

    def mapped(part: nn.Module, rows: np.ndarray) -> np.ndarray:
        bias = 0.0 if part.bias is None else array(part.bias)
        return rows @ array(part.weight).T + bias

    groups = block.n_kv_heads
    q, kv = mapped(block.q_proj, array(x)), mapped(block.kv_proj, array(context))
    mixed, weights = np.zeros((*x.shape[:2], D)), np.zeros((len(x), H, x.size(1), context.size(1)))
    for b in range(len(x)):
        for h in range(H):
            g = h // (H // groups)
            keys = kv[b, :, g * D_HEAD : (g + 1) * D_HEAD]
            values = kv[b, :, (groups + g) * D_HEAD : (groups + g + 1) * D_HEAD]
            for t in range(x.size(1)):
                seen = [s for s in range(context.size(1)) if real[b, s]]
                powers = {s: np.exp(q[b, t, h * D_HEAD : (h + 1) * D_HEAD] @ keys[s] / D_HEAD**0.5) for s in seen}
                for s in seen:
                    weights[b, h, t, s] = powers[s] / sum(powers.values())
                    mixed[b, t, h * D_HEAD : (h + 1) * D_HEAD] += weights[b, h, t, s] * values[s]
    return mapped(block.out_proj, mixed), weights


@pytest.mark.parametrize("n_kv_heads", [1, 2, H, None])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lengths", [None, (5, 1, 3), (2, 0, 5)])
def test_loops_in_float64_give_the_same(n_kv_heads: int | None, bias: bool, lengths: tuple[int, ...] | None) -> None:
    block = make(n_kv_heads=n_kv_heads, bias=bias)
    x, context = draw(B, TQ, D), draw(B, TK, D_CONTEXT, seed=2)
    padding = None if lengths is None else padding_of(*lengths)
    wanted, wanted_weights = loops(block, x, context, padding_of(TK, TK, TK) if padding is None else padding)
    y, weights = block(x, context, padding=padding, return_weights=True)
    assert y.shape == (B, TQ, D) and weights.shape == (B, H, TQ, TK)
    assert worst(block(x, context, padding=padding), wanted) <= 2e-6
    assert worst(y, wanted) <= 2e-6 and worst(weights, wanted_weights) <= 1e-6
    wide = block.double()(x.double(), context.double(), padding=padding)
    assert worst(wide, wanted) <= 1e-12


@pytest.mark.parametrize("lengths", [(1, 3), (3, 1), (9, 2), (2, 9), (1, 1)])
def test_lengths_are_free(lengths: tuple[int, int]) -> None:
    """Longer, shorter, single: every query sees the whole context."""
    block, (queries, keys) = make(), lengths
    x, context = draw(B, queries, D), draw(B, keys, D_CONTEXT, seed=2)
    y, weights = block(x, context, return_weights=True)
    assert worst(weights.sum(-1), torch.ones(B, H, queries)) <= 1e-6 and bool((weights > 0).all())
    assert worst(block(x, context), y) <= 2e-6
    for t in range(queries):  # no query knows the others
        assert worst(block(x[:, t : t + 1], context), y[:, t : t + 1]) <= 2e-6


@pytest.mark.parametrize("d_context", [None, D_CONTEXT])
def test_torchs_own_block_gives_the_same(d_context: int | None) -> None:
    """The same weights in nn.MultiheadAttention, whose mask says True where it must not look."""
    block = make(d_context=d_context)
    width, real = d_context or D, padding_of(5, 2, 4)
    theirs = nn.MultiheadAttention(D, H, kdim=width, vdim=width, batch_first=True)
    key, value = block.kv_proj.weight.data.chunk(2)
    with torch.no_grad():
        if d_context is None:
            theirs.in_proj_weight.copy_(torch.cat([block.q_proj.weight, key, value]))
        else:
            for name, weight in (("q", block.q_proj.weight), ("k", key), ("v", value)):
                getattr(theirs, f"{name}_proj_weight").copy_(weight)
        theirs.in_proj_bias.copy_(torch.cat([block.q_proj.bias, block.kv_proj.bias]))
        theirs.out_proj.weight.copy_(block.out_proj.weight)
        theirs.out_proj.bias.copy_(block.out_proj.bias)
    x, context = draw(B, TQ, D), draw(B, TK, width, seed=2)
    for padding in (None, real):
        y, weights = block(x, context, padding=padding, return_weights=True)
        other = None if padding is None else ~padding
        wanted, looked = theirs(x, context, context, key_padding_mask=other, average_attn_weights=False)
        assert worst(y, wanted) <= 2e-6 and worst(weights, looked) <= 1e-6
        assert worst(block(x, context, padding=padding), wanted) <= 2e-6


def test_padding_is_not_seen_whatever_it_holds() -> None:
    """Other content in the padding leaves the bits; a row cut short at its padding gives the same."""
    block, real = make(), padding_of(5, 2, 4)
    x, context = draw(B, TQ, D), draw(B, TK, D_CONTEXT, seed=2)
    other = torch.where(real.unsqueeze(-1), context, 1e3 * draw(B, TK, D_CONTEXT, seed=3))
    for looking in (False, True):
        y, z = (block(x, c, padding=real, return_weights=looking) for c in (context, other))
        assert torch.equal(y[0] if looking else y, z[0] if looking else z)
    assert worst(block(x[1:2], context[1:2, :2]), block(x, context, padding=real)[1:2]) <= 2e-6
    assert worst(block(x, context, padding=padding_of(5, 5, 5)), block(x, context)) <= 2e-6


def test_a_row_of_padding_alone_gives_zeros_and_finite_gradients() -> None:
    """No context: the output is out_proj's bias. Both paths; the row's context learns nothing."""
    block, real = make(), padding_of(5, 0, 4)
    for looking in (False, True):
        x, context = draw(B, TQ, D).requires_grad_(), draw(B, TK, D_CONTEXT, seed=2).requires_grad_()
        y = block(x, context, padding=real, return_weights=looking)
        if looking:
            assert bool((y[1][1] == 0).all())
            y = y[0]
        assert torch.equal(y[1], block.out_proj.bias.expand(TQ, D))
        leaves = [x, context, *block.parameters()]
        gradients = torch.autograd.grad((y * draw(B, TQ, D, seed=4)).sum(), leaves)
        for gradient in gradients:
            assert bool(gradient.isfinite().all()) and bool((gradient != 0).any())
        assert bool((gradients[0][1] == 0).all())
        assert torch.equal((gradients[1] != 0).any(-1), real)


def test_a_stack_is_its_models() -> None:
    models, real = [make(seed) for seed in range(3)], padding_of(5, 2, 4)
    x, context = draw(3, B, TQ, D), draw(3, B, TK, D_CONTEXT, seed=2)
    stacked = stack_models(models)
    for padding in (None, torch.stack([real, real.flip(0), real])):
        together = stacked(x, context, padding=padding)
        for m, model in enumerate(models):
            mine = None if padding is None else padding[m]
            alone = stack_models([model])(
                x[m : m + 1], context[m : m + 1], padding=None if mine is None else mine[None]
            )
            assert torch.equal(together[m], alone[0])
            assert worst(together[m], model(x[m], context[m], padding=mine)) <= 2e-6


def test_sizes_and_masks_that_do_not_fit_are_named() -> None:
    block, x, context = make(), draw(B, TQ, D), draw(B, TK, D_CONTEXT)
    for bad in (
        (x[..., :3], context), (x, context[..., :3]), (x[:2], context), (x[0], context[0]), (x, context[:, :0]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"wanted x \(B, Tq, 8\) and context \(B, Tk, 6\), got"):
            block(*bad)
    with pytest.raises(ValueError, match=r"padding must be \(3, 5\), got \(3, 7\)"):
        block(x, context, padding=torch.ones(B, TQ, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"padding must be boolean .*, got torch.float32: pass `padding == 0`"):
        block(x, context, padding=torch.ones(B, TK))
    for sizes, words in (
        ((D, 3, {}), r"d_model \(8\) must be divisible by n_heads \(3\)"),
        ((D, 0, {}), r"n_heads \(0\) must be at least 1"),
        ((D, H, {"n_kv_heads": 3}), r"n_heads \(4\) must be divisible by n_kv_heads \(3\)"),
        ((D, H, {"n_kv_heads": 0}), r"n_kv_heads \(0\)"),
    ):
        with pytest.raises(ValueError, match=words):
            MultiHeadCrossAttention(sizes[0], sizes[1], **sizes[2])
