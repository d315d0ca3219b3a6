"""The replacement test: ideal heads; right labels keep a hand-built head's effect, wrong ones keep none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from mhsa_cli.core.heads.causal import Ablator, Effect
from mhsa_cli.core.heads.labels import KEPT
from mhsa_cli.core.heads.replacement import (
    Trial,
    Tried,
    ideal_weights,
    kept_together,
    mixed,
    part_kept,
    set_patterns,
    try_labels,
)
from mhsa_cli.core.heads.targets import target_keys, target_of
from mhsa_cli.core.model.attention import causal_window
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.records.labels import TARGETS, Label, Role
from mhsa_cli.text import Head
from tests.core.handmade import FAR, MODELS, Attended, Blocks, T, V, handmade, write_pattern
from tests.core.noise import Noise, small
from tests.core.reference import acted, worst
from tests.core.test_causal import batch_of, uneven
from tests.core.test_head_targets import Marked

A, B = Head(0, 0), Head(0, 1)
LAST = {"induction": Head(1, 0)}


def label(kind: str) -> Label:
    """A label with numbers, where its target has any."""
    return Label(kind, Role.SHOWN, FAR, 7, 3)


def ideal(kind: str, ablator: Ablator) -> Tensor:
    """The weights of an ideal head on an ablator's rows."""
    keys = target_of(kind, label(kind), Noise(V, T))(ablator.inputs)
    return ideal_weights(keys, ablator.uniform[0] > 0)


def trials(ablator: Ablator, *kinds: str) -> list[Trial]:
    return [Trial(label(kind), ideal(kind, ablator)) for kind in kinds]


def ablator_of(model: TransformerLM, kind: str, n: int = 25) -> Ablator:
    return Ablator(model, batch_of(Attended(kind), n))


def part(tried: Tried) -> float:
    assert tried.kept is not None
    return tried.kept.delta


# Ideal heads


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("kind", list(TARGETS))
def test_an_ideal_head_has_all_its_weight_on_its_target_evenly(kind: str, window: int | None) -> None:
    """Its lift is 1; a query without a key of the target is uniform over what it sees."""
    ids = torch.randint(4, (6, 11), generator=torch.Generator().manual_seed(1))
    visible, keys = causal_window(11, 11, window), target_of(kind, label(kind), Marked())(ids)
    weights = ideal_weights(keys, visible).expand(6, -1, -1)
    assert weights.dtype == torch.float64 and bool((weights[:, ~visible] == 0).all())
    torch.testing.assert_close(weights.sum(-1), torch.ones(6, 11).double())
    counted = target_keys(keys, visible)
    assert (counted is None) == (kind in ("offset", "modulo") and window == 5)  # beyond the window
    if counted is not None:
        assert float((weights * counted.keys).sum()) / (counted.n * 6 / len(counted.keys)) == pytest.approx(1.0)
    on = (keys & visible).expand(6, -1, -1)
    for row, target, q in ((weights[b, q], on[b, q], q) for b in range(6) for q in range(11)):
        own = target if bool(target.any()) else visible[q]
        assert row.tolist() == pytest.approx((own / own.sum()).tolist())


def test_targets_are_mixed_in_proportion_to_the_weight_on_each() -> None:
    visible = causal_window(5, 5)
    ids = torch.zeros(1, 5, dtype=torch.long)
    one, two = (ideal_weights(target_of(kind, label(kind), Marked())(ids), visible) for kind in ("previous", "self"))
    assert torch.equal(mixed([one], [0.3]), one)
    found = mixed([one, two], [0.3, 0.1])
    torch.testing.assert_close(found, 0.75 * one + 0.25 * two)
    assert found[0, 3].tolist() == pytest.approx([0, 0, 0.75, 0.25, 0])


@pytest.mark.parametrize("heads", [[], [Head(0, 1)], [Head(0, 2), Head(1, 0)]])
def test_heads_with_a_pattern_have_it_and_all_others_are_uniform(heads: Sequence[Head]) -> None:
    model = small(1, n_layers=2, residual=True)
    ablator = Ablator(model, batch_of(Noise()))
    B, length = ablator.inputs.shape
    weights = torch.rand(2, B, length, length, generator=torch.Generator().manual_seed(4)).tril().double()
    drawn = dict(zip(heads, weights, strict=False))
    set_patterns(ablator, drawn)

    def act(layer: int, A: Tensor, v: Tensor) -> Tensor:
        A = ablator.uniform[0].expand_as(A).clone()
        for head, weights in drawn.items():
            if head.layer == layer:
                A[:, head.head] = weights.to(A)
        return A @ v

    found = ablator.logits("pattern", torch.ones(1, len(ablator.heads), dtype=torch.bool))[0]
    assert worst(found, acted(model, ablator.inputs, act)[ablator.scored]) < 1e-4


# The part kept


def test_the_part_kept_by_hand() -> None:
    """Nats by row clean, without the head, and with its ideal: (6 + 0 + 0) / (6 + 3 + 3)."""
    full, without, with_ideal = (torch.tensor(rows).double() for rows in ([4, 0, 2], [10, 3, 5], [4, 3, 5]))
    found = part_kept(full, without, with_ideal)
    residuals = (6 - 0.5 * 6, 0 - 0.5 * 3, 0 - 0.5 * 3)
    assert found == pytest.approx((0.5, (sum(r * r for r in residuals) * 3 / 2) ** 0.5 / 12))
    assert part_kept(full, without, full) == (1.0, 0.0) and part_kept(full, without, without) == (0.0, 0.0)
    assert part_kept(full, without, 2 * without - full) == (-1.0, 0.0)


@pytest.mark.parametrize("kind", list(MODELS))
def test_the_right_label_keeps_all_of_a_head_s_effect_and_a_wrong_one_nothing(kind: str) -> None:
    ablator, head = ablator_of(MODELS[kind](), kind), LAST.get(kind, A)
    (right,) = try_labels(ablator, {head: trials(ablator, kind)}, {}).values()
    assert right.kept == (pytest.approx(1.0, abs=1e-4), pytest.approx(0.0, abs=1e-4))
    alike = {"duplicate": {"self"}}  # which have the same token, hence the same value
    for other in MODELS.keys() - {kind} - alike.get(kind, set()):
        (tried,) = try_labels(ablator, {head: trials(ablator, other)}, {}).values()
        assert tried.trial.label.kind == other and part(tried) < 0.3, other


def test_the_label_that_keeps_the_effect_is_chosen() -> None:
    """The first that keeps enough; if none does, the one that keeps most."""
    ablator = ablator_of(handmade("previous"), "previous")
    wrong = {kind: part(try_labels(ablator, {A: trials(ablator, kind)}, {})[A]) for kind in ("first", "self", "offset")}
    best = max(wrong, key=lambda kind: wrong[kind])
    for kinds, chosen in (
        (["previous", "first"], "previous"),
        (["first", "self", "previous"], "previous"),
        (["first", "self", "offset"], best),
        (["offset", "self", "first"], best),
    ):
        tried = try_labels(ablator, {A: trials(ablator, *kinds)}, {})[A]
        assert tried.trial.label.kind == chosen
        assert part(tried) == pytest.approx(wrong.get(chosen, 1.0), abs=1e-4)
    first, second = trials(ablator, "previous", "previous")
    assert try_labels(ablator, {A: [first, second]}, {})[A].trial is first  # both keep it


def half_and_half() -> TransformerLM:
    """One head that has half its weight on the token before and half on its own."""
    model = handmade("previous")
    write_pattern(model.attention[0], 0, "self", Blocks(V, T))
    return model


def test_a_head_on_two_targets_keeps_its_effect_with_both() -> None:
    ablator = ablator_of(half_and_half(), "previous")
    one, other = trials(ablator, "previous", "self")
    both = Trial(one.label, mixed([one.ideal, other.ideal], [0.5, 0.5]), [(other.label, 1.0)])
    kept = {n: part(try_labels(ablator, {A: [trial]}, {})[A]) for n, trial in enumerate((one, other, both))}
    assert kept[2] == pytest.approx(1.0, abs=1e-4)
    assert kept[0] > 1.1 and kept[1] < 0  # the answer is the token before
    assert try_labels(ablator, {A: [other, both, one]}, {})[A].trial is both  # the first that keeps enough


# Heads that back each other up


def test_a_head_is_tested_while_its_backups_are_uniform() -> None:
    model = handmade("previous", "previous", loud=60.0)
    ablator = ablator_of(model, "previous")
    own = {A: trials(ablator, "first", "previous"), B: trials(ablator, "previous")}
    alone = try_labels(ablator, own, {})
    assert alone == {A: Tried(own[A][0], None), B: Tried(own[B][0], None)}  # no effect alone: nothing to keep
    backed = try_labels(ablator, own, {A: [B], B: [A]})
    assert {head: one.trial.label.kind for head, one in backed.items()} == {A: "previous", B: "previous"}
    assert [part(one) for one in backed.values()] == pytest.approx([1.0, 1.0], abs=1e-4)
    wrong = {A: trials(ablator, "first"), B: trials(ablator, "self")}
    assert max(map(part, try_labels(ablator, wrong, {A: [B], B: [A]}).values())) < 0.3


def test_a_head_without_an_effect_keeps_its_first_label_untested() -> None:
    ablator = ablator_of(handmade("previous", "previous", idle=[1]), "previous")
    own = {B: trials(ablator, "first", "previous")}
    assert try_labels(ablator, own, {}) == try_labels(ablator, own, {B: [A]}) == {B: Tried(own[B][0], None)}


def test_what_exceeds_the_budget_is_not_tested() -> None:
    ablator = ablator_of(handmade("previous", "first"), "previous")
    own = {A: trials(ablator, "first", "previous"), B: trials(ablator, "previous")}
    ablator.budget = 4.5 * ablator.flops
    assert part(try_labels(ablator, {A: own[A]}, {})[A]) == pytest.approx(1.0, abs=1e-4) and ablator.affordable == 0
    assert try_labels(ablator, own, {}) == {A: Tried(own[A][0], None), B: Tried(own[B][0], None)}
    assert kept_together(ablator, {A: own[A][1].ideal}) is None


# All labels together


def together(ablator: Ablator, **kinds: str) -> Effect:
    """Heads by name, with the target of each."""
    ideals = {Head(int(name[1]), int(name[4])): ideal(kind, ablator) for name, kind in kinds.items()}
    found = kept_together(ablator, ideals)
    assert found is not None
    return found


def test_all_labels_together_keep_all_and_parts_of_them_parts() -> None:
    ablator = ablator_of(MODELS["induction"](), "induction")
    every = together(ablator, L0_H0="previous", L1_H0="induction")
    assert every == (pytest.approx(1.0, abs=1e-4), pytest.approx(0.0, abs=1e-4))
    for part_of_it in ({"L0_H0": "previous"}, {"L1_H0": "first"}, {"L0_H0": "induction"}):
        assert together(ablator, **part_of_it).delta < 0.3
    # An ideal induction head needs no previous-token head to find its keys: it says what is attended to, not how.
    assert together(ablator, L1_H0="induction").delta == pytest.approx(1.0, abs=0.01)


def test_no_label_accounts_for_nothing_and_a_model_s_own_weights_for_all() -> None:
    ablator = Ablator(small(1, n_layers=2, residual=True), uneven())
    assert kept_together(ablator, {}) is None
    weights = {head: ablator.clean.weights[head.layer][:, head.head].double() for head in ablator.heads}
    found = kept_together(ablator, weights)
    assert found == (pytest.approx(1.0, abs=1e-3), pytest.approx(0.0, abs=1e-3)) and found.delta >= KEPT
    even = kept_together(ablator, {head: ablator.uniform[0].double() for head in ablator.heads})
    assert even == (pytest.approx(0.0, abs=1e-3), pytest.approx(0.0, abs=1e-3))
