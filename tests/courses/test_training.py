"""Losses, the optimizer, clipping and checkpoints as a course tests them."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.core.reference import array, draw, worst
from tests.courses import adapters, by_hand


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_softmax_and_cross_entropy(shift: float) -> None:
    """Logits far from 0 overflow no power."""
    logits, targets = draw(5, 7, seed=1) * 3 + shift, torch.tensor([3, 0, 6, 1, 1])
    for dim in (0, 1, -1):
        powers = np.exp(array(logits) - shift)
        wanted = powers / powers.sum(dim, keepdims=True)
        assert worst(adapters.run_softmax(logits, dim), wanted) <= 1e-6
    found = float(adapters.run_cross_entropy(logits, targets))
    assert found == pytest.approx(by_hand.cross_entropy(array(logits), targets.numpy()), abs=1e-6 * max(1, shift))


def test_gradient_clipping() -> None:
    """Over all parameters together, those without a gradient left out; below the limit nothing changes."""
    for limit in (0.5, 100.0):
        parameters = [nn.Parameter(draw(*shape)) for shape in ((3, 4), (5,), (2, 2))]
        for seed, parameter in enumerate(parameters[:2]):
            parameter.grad = draw(*parameter.shape, seed=seed)
        norm = math.sqrt(sum(float((array(p.grad) ** 2).sum()) for p in parameters[:2]))
        wanted = [array(p.grad) * min(1, limit / norm) for p in parameters[:2]]
        adapters.run_gradient_clipping(parameters, limit)
        assert all(worst(p.grad, w) <= 1e-6 for p, w in zip(parameters, wanted, strict=False))
        assert parameters[2].grad is None


def test_adamw() -> None:
    weight, gradients = draw(5, 3, seed=1), [draw(5, 3, seed=seed) for seed in range(2, 12)]
    parameter = nn.Parameter(weight.clone())
    optimizer = adapters.get_adamw_cls()([parameter], lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3)
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
    wanted = by_hand.adamw(array(weight), [*map(array, gradients)], 0.02, (0.8, 0.95), 1e-6, 0.3)
    assert worst(parameter, wanted) <= 1e-6


@pytest.mark.parametrize(("low", "warmup", "cycle"), [(0.1, 7, 21), (0.0, 1, 13), (1.0, 5, 5)])
def test_the_learning_rate(low: float, warmup: int, cycle: int) -> None:
    """A line from 0 at step 0 to the peak, half a cosine to the minimum, which then stays."""
    for it in range(cycle + 5):
        if it < warmup:
            wanted = it / warmup
        elif it <= cycle and cycle > warmup:
            wanted = low + (1 - low) * (1 + math.cos(math.pi * (it - warmup) / (cycle - warmup))) / 2
        else:
            wanted = low
        found = adapters.run_get_lr_cosine_schedule(it, 1.0, low, warmup, cycle)
        assert found == pytest.approx(wanted, abs=1e-9), it


@pytest.mark.parametrize("memory", [False, True])
def test_checkpoints(memory: bool, tmp_path: Path) -> None:
    """A model half trained, saved, and gone on with in another process's stead."""

    def made() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4))
        return model, adapters.get_adamw_cls()(model.parameters(), lr=0.01)

    def steps(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
        for step in range(first, last):
            optimizer.zero_grad()
            (model(draw(8, 6, seed=step)) - draw(8, 4, seed=100 + step)).square().mean().backward()
            optimizer.step()

    one, other = made(), made()
    steps(*one, 0, 5)
    place = io.BytesIO() if memory else tmp_path / "checkpoint.pt"
    adapters.run_save_checkpoint(*one, 5, place)
    if memory:
        place.seek(0)
    assert adapters.run_load_checkpoint(place, *other) == 5
    for both in (one, other):
        steps(*both, 5, 9)
    assert all(torch.equal(p, q) for p, q in zip(one[0].parameters(), other[0].parameters(), strict=True))
