"""Which token moves which output, by hand: functions of rows whose answer is seen at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mhsa_cli.check.match.influence import influence

X = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def moved(call: Callable[[Tensor], Tensor], *, onward: bool = False) -> Tensor:
    return influence(call, X, call(X), range(5), onward=onward)


def test_a_sum_of_what_came_before_is_moved_by_it_alone() -> None:
    ones = torch.ones(5, 5, dtype=torch.bool)
    assert torch.equal(moved(lambda x: x.cumsum(1)) > 0, ones.tril())
    assert torch.equal(moved(lambda x: x.flip(1).cumsum(1).flip(1)) > 0, ones.triu())
    next_too = torch.eye(5) + torch.eye(5).roll(1, 1)
    assert torch.equal(moved(lambda x: x + x.roll(-1, 1)) > 0, next_too > 0)


def test_a_token_that_is_handed_on_moves_by_what_it_is_multiplied_by() -> None:
    expected = 2.5 * X.abs().amax((0, 2))
    assert torch.allclose(moved(lambda x: x), expected.diag())
    assert torch.allclose(moved(lambda x: x, onward=True), expected.view(5, 1).expand(5, 5).tril())
    last = influence(lambda x: x[:, 4:], X, X[:, 4:], [1, 4])
    assert torch.allclose(last, torch.stack([torch.zeros(()), expected[4]]).view(1, 2))


def test_what_is_no_number_before_and_after_counts_as_it_is_asked_to() -> None:
    def first_is_lost(x: Tensor) -> Tensor:
        return torch.cat([x[:, :1] * math.nan, x[:, 1:]], 1)

    y = first_is_lost(X)
    assert influence(first_is_lost, X, y, [2])[0] == 0.0
    assert influence(first_is_lost, X, y, [2], nonfinite=math.inf)[0] == math.inf
    assert influence(lambda x: x / (x[:, :1, :1] - X[:, :1, :1]), X, X, [2])[1] > 1e300
