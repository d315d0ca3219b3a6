"""Two roads to one result: the block against loops, against torch's own block, and its two paths against each other."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor, nn

from mhsa_cli.core.model import attention
from tests.core.reference import (
    D_HEAD,
    MAX,
    B,
    D,
    H,
    T,
    array,
    coins,
    draw,
    loop_attention,
    random_sizes,
    redraw,
    worst,
)


def masks(b: int, t: int, h: int, seed: int) -> list[Tensor | None]:
    """Give no mask, and one of each shape that a caller may bring."""
    return [None] + [coins(*shape, seed=seed) for shape in ((t, t), (b, 1, 1, t), (b, h, t, t), (1, 1, t, t))]


def test_both_paths_equal_loops_in_float64_at_two_hundred_sizes() -> None:
    """In float64 to 1e-12; in float32 to 1e-6 of the largest output, and so the two paths to each other."""
    for i, (b, t, h, d) in enumerate(random_sizes(200)):
        block = redraw(attention.MultiHeadSelfAttention(h * d, h, max_seq_len=t + 3), i)
        x, mask = draw(b, t, h * d, seed=i), masks(b, t, h, i)[i % 5]
        wanted, wanted_weights = loop_attention(block, x, mask)
        fused, (y, weights) = block(x, mask), block(x, mask, return_weights=True)
        bound = 1e-6 * max(1.0, float(np.abs(wanted).max()))
        case = f"B={b} T={t} H={h} d_head={d} mask={None if mask is None else tuple(mask.shape)}"
        assert worst(weights, wanted_weights) <= 1e-6, case
        assert worst(y, wanted) <= bound, case
        assert worst(fused, wanted) <= bound, case
        assert worst(fused, y) <= bound, case
        block.double()
        assert worst(block(x.double(), mask), wanted) <= 1e-12, case
        assert worst(block(x.double(), mask, return_weights=True)[0], wanted) <= 1e-12, case


def test_every_row_and_head_gets_its_own_mask() -> None:
    """A mask repeated in the wrong order shows only where rows and heads differ in number, and masks in content."""
    t, d = 5, 7
    for b, h in itertools.product((1, 2, 3), (1, 2, 4)):
        block = redraw(attention.MultiHeadSelfAttention(h * d, h, max_seq_len=MAX), 10 * b + h)
        x = draw(b, t, h * d)
        for mask in masks(b, t, h, seed=b + h):
            wanted, wanted_weights = loop_attention(block, x, mask)
            y, weights = block(x, mask, return_weights=True)
            assert worst(weights, wanted_weights) <= 1e-6
            assert worst(y, wanted) <= 1e-6 * max(1.0, float(np.abs(wanted).max()))
            assert worst(block(x, mask), wanted) <= 1e-6 * max(1.0, float(np.abs(wanted).max()))


def test_the_fused_projection_is_three_linears() -> None:
    """Rows 0..D of the fused map are the queries', D..2D the keys', 2D..3D the values', bias included."""
    block = redraw(attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX), 0)
    x = draw(B, T, D)
    parts = []
    for weight, bias in zip(block.qkv_proj.weight.chunk(3), block.qkv_proj.bias.chunk(3), strict=True):
        single = nn.Linear(D, D)
        single.load_state_dict({"weight": weight, "bias": bias})
        parts.append(single(x).view(B, T, H, D_HEAD).transpose(1, 2))
    for found, wanted in zip(block.project(x, torch.arange(T)), parts, strict=True):
        assert worst(found, wanted) <= 1e-6
    q, k, v = parts
    future = torch.ones(T, T).triu(1).bool()
    scores = (q @ k.transpose(2, 3) / D_HEAD**0.5).masked_fill(future, float("-inf"))
    context = (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D)
    assert worst(block(x), nn.functional.linear(context, block.out_proj.weight, block.out_proj.bias)) <= 2e-6


def test_the_block_is_torchs_own_block() -> None:
    """The same four tensors in torch.nn.MultiheadAttention (where True in a mask hides) give the same outputs."""
    for bias in (True, False):
        block = redraw(attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX, bias=bias), 3, std=0.2)
        torchs = nn.MultiheadAttention(D, H, bias=bias, batch_first=True)
        names = {"qkv_proj.": "in_proj_", "out_proj.": "out_proj."}
        torchs.load_state_dict(
            {new + name.removeprefix(old): p for name, p in block.state_dict().items()
             for old, new in names.items() if name.startswith(old)}
        )  # fmt: skip
        x, hide = draw(B, T, D), torch.ones(T, T).triu(1).bool()
        wanted, wanted_weights = torchs(x, x, x, attn_mask=hide, average_attn_weights=False)
        y, weights = block(x, return_weights=True)
        assert worst(weights, wanted_weights) <= 1e-6
        assert worst(y, wanted) <= 1e-6
        assert worst(block(x), wanted) <= 1e-6


def test_one_head_is_attention_written_by_hand() -> None:
    """n_heads = 1: no head axis is needed to say what the block does."""
    width = 5
    block = redraw(attention.MultiHeadSelfAttention(width, 1, max_seq_len=MAX, bias=False), 4)
    x = draw(B, T, width)
    q, k, v = (x @ weight.T for weight in block.qkv_proj.weight.chunk(3))
    wanted = torch.zeros(B, T, width)
    for t in range(T):
        scores = (k[:, : t + 1] * q[:, t : t + 1]).sum(-1) / width**0.5  # (B, t+1)
        wanted[:, t] = (scores.softmax(-1).unsqueeze(-1) * v[:, : t + 1]).sum(1)
    wanted = wanted @ block.out_proj.weight.T
    assert worst(block(x), wanted) <= 1e-6
    assert worst(block(x, return_weights=True)[0], wanted) <= 1e-6


def test_gradients_are_the_same_on_both_paths() -> None:
    """Also through a mask with an empty row: what is learned does not depend on whether somebody looks."""
    for mask in masks(B, T, H, seed=8):
        found = []
        for looking in (False, True):
            block = redraw(attention.MultiHeadSelfAttention(D, H, max_seq_len=MAX), 5)
            x = draw(B, T, D).requires_grad_()
            y = block(x, mask, return_weights=looking)
            ((y[0] if looking else y) * draw(B, T, D, seed=9)).sum().backward()
            found.append([x.grad] + [p.grad for p in block.parameters()])
        for fused, materialised in zip(*found, strict=True):
            assert fused is not None
            assert worst(fused, materialised) <= 1e-6 * max(1.0, float(fused.abs().max()))


def test_fewer_queries_than_keys_are_the_last_ones() -> None:
    """Causal without a mask: the last query sees every key (torch's own flag would align at the first)."""
    q, k, v = (draw(B, H, T, D_HEAD, seed=s) for s in (1, 2, 3))
    whole = attention.fused_attention(q, k, v, None, None)
    bias = draw(H, T, T)
    biased = attention.fused_attention(q, k, v, None, bias)
    for n in (1, 4):
        assert worst(attention.fused_attention(q[..., -n:, :], k, v, None, None), whole[..., -n:, :]) <= 1e-6
        found = attention.fused_attention(q[..., -n:, :], k, v, None, bias[:, -n:])
        assert worst(found, biased[..., -n:, :]) <= 1e-6


def test_a_bias_is_added_to_the_scores_on_both_paths() -> None:
    """Before the softmax and per head; the mask still rules."""
    q, k, v = (draw(B, H, T, D_HEAD, seed=s) for s in (1, 2, 3))
    bias, causal = draw(H, T, T, seed=4), torch.ones(T, T).tril().bool()
    scores = array(q) @ array(k).swapaxes(2, 3) / D_HEAD**0.5 + array(bias)
    powers = np.where(array(causal), np.exp(scores), 0.0)
    wanted = powers / powers.sum(-1, keepdims=True)
    assert worst(attention.attention_weights(q, k, causal, bias), wanted) <= 1e-6
    for mask in (None, causal):
        assert worst(attention.fused_attention(q, k, v, mask, bias), wanted @ array(v)) <= 1e-6
