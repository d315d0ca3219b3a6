"""Golden numbers: published worked examples and printed outputs, reproduced with the published weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mhsa_cli.core.model import attention
from tests.core.reference import array, worst


class NumpyAttention:
    """A textbook NumPy block: x @ W with (in, out) matrices, drawn in the order q, k, v, o, scaled by 1/sqrt(D)."""

    def __init__(self, draws: np.random.Generator, d_model: int, n_heads: int) -> None:
        self.n_heads = n_heads
        self.maps = [draws.standard_normal((d_model, d_model)) / np.sqrt(d_model) for _ in range(4)]

    def __call__(self, x: np.ndarray, visible: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        n, length, width = x.shape

        def heads(w: np.ndarray) -> np.ndarray:
            return np.moveaxis((x @ w).reshape(n, length, self.n_heads, width // self.n_heads), 2, 1)

        q, k, v = (heads(w) for w in self.maps[:3])
        logits = np.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(width // self.n_heads)
        if visible is not None:
            logits = np.where(visible, logits, -1e9)
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        weights = powers / powers.sum(-1, keepdims=True)
        context = np.moveaxis(weights @ v, 1, 2).reshape(n, length, width)
        return context @ self.maps[3], weights

    def block(self, max_seq_len: int) -> attention.MultiHeadSelfAttention:
        """Load the same weights into our block: maps are (out, in) there, and the first three are stacked."""
        d_model = len(self.maps[0])
        ours = attention.MultiHeadSelfAttention(d_model, self.n_heads, max_seq_len=max_seq_len, bias=False).double()
        q, k, v, o = (torch.from_numpy(w.T.copy()) for w in self.maps)
        ours.load_state_dict({"qkv_proj.weight": torch.cat([q, k, v]), "out_proj.weight": o})
        return ours


def test_the_worked_example_of_two_heads() -> None:
    """One query, two heads, three visible tokens: [8.8, 1.2] and [3.0, 5.95], side by side after the merge."""
    weights = torch.tensor([[[0.80, 0.20, 0.00]], [[0.05, 0.90, 0.05]]])  # (H, 1, T)
    values = torch.tensor([[[10.0, 1.0], [4.0, 2.0], [7.0, 3.0]], [[1.0, 9.0], [3.0, 6.0], [5.0, 2.0]]])
    context = (weights @ values).unsqueeze(0)
    assert worst(attention.merge_heads(context), torch.tensor([[[8.8, 1.2, 3.0, 5.95]]])) <= 1e-6
    # The same weights come out of the softmax of their logarithms, and the same context out of the fused kernel.
    q = torch.ones(1, 2, 1, 1)
    k = weights.log().transpose(1, 2).unsqueeze(0)  # (1, H, T, 1): scores = ln(weights) / sqrt(1)
    assert worst(attention.attention_weights(q, k), weights.unsqueeze(0)) <= 1e-6
    seen = torch.ones(1, 3, dtype=torch.bool)
    finite = k.clamp(min=-50.0)
    assert worst(attention.masked_softmax(attention.attention_scores(q, finite), seen), weights.unsqueeze(0)) <= 1e-6


def test_the_exercise_of_width_twelve_and_three_heads() -> None:
    """D=12, H=3, so d_head=4: the input and then the four maps out of one generator."""
    draws = np.random.default_rng(0)
    x = draws.standard_normal((2, 4, 12))
    theirs = NumpyAttention(draws, 12, 3)
    y, weights = theirs(x, np.tri(4, dtype=bool))
    block = theirs.block(max_seq_len=7)
    assert block.d_head == 4
    for found in (torch.from_numpy(y), block(torch.from_numpy(x)), block(torch.from_numpy(x), return_weights=True)[0]):
        assert float(found.detach().sum()) == pytest.approx(3.8481392537, abs=1e-9)
        assert array(found)[0, 0, :4] == pytest.approx([0.015438, -0.970799, 0.964001, 0.457187], abs=1e-6)
        assert worst(found, y) <= 1e-12
    assert worst(block(torch.from_numpy(x), return_weights=True)[1], weights) <= 1e-12


def test_the_textbook_class_of_width_sixteen_and_four_heads() -> None:
    """Shapes, sums, the first outputs and every weight of one head, causal."""
    theirs = NumpyAttention(np.random.default_rng(0), 16, 4)
    x = np.random.default_rng(1).standard_normal((2, 5, 16))
    block = theirs.block(max_seq_len=9)
    y, weights = block(torch.from_numpy(x), return_weights=True)
    assert y.shape == (2, 5, 16)
    assert weights.shape == (2, 4, 5, 5)
    for found in (y, block(torch.from_numpy(x)), torch.from_numpy(theirs(x, np.tri(5, dtype=bool))[0])):
        assert float(found.detach().sum()) == pytest.approx(18.1445253391, abs=1e-9)
        assert float(found.detach().abs().mean()) == pytest.approx(0.4677388750, abs=1e-9)
        first = [0.054475, 0.645997, -0.330944, 0.621570, -0.474739, -0.184254]
        assert array(found)[0, 0, :6] == pytest.approx(first, abs=1e-6)
    head = [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [0.030468, 0.969532, 0.0, 0.0, 0.0],
        [0.102714, 0.770802, 0.126484, 0.0, 0.0],
        [0.307952, 0.039661, 0.161617, 0.490770, 0.0],
        [0.319459, 0.047055, 0.386365, 0.210891, 0.036229],
    ]
    assert worst(weights[0, 0], np.array(head)) <= 1e-6


def test_the_textbook_class_without_a_mask() -> None:
    """The functions below the block know no causality of their own."""
    theirs = NumpyAttention(np.random.default_rng(0), 16, 4)
    x = np.random.default_rng(1).standard_normal((2, 5, 16))
    block = theirs.block(max_seq_len=9)
    q, k, v = block.project(torch.from_numpy(x), torch.arange(5))
    weights = attention.attention_weights(q, k)
    y = block.out_proj(attention.merge_heads(weights @ v))
    assert float(y.detach().sum()) == pytest.approx(11.9121045906, abs=1e-9)
    assert worst(y, theirs(x)[0]) <= 1e-12
    everything = torch.ones(5, 5, dtype=torch.bool)
    assert worst(attention.fused_attention(q, k, v, everything, None), weights @ v) <= 1e-12


PRINTED = {
    1: [
        [-0.3995, 0.5858, 0.1750, -0.5428],
        [-0.1713, 0.5772, 0.2182, -0.4687],
        [-0.3211, 0.5328, 0.1321, -0.3144],
        [-0.1588, 0.2404, 0.0839, -0.0570],
    ],
    2: [
        [-0.3995, 0.5858, 0.1750, -0.5428],
        [-0.2319, 0.5974, 0.2640, -0.4710],
        [-0.2997, 0.5405, 0.1027, -0.3039],
        [-0.1220, 0.2010, 0.0826, -0.0573],
    ],
}


@pytest.mark.parametrize("n_heads", [1, 2])
def test_the_printed_outputs_of_a_block_of_width_four(n_heads: int) -> None:
    """Seed 0 for the weights, 42 for the input, to the four printed digits; the first row does not depend on heads."""
    torch.manual_seed(0)
    block = attention.MultiHeadSelfAttention(4, n_heads, max_seq_len=64, bias=False)
    assert sum(p.numel() for p in block.parameters()) == 64
    torch.manual_seed(42)
    x = torch.randn(1, 4, 4)
    for found in (block(x), block(x, return_weights=True)[0]):
        assert worst(found[0], np.array(PRINTED[n_heads])) <= 5.1e-5


def test_a_fused_map_draws_what_three_maps_draw() -> None:
    """After one seed the fused map holds bit for bit what three separate maps would, and the last map follows them."""
    torch.manual_seed(0)
    block = attention.MultiHeadSelfAttention(12, 3, max_seq_len=7, bias=False)
    torch.manual_seed(0)
    separate = [nn.Linear(12, 12, bias=False).weight for _ in range(4)]
    assert torch.equal(block.qkv_proj.weight, torch.cat(separate[:3]))
    assert torch.equal(block.out_proj.weight, separate[3])
