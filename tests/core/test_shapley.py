"""What a head's pattern is worth: Shapley values and interactions by their definitions, and estimated from orders."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from torch import Tensor

from mhsa_cli.core.heads import shapley
from mhsa_cli.core.heads.causal import Ablator
from mhsa_cli.core.heads.shapley import (
    Shapley,
    effective_heads,
    exact_shapley,
    pair_weights,
    redundancy,
    sampled_shapley,
    value_weights,
)
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Batch
from tests.core.handmade import Attended, handmade, induction
from tests.core.noise import Noise, small
from tests.core.test_causal import batch_of, uneven

Worth = Callable[[frozenset[int]], float]


def coalitions(n: int) -> Tensor:
    return torch.tensor([[bool(number >> head & 1) for head in range(n)] for number in range(2**n)])


def by_orders(worth: Worth, n: int) -> list[float]:
    """The definition: a head's gain when it joins those before it, averaged over every order of joining."""
    orders = list(permutations(range(n)))
    values = [0.0] * n
    for order in orders:
        for place, head in enumerate(order):
            values[head] += worth(frozenset(order[: place + 1])) - worth(frozenset(order[:place]))
    return [value / len(orders) for value in values]


def interaction(worth: Worth, n: int, i: int, j: int) -> float:
    """The definition: w(S, i, j) - w(S, i) - w(S, j) + w(S), weighted by |S|! (n - |S| - 2)! / (n - 1)!."""
    total, others = 0.0, [head for head in range(n) if head not in (i, j)]
    for size in range(n - 1):
        weight = math.factorial(size) * math.factorial(n - size - 2) / math.factorial(n - 1)
        for members in map(frozenset, combinations(others, size)):
            gain = worth(members | {i, j}) - worth(members | {i}) - worth(members | {j}) + worth(members)
            total += weight * gain
    return total


def game(n: int, seed: int = 1) -> tuple[Tensor, Worth]:
    """Random worths of all coalitions, as a table and as a function."""
    table = torch.randn(2**n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return table, lambda members: float(table[sum(1 << head for head in members)])


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_values_and_interactions_are_their_definitions(n: int) -> None:
    table, worth = game(n)
    members = coalitions(n)
    values = value_weights(members) @ table
    assert values.tolist() == pytest.approx(by_orders(worth, n), abs=1e-9)
    assert float(values.sum()) == pytest.approx(float(table[-1] - table[0]), abs=1e-9)
    names, weights = pair_weights(members)
    assert names == list(combinations(range(n), 2)) and weights.shape == (len(names), 2**n)
    assert (weights @ table).tolist() == pytest.approx([interaction(worth, n, *pair) for pair in names], abs=1e-9)


def test_heads_that_add_up_do_not_interact() -> None:
    """w(S) is a sum over the members, plus one pair that is worth 3 together."""
    alone, members = torch.tensor([2.0, -1.0, 0.5, 0.0]).double(), coalitions(4)
    table = members.double() @ alone + 3.0 * (members[:, 1] & members[:, 3])
    names, weights = pair_weights(members)
    assert dict(zip(names, (weights @ table).tolist(), strict=True)) == pytest.approx(
        {pair: 3.0 if pair == (1, 3) else 0.0 for pair in names}, abs=1e-12
    )
    assert (value_weights(members) @ table).tolist() == pytest.approx([2.0, 0.5, 0.5, 1.5])


def worth_of(model: TransformerLM, batch: Batch) -> Worth:
    """Ablate the heads outside a coalition, one coalition at a time."""
    ablator = Ablator(model, batch)
    return lambda keeps: -ablator.joint("uniform", [h for i, h in enumerate(ablator.heads) if i not in keeps]).delta


def exact(model: TransformerLM, batch: Batch) -> Shapley:
    found = exact_shapley(Ablator(model, batch))
    assert found is not None
    return found


@pytest.mark.parametrize("settings", [{"n_heads": 3}, {"n_heads": 4}, {"n_heads": 2, "n_layers": 2, "residual": True}])
def test_a_model_s_values_and_interactions_are_their_definitions(settings: dict[str, int]) -> None:
    model, batch = small(2, d_model=12, **settings).double(), uneven()
    found, worth, n = exact(model, batch), worth_of(model, batch), len(model.heads)
    values = [value.delta for value in found.values]
    assert values == pytest.approx(by_orders(worth, n), abs=1e-10)
    joint = Ablator(model, batch).joint("uniform")
    assert sum(values) == pytest.approx(joint.delta, abs=1e-10)
    assert [share.delta for share in found.shares] == pytest.approx([value / joint.delta for value in values], abs=1e-8)
    pairs = {pair: effect.delta for pair, effect in found.pairs.items()}
    wanted = {pair: interaction(worth, n, *pair) for pair in combinations(range(n), 2)}
    assert pairs == pytest.approx(wanted, abs=1e-10) and min(map(abs, pairs.values())) > 1e-8
    # Bit h of a coalition's number is head h.
    assert found.rows is not None and len(found.rows) == 2**n
    ablator = Ablator(model, batch)
    for number in (0, 1, 2, 2**n - 2, 2**n - 1):
        keeps = frozenset(h for h in range(n) if number >> h & 1)
        assert -ablator.effects(found.rows[number : number + 1])[0].delta == pytest.approx(worth(keeps), abs=1e-10)


def test_one_head_has_the_joint_effect_and_its_error() -> None:
    model, batch = small(2, n_heads=1).double(), uneven()
    found, joint = exact(model, batch), Ablator(model, batch).joint("uniform")
    assert found.values == [pytest.approx(joint, abs=1e-9)] and found.pairs == {}
    assert found.shares == [pytest.approx((1.0, 0.0), abs=1e-12)]


def test_standard_errors_are_the_scatter_over_draws_of_the_rows() -> None:
    """The errors from one batch against the scatter of the figures of 60 batches."""
    model, task = handmade("previous", "first", "previous", loud=4.0), Attended("previous")
    drawn = [exact(model, batch_of(task, 16, seed)) for seed in range(60)]
    figures = [[*found.values, *found.shares, *found.pairs.values()] for found in drawn]
    estimates, errors = np.array(figures).transpose(2, 1, 0)  # (figures, draws)
    assert len(estimates) == 9
    found = errors.mean(1) / estimates.std(1, ddof=1)
    assert found.min() > 0.75 and found.max() < 1.35, found


def test_equal_heads_have_equal_values_and_a_silent_one_has_none() -> None:
    model = handmade("previous", "uniform", "previous", "previous", idle=[3])
    found = exact(model, batch_of(Attended("previous"), 20))
    one, even, other, idle = (value.delta for value in found.values)
    assert one == pytest.approx(other, abs=1e-6) and one > 1
    assert even == pytest.approx(0.0, abs=1e-6) and idle == pytest.approx(0.0, abs=1e-6)
    silent = [effect.delta for pair, effect in found.pairs.items() if {1, 3} & set(pair)]
    assert silent == pytest.approx([0.0] * 5, abs=1e-6)


@pytest.mark.parametrize(
    ("model", "kind", "sign"),
    [(handmade("previous", "previous", loud=60.0), "previous", -1), (induction(), "induction", 1)],
)
def test_heads_of_one_job_interact_below_0_and_parts_of_a_circuit_above(
    model: TransformerLM, kind: str, sign: int
) -> None:
    batch = batch_of(Attended(kind), 40)
    (pair,) = exact(model, batch).pairs.values()
    joint = Ablator(model, batch).joint("uniform").delta
    assert sign * pair.delta > 0.8 * joint > 1 and abs(pair.delta) > 10 * pair.se


# Estimated from orders


def test_all_orders_give_the_exact_values(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = small(2, n_heads=4, d_model=12).double(), uneven()
    every = iter(torch.tensor(list(permutations(range(4)))))
    monkeypatch.setattr(torch, "randperm", lambda n, generator: next(every))
    found, wanted = sampled_shapley(Ablator(model, batch), 0, 24), exact(model, batch)
    assert found is not None and found.rows is None and found.pairs == {}
    assert [v.delta for v in found.values] == pytest.approx([v.delta for v in wanted.values], abs=1e-6)
    assert [v.delta for v in found.shares] == pytest.approx([v.delta for v in wanted.shares], abs=1e-5)
    assert all(one.se > two.se for one, two in zip(found.values, wanted.values, strict=True))  # orders vary too


def test_values_from_orders_sum_to_the_joint_effect_and_depend_on_the_seed() -> None:
    model, batch = small(2, n_heads=12), batch_of(Noise())
    found, again, other = (sampled_shapley(Ablator(model, batch), seed, 6) for seed in (1, 1, 2))
    assert found is not None and found == again and other is not None and found.values != other.values
    joint = Ablator(model, batch).joint("uniform").delta
    assert sum(value.delta for value in found.values) == pytest.approx(joint, abs=1e-6)
    assert sum(share.delta for share in found.shares) == pytest.approx(1.0, abs=1e-6)
    for share, value in zip(found.shares, found.values, strict=True):  # the same figures in another unit
        assert (share.delta, share.se) == pytest.approx((value.delta / joint, value.se / abs(joint)), rel=1e-3)


def test_the_error_over_orders_is_their_scatter() -> None:
    """On rows that are all alike only the orders vary: errors from 40 orders against the scatter of 60 draws."""
    model, one = small(2, n_heads=5, d_model=20), batch_of(Noise(seq_len=6), 1)
    batch = Batch(one.inputs.repeat(3, 1), one.targets.repeat(3, 1))
    drawn = [sampled_shapley(Ablator(model, batch), seed, 40) for seed in range(60)]
    estimates, errors = np.array([found.values for found in drawn if found is not None]).transpose(2, 1, 0)
    ratios = errors.mean(1) / estimates.std(1, ddof=1)
    assert ratios.min() > 0.75 and ratios.max() < 1.35, ratios
    wanted = [value.delta for value in exact(model, batch).values]
    z = (estimates.mean(1) - wanted) / (estimates.std(1, ddof=1) / math.sqrt(60))
    assert np.abs(z).max() < 4, z


def test_what_exceeds_the_budget_or_has_too_many_heads_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ablator = Ablator(small(1), batch_of(Noise()))
    ablator.budget = 7.5 * ablator.flops
    assert exact_shapley(ablator) is None and sampled_shapley(ablator, 0, 2) is None and ablator.affordable == 7
    ablator.budget = 8.5 * ablator.flops
    assert sampled_shapley(ablator, 0, 2) is not None and ablator.affordable == 0
    ablator.budget = 8.5 * ablator.flops
    assert exact_shapley(ablator) is not None and ablator.affordable == 0
    ablator.budget = 8.5 * ablator.flops
    monkeypatch.setattr(shapley, "EXACT_TO", 2)
    assert exact_shapley(ablator) is None and ablator.affordable == 8


# Redundancy


def measured(model: TransformerLM, task: Attended) -> tuple[list[float], float]:
    ablator = Ablator(model, batch_of(task, 40))
    singles = ablator.each("uniform")
    assert singles is not None
    return [effect.delta for effect in singles], ablator.joint("uniform").delta


def test_planted_redundancy_is_near_one() -> None:
    """Two equal heads, each sufficient alone."""
    singles, joint = measured(handmade("previous", "previous", loud=60.0), Attended("previous"))
    assert max(singles) < 0.01 and joint > 1
    assert redundancy(singles, joint) > 0.98


def test_planted_synergy_is_below_zero() -> None:
    """Both heads of an induction model are needed."""
    singles, joint = measured(induction(), Attended("induction"))
    assert min(singles) > 0.9 * joint > 1
    assert redundancy(singles, joint) < -0.8


def test_redundancy_and_effective_heads_by_hand() -> None:
    assert redundancy([0.1, 0.1], 1.0) == pytest.approx(0.8)
    assert redundancy([0.5, 0.5], 1.0) == pytest.approx(0.0)
    assert redundancy([1.0, 1.0], 1.0) == pytest.approx(-1.0)
    assert effective_heads([2.0, 2.0, 0.0]) == pytest.approx(2.0)
    assert effective_heads([1.0] * 7) == pytest.approx(7.0)
    assert effective_heads([5.0, -1.0]) == pytest.approx(1.0)
    assert effective_heads([3.0, 1.0]) == pytest.approx(4 / 3**0.75)
    assert effective_heads([-1.0, 0.0]) == 0.0
