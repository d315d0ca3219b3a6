"""Ablations by hand and by a second computation; Shapley values by definition; planted redundancy and synergy."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations, product

import numpy as np
import pytest
import torch
from torch import Tensor

from mhsa_cli.core.heads import causal
from mhsa_cli.core.heads.causal import (
    ABLATIONS,
    Ablator,
    effective_heads,
    exact_shares,
    redundancy,
    sampled_shares,
    shapley,
)
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import IGNORE, Batch
from tests.core.forms import EVERY, Form, tokens
from tests.core.forms import B as ROWS
from tests.core.forms import T as TOKENS
from tests.core.handmade import Attended, handmade, induction
from tests.core.noise import Noise, small
from tests.core.reference import acted, array, loop_attention, worst

LENGTH = 6


def batch_of(task: Noise | Attended, n: int = 5, seed: int = 4) -> Batch:
    return task.sample(n, torch.Generator().manual_seed(seed))


def uneven(n: int = 5) -> Batch:
    """Rows that score different numbers of tokens, one of them none."""
    batch = batch_of(Noise(seq_len=LENGTH, unscored=1), n)
    targets = batch.targets.clone()
    for row in range(n):
        targets[row, 1 + row :] = IGNORE
    targets[0] = IGNORE
    return Batch(batch.inputs, targets)


def row_losses(model: TransformerLM, batch: Batch, z: np.ndarray) -> list[float]:
    """Sum the loss of each row from the heads' results z (B, H, T, d) of a model of one layer, in plain loops."""
    attn, found = model.attention[0], []
    out, out_bias = array(attn.out_proj.weight), array(attn.out_proj.bias)
    head, head_bias = array(model.lm_head.weight), array(model.lm_head.bias)
    for b, targets in enumerate(batch.targets.tolist()):
        loss = 0.0
        for t, answer in enumerate(targets):
            if answer != IGNORE:
                logits = head @ (out @ np.concatenate(list(z[b, :, t])) + out_bias) + head_bias
                loss += math.log(sum(math.exp(x) for x in logits)) - logits[answer]
        found.append(loss)
    return found


def replaced(kind: str, A: np.ndarray, v: np.ndarray, head: int | None) -> np.ndarray:
    """Ablate one head, or all, by the definition: A (B, H, T, T), v and the result (B, H, T, d)."""
    B, H, length, _ = A.shape
    z = np.einsum("bhqk,bhkd->bhqd", A, v)
    clean = z.copy()
    for b, h, q in product(range(B), range(H) if head is None else [head], range(length)):
        if kind == "zero":
            z[b, h, q] = 0
        elif kind == "mean":
            z[b, h, q] = sum(clean[i, h, q] for i in range(B)) / B
        elif kind == "uniform":
            z[b, h, q] = sum(v[b, h, k] for k in range(q + 1)) / (q + 1)
        else:  # resample: the weights of the row before
            z[b, h, q] = sum(A[(b - 1) % B, h, q, k] * v[b, h, k] for k in range(length))
    return z


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("kind", list(ABLATIONS))
def test_ablations_by_hand(kind: str, together: bool) -> None:
    model, batch = small(3).double(), uneven()
    x = (model.tok_emb(batch.inputs) + model.positions.table[:LENGTH]).detach()  # type: ignore[union-attr]
    _, A = loop_attention(model.attention[0], x)
    attn = model.attention[0]
    v = array(x) @ array(attn.qkv_proj.weight)[2 * 12 :].T + array(attn.qkv_proj.bias)[2 * 12 :]
    v = v.reshape(5, LENGTH, 3, 4).transpose(0, 2, 1, 3)  # (B, H, T, d)
    tokens = sum(t != IGNORE for row in batch.targets.tolist() for t in row)
    clean = row_losses(model, batch, np.einsum("bhqk,bhkd->bhqd", A, v))
    ablator = Ablator(model, batch)
    assert ablator.loss == pytest.approx(sum(clean) / tokens, abs=1e-9)

    singles = [ablator.joint(kind)] if together else ablator.each(kind)
    assert singles is not None
    for effect, head in zip(singles, [None] if together else range(3), strict=True):
        after = row_losses(model, batch, replaced(kind, A, v, head))
        delta = (sum(after) - sum(clean)) / tokens
        assert effect.delta == pytest.approx(delta, abs=1e-9) and abs(delta) > 1e-6
        # The standard error of a ratio of sums: rows are drawn, tokens within a row are not independent.
        counts = [sum(t != IGNORE for t in row) for row in batch.targets.tolist()]
        rest = [a - c - delta * n for a, c, n in zip(after, clean, counts, strict=True)]
        se = math.sqrt(sum(r * r for r in rest) * 5 / 4) / tokens
        assert effect.se == pytest.approx(se, abs=1e-9)


@pytest.mark.parametrize("form", EVERY[::4], ids=str)
def test_variants_are_the_model_walked_with_those_heads_replaced(form: Form) -> None:
    """The other computation: a full pass for each variant."""
    for kind in ABLATIONS:
        check_variants(form, kind)


def check_variants(form: Form, kind: str) -> None:
    """Hold the variants of one ablation to the other road."""
    model, ids = form.model(), tokens(ROWS, TOKENS)
    targets = tokens(ROWS, TOKENS, seed=5).masked_fill(tokens(ROWS, TOKENS, seed=6) < 6, IGNORE)
    ablator, n = Ablator(model, Batch(ids, targets)), len(model.heads)
    chosen = torch.rand(5, n, generator=torch.Generator().manual_seed(n)) < 0.5
    found = ablator.logits(kind, chosen)
    assert len(found) == 5 and 1 < found.size(1) < ids.numel()
    for flags, logits in zip(chosen, found, strict=True):
        by_layer = flags.split([attn.n_heads for attn in model.attention])

        def act(layer: int, A: Tensor, v: Tensor, by_layer: tuple[Tensor, ...] = by_layer) -> Tensor:
            return torch.where(by_layer[layer][:, None, None], ABLATIONS[kind](ablator, layer, v), A @ v)

        assert worst(logits, acted(model, ids, act)[targets != IGNORE]) < 1e-4
    assert (
        form.kind == "uniform" or worst(found[0], ablator.clean.logits[ablator.scored]) > 1e-3
    )  # or nothing was shown


def test_the_standard_error_is_the_scatter_of_deltas_over_draws() -> None:
    """The standard error of one batch against the scatter of the deltas of 60 batches."""
    model, task = small(5), Noise(seq_len=LENGTH)
    effects = [Ablator(model, batch_of(task, 32, seed)).joint("uniform") for seed in range(60)]
    real = float(np.std([effect.delta for effect in effects], ddof=1))
    assert 0.75 < np.mean([effect.se for effect in effects]) / real < 1.35


def test_some_heads_together_are_those_and_no_others() -> None:
    ablator = Ablator(small(1, n_layers=2, residual=True), batch_of(Noise()))
    assert ablator.heads == [(layer, head) for layer in (0, 1) for head in (0, 1, 2)]
    rows = ablator.ablated_rows("zero", torch.tensor([[False, True, False, False, False, True]]))
    assert ablator.joint("zero", [(0, 1), (1, 2)]) == ablator.effects(rows)[0]
    assert ablator.joint("zero", []).delta == pytest.approx(0.0, abs=1e-7)
    singles = ablator.each("zero")
    assert singles is not None
    for effect, address in zip(singles, ablator.heads, strict=True):
        assert effect.delta == pytest.approx(ablator.joint("zero", [address]).delta, abs=1e-6)


def test_variants_run_in_pieces_are_those_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ablator = Ablator(small(1), batch_of(Noise()))
    chosen = torch.tensor([[a, b, c] for a in (False, True) for b in (False, True) for c in (False, True)])
    at_once = ablator.ablated_rows("resample", chosen)
    monkeypatch.setattr(causal, "CHUNK", 1)
    assert float((ablator.ablated_rows("resample", chosen) - at_once).abs().max()) < 1e-4


@pytest.mark.parametrize("kind", list(ABLATIONS))
def test_ablations_do_not_change_captured_tensors(kind: str) -> None:
    model = small(1, n_layers=2, residual=True).train()
    ablator = Ablator(model, batch_of(Noise()))
    kept = [*ablator.clean.weights, *ablator.clean.values, *ablator.clean.outputs, *model.parameters()]
    before = [tensor.clone() for tensor in kept]
    ablator.each(kind)
    ablator.joint(kind)
    assert all(torch.equal(a, b) for a, b in zip(kept, before, strict=True)) and model.training


# Shares


def table_of(n: int, seed: int = 1) -> Tensor:
    return torch.randn(2**n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def brute_force(worth: Callable[[set[int]], float], n: int) -> list[float]:
    """The definition: a head's gain when it joins those before it, averaged over every order of joining."""
    orders = list(permutations(range(n)))
    shares = [0.0] * n
    for order in orders:
        for place, head in enumerate(order):
            shares[head] += worth({*order[: place + 1]}) - worth({*order[:place]})
    return [share / len(orders) for share in shares]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_exact_shares_are_the_mean_over_all_orders(n: int) -> None:
    table = table_of(n)
    found = exact_shares(table, n)
    assert found == pytest.approx(brute_force(lambda s: float(table[sum(1 << i for i in s)]), n), abs=1e-9)
    assert sum(found) == pytest.approx(float(table[-1] - table[0]), abs=1e-9)


@pytest.mark.parametrize("heads", [3, 4])
def test_shares_of_a_model_are_the_mean_over_all_orders(heads: int) -> None:
    model = small(2, d_model=12, n_heads=heads)
    ablator = Ablator(model, batch_of(Noise()))

    def worth(keeps: set[int]) -> float:
        return -ablator.joint("uniform", [(0, h) for h in range(heads) if h not in keeps]).delta

    found = shapley(ablator, seed=0)
    assert found is not None and found.se == [0.0] * heads
    assert found.values == pytest.approx(brute_force(worth, heads), abs=1e-6)
    assert sum(found.values) == pytest.approx(ablator.joint("uniform").delta, abs=1e-6)


def test_drawn_shares_of_many_heads_sum_to_the_joint_effect() -> None:
    ablator = Ablator(small(2, n_heads=12, n_layers=1), batch_of(Noise()))
    found, again, other = (shapley(ablator, seed) for seed in (1, 1, 2))
    assert found is not None and found == again != other
    assert sum(found.values) == pytest.approx(ablator.joint("uniform").delta, abs=1e-6)
    assert len(found.se) == 12 and min(found.se) > 0


def worth_by_table(table: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda keeps: table[(keeps.long() << torch.arange(keeps.size(1))).sum(1)]


def test_drawn_shares_lie_within_their_error_of_the_exact_ones() -> None:
    table, n = table_of(5), 5
    exact, generator = exact_shares(table, n), torch.Generator().manual_seed(3)
    orders = torch.stack([torch.randperm(n, generator=generator) for _ in range(800)])
    found = sampled_shares(worth_by_table(table), orders)
    distances = [(a - b) / se for a, b, se in zip(found.values, exact, found.se, strict=True)]
    assert max(abs(d) for d in distances) < 4 and max(found.se) < 0.1
    every = torch.tensor(list(permutations(range(n))))
    assert sampled_shares(worth_by_table(table), every).values == pytest.approx(exact, abs=1e-9)


def test_equal_heads_have_equal_values_and_a_silent_one_has_none() -> None:
    model = handmade("previous", "uniform", "previous", "previous", idle=[3])
    found = shapley(Ablator(model, batch_of(Attended("previous"), 20)), seed=0)
    assert found is not None
    one, even, other, idle = found.values
    assert one == pytest.approx(other, abs=1e-6) and one > 1
    assert even == pytest.approx(0.0, abs=1e-6) and idle == pytest.approx(0.0, abs=1e-6)


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


def test_where_all_subsets_cost_too_much_orders_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = small(2, n_heads=6, d_model=12), batch_of(Noise())
    exact = shapley(Ablator(model, batch), seed=0)
    monkeypatch.setattr(causal, "MIN_PERMUTATIONS", 6)
    monkeypatch.setattr(causal, "MAX_FLOPS", 63.5 * Ablator(model, batch).flops)  # 64 subsets, or 6 x 7 and 3 x 6 after
    ablator = Ablator(model, batch)
    drawn = shapley(ablator, seed=0)
    assert exact is not None and drawn is not None and max(exact.se) == 0 < min(drawn.se)
    assert sum(drawn.values) == pytest.approx(sum(exact.values), abs=1e-6)
    assert ablator.affordable == 63 - 6 * 7 and all(ablator.each(kind) for kind in ("zero", "mean", "resample"))
    monkeypatch.setattr(causal, "MIN_PERMUTATIONS", 7)
    assert shapley(Ablator(model, batch), seed=0) is None


def test_what_exceeds_the_budget_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal, "MAX_FLOPS", 4 * Ablator(small(1), batch_of(Noise())).flops)
    ablator = Ablator(small(1), batch_of(Noise()))
    assert ablator.each("uniform") is not None  # three variants
    assert shapley(ablator, seed=0) is None  # eight
    assert ablator.each("zero") is None  # one was left
