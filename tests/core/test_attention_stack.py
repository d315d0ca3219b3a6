"""Stacks: a model's numbers are the same bits alone, among others, and in any slot; and those of the plain module.

Held for one thread.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.model.layers import Dropout, Embedding, LayerNorm, Linear
from mhsa_cli.core.model.positions import LearnedPositions
from mhsa_cli.core.model.transformer import MLP
from mhsa_cli.core.training.stack import stack_models
from tests.core.reference import coins, draw, redraw, worst

# B, T, H, d_head: one model's numbers end on an odd boundary, on an even one, and one batch of a single row.
SIZES = [(2, 7, 3, 5), (5, 9, 3, 8), (16, 12, 4, 8), (1, 13, 5, 4), (4, 6, 1, 3), (3, 5, 7, 1)]
# One head of one row, one token, heads and streams of width 1: a product has a vector on one side.
VECTORS = [(1, 1, 1, 3), (3, 7, 1, 1), (1, 5, 1, 1), (1, 6, 1, 2), (1, 1, 3, 2)]
VOCAB, MORE = 17, 4  # MORE: room in max_seq_len beyond T


class Positioned(nn.Module):
    """A learned table of positions as a map of x alone."""

    def __init__(self, most: int, d_model: int) -> None:
        super().__init__()
        self.positions = LearnedPositions(most, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.positions.embed(x, torch.arange(2, x.size(-2) + 2))


PIECES: dict[str, Callable[[int, int, int], nn.Module]] = {
    "attention": lambda t, h, d: MultiHeadSelfAttention(h * d, h, max_seq_len=t + MORE),
    "attention without bias": lambda t, h, d: MultiHeadSelfAttention(h * d, h, max_seq_len=t + MORE, bias=False),
    "uniform attention": lambda t, h, d: MultiHeadSelfAttention(h * d, h, max_seq_len=t + MORE, kind="uniform"),
    "attention with dropout": lambda t, h, d: MultiHeadSelfAttention(h * d, h, max_seq_len=t + MORE, dropout=0.3),
    "linear": lambda t, h, d: Linear(h * d, 3 * h * d),
    "linear without bias": lambda t, h, d: Linear(h * d, VOCAB, bias=False),
    "one column": lambda t, h, d: Linear(h * d, 1),
    "from one column": lambda t, h, d: nn.Sequential(Linear(h * d, 1), Linear(1, h * d)),
    "linear attention": lambda t, h, d: MultiHeadSelfAttention(h * d, h, max_seq_len=t + MORE, kind="linear"),
    "linear attention of shared heads, dropout": lambda t, h, d: MultiHeadSelfAttention(
        h * d, h, max_seq_len=t + MORE, kind="linear", n_kv_heads=1, dropout=0.2
    ),
    "layernorm": lambda t, h, d: LayerNorm(h * d),
    "layernorm without bias": lambda t, h, d: LayerNorm(h * d, bias=False),
    "embedding": lambda t, h, d: Embedding(VOCAB, h * d),
    "learned positions": lambda t, h, d: Positioned(t + MORE, h * d),
    "mlp": lambda t, h, d: MLP(h * d, 2 * h * d + 1, kind="gelu", bias=True, dropout=0.0),
    "mlp with dropout": lambda t, h, d: MLP(h * d, 2 * h * d + 1, kind="swiglu", bias=False, dropout=0.2),
    "dropout": lambda t, h, d: Dropout(0.4),
}


def inputs(piece: str, sizes: Sequence[int], seed: int) -> Tensor:
    """Draw one model's batch: ids for an embedding, vectors for the rest."""
    b, t, h, d = sizes
    if piece == "embedding":
        return torch.randint(0, VOCAB, (b, t), generator=torch.Generator().manual_seed(seed))
    return draw(b, t, h * d, seed=seed)


def run(module: nn.Module, x: Tensor, seeds: Sequence[int], **settings: object) -> dict[str, Tensor]:
    """Run a stack forward and backward with every model's own dropout; give outputs and gradients, each (M, ...)."""
    module = copy.deepcopy(module)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    for part in module.modules():
        if isinstance(part, Dropout):
            part.generators = generators
    x = x.clone().requires_grad_(x.is_floating_point())
    y = module(x, **settings)
    found = {"weights": y[1]} if isinstance(y, tuple) else {}
    y = y[0] if isinstance(y, tuple) else y
    (y * draw(*y.shape[1:], seed=9)).sum().backward()
    found |= {"output": y, "input gradient": x.grad} | {name: p.grad for name, p in module.named_parameters()}
    return {name: value.detach() for name, value in found.items() if value is not None}


def assert_slots_equal_singles(piece: str, sizes: Sequence[int], m: int, **settings: object) -> None:
    """Compare each slot of a stack of m with a stack of that model alone, bit for bit."""
    models = [redraw(PIECES[piece](*sizes[1:]), seed) for seed in range(m)]
    rows = [inputs(piece, sizes, seed) for seed in range(m)]
    together = run(stack_models(models), torch.stack(rows), range(m), **settings)
    for slot in range(m):
        alone = run(stack_models([models[slot]]), rows[slot].unsqueeze(0), [slot], **settings)
        assert alone.keys() == together.keys()
        for name, value in alone.items():
            assert torch.equal(together[name][slot], value[0]), f"{piece} {sizes}: {name} of slot {slot} of {m}"


@pytest.mark.parametrize("piece", PIECES)
def test_a_slot_is_bit_equal_to_a_stack_of_one(piece: str) -> None:
    """Outputs, gradients and dropout draws."""
    for sizes in SIZES + VECTORS:
        for m in (2, 5):
            assert_slots_equal_singles(piece, sizes, m)


@pytest.mark.parametrize("kind", ["attention", "uniform attention", "attention with dropout"])
def test_a_slot_is_bit_equal_also_with_weights_and_masks(kind: str) -> None:
    """The materialised path, and every shape of mask on both paths; a mask is shared by all models."""
    for b, t, h, d in SIZES + VECTORS:
        for mask in (None, coins(t, t), coins(b, 1, 1, t), coins(b, h, t, t)):
            for looking in (False, True):
                assert_slots_equal_singles(kind, (b, t, h, d), 3, mask=mask, return_weights=looking)


@pytest.mark.parametrize("piece", PIECES)
def test_every_slot_gives_the_same_bits(piece: str) -> None:
    """Five copies of one model on five copies of one batch."""
    for sizes in SIZES:
        model, x = redraw(PIECES[piece](*sizes[1:]), 0), inputs(piece, sizes, 1)
        found = run(stack_models([model] * 5), torch.stack([x] * 5), [7] * 5)
        for name, value in found.items():
            for slot in range(1, 5):
                assert torch.equal(value[slot], value[0]), f"{piece} {sizes}: {name} of slot {slot}"


@pytest.mark.parametrize("piece", [name for name in PIECES if "dropout" not in name])
def test_a_slot_equals_the_ordinary_module(piece: str) -> None:
    """The module without a leading M, on its own batch: outputs to 1e-6, gradients to 1e-6 of their size."""
    m = 3
    for sizes in SIZES:
        models = [redraw(PIECES[piece](*sizes[1:]), seed) for seed in range(m)]
        rows = [inputs(piece, sizes, seed) for seed in range(m)]
        together = run(stack_models(models), torch.stack(rows), range(m))
        for slot, (model, row) in enumerate(zip(models, rows, strict=True)):
            x = row.clone().requires_grad_(row.is_floating_point())
            y = model(x)
            (y * draw(*y.shape, seed=9)).sum().backward()
            wanted = {"output": y, "input gradient": x.grad} | {name: p.grad for name, p in model.named_parameters()}
            for name, value in wanted.items():
                if value is not None:
                    bound = 1e-6 * max(1.0, float(value.detach().abs().max()))
                    assert worst(together[name][slot], value) <= bound, f"{piece} {sizes}: {name}"


def test_dropout_draws_belong_to_a_model_and_keep_its_scale() -> None:
    """Each slot's draw is its generator's; kept entries are scaled by 1/(1-p), and about p of them are dropped."""
    p, x = 0.4, torch.ones(3, 50, 40)
    module = Dropout(p)
    module.generators = [torch.Generator().manual_seed(s) for s in (1, 2, 1)]
    y = module(x)
    assert torch.equal(y[0], y[2])
    assert not torch.equal(y[0], y[1])
    assert torch.equal(y.unique(), torch.tensor([0.0, 1 / (1 - p)]))
    assert abs(float((y == 0).float().mean()) - p) < 0.03
    assert not torch.equal(module(x), y), "the next call draws afresh"
    assert module.eval()(x) is x
