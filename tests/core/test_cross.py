"""Cross-attention: another sequence's keys and values, padded or not."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from mhsa_cli.core.cross import MultiHeadCrossAttention
from tests.core.reference import draw

B, TQ, TK, H, D_HEAD, D_CONTEXT = 2, 4, 7, 3, 5, 11
D = H * D_HEAD


def wide(block: MultiHeadCrossAttention) -> MultiHeadCrossAttention:
    generator = torch.Generator().manual_seed(1)
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    return block


def by_loops(
    block: MultiHeadCrossAttention, x: torch.Tensor, context: torch.Tensor, padding: torch.Tensor
) -> torch.Tensor:
    """In float64, one query of one head of one row at a time."""
    block = copy.deepcopy(block).requires_grad_(False)
    q = x.double() @ block.q_proj.weight.double().T + block.q_proj.bias.double()
    k, v = (context.double() @ block.kv_proj.weight.double().T + block.kv_proj.bias.double()).chunk(2, -1)
    out = torch.zeros(B, TQ, D, dtype=torch.float64)
    shared = H // block.n_kv_heads
    for b in range(B):
        for h in range(H):
            mine, group = slice(h * D_HEAD, (h + 1) * D_HEAD), h // shared
            theirs = slice(group * D_HEAD, (group + 1) * D_HEAD)
            for t in range(TQ):
                seen = [j for j in range(TK) if padding[b, j]]
                scores = [float(q[b, t, mine] @ k[b, j, theirs]) / math.sqrt(D_HEAD) for j in seen]
                weights = torch.tensor(scores, dtype=torch.float64).softmax(0)
                for weight, j in zip(weights, seen, strict=True):
                    out[b, t, mine] += weight * v[b, j, theirs]
    return out @ block.out_proj.weight.double().T + block.out_proj.bias.double()


@pytest.mark.parametrize("n_kv_heads", [1, H])
def test_it_equals_loops_in_float64_on_both_paths(n_kv_heads: int) -> None:
    block = wide(MultiHeadCrossAttention(D, H, d_context=D_CONTEXT, n_kv_heads=n_kv_heads))
    x, context = draw(B, TQ, D, seed=2), draw(B, TK, D_CONTEXT, seed=3)
    padding = torch.ones(B, TK, dtype=torch.bool)
    padding[1, 4:] = False
    wanted = by_loops(block, x, context, padding)
    fused = block(x, context, padding=padding)
    exact, weights = block(x, context, padding=padding, return_weights=True)
    assert torch.allclose(fused.double(), wanted, atol=1e-5) and torch.allclose(exact.double(), wanted, atol=1e-5)
    assert weights.shape == (B, H, TQ, TK) and bool((weights[1, :, :, 4:] == 0).all())
    assert torch.allclose(weights.sum(-1), torch.ones(B, H, TQ))


def test_without_padding_it_equals_torchs_own_block() -> None:
    block, torchs = wide(MultiHeadCrossAttention(D, H)), nn.MultiheadAttention(D, H, batch_first=True)
    with torch.no_grad():
        torchs.in_proj_weight.copy_(torch.cat([block.q_proj.weight, block.kv_proj.weight]))
        torchs.in_proj_bias.copy_(torch.cat([block.q_proj.bias, block.kv_proj.bias]))
    torchs.out_proj.load_state_dict(block.out_proj.state_dict())
    x, context = draw(B, TQ, D, seed=4), draw(B, TK, D, seed=5)
    wanted, weights = torchs(x, context, context, average_attn_weights=False)
    found, mine = block(x, context, return_weights=True)
    assert torch.allclose(found, wanted, atol=1e-5) and torch.allclose(mine, weights, atol=1e-6)
    assert torch.allclose(block(x, context), wanted, atol=1e-5)


@pytest.mark.parametrize("looking", [False, True])
def test_a_row_of_padding_alone_gives_zeros_and_finite_gradients(looking: bool) -> None:
    block = wide(MultiHeadCrossAttention(D, H))
    x, context = draw(B, TQ, D, seed=6).requires_grad_(), draw(B, TK, D, seed=7).requires_grad_()
    padding = torch.ones(B, TK, dtype=torch.bool)
    padding[0] = False
    y = block(x, context, padding=padding, return_weights=looking)
    y = y[0] if looking else y
    assert torch.allclose(y[0], block.out_proj.bias.expand(TQ, D))
    y.sum().backward()
    for tensor in (x, context, *block.parameters()):
        assert tensor.grad is not None and bool(tensor.grad.isfinite().all())


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"n_heads \(4\) must be divisible by n_kv_heads \(3\)"):
        MultiHeadCrossAttention(12, 4, n_kv_heads=3)
    block = MultiHeadCrossAttention(D, H, d_context=D_CONTEXT)
    with pytest.raises(ValueError, match=r"wanted x \(B, Tq, 15\) and context \(B, Tk, 11\)"):
        block(draw(B, TQ, D, seed=1), draw(B, TK, D, seed=1))
    with pytest.raises(ValueError, match="padding must be boolean"):
        block(draw(B, TQ, D, seed=1), draw(B, TK, D_CONTEXT, seed=1), padding=torch.ones(B, TK))
