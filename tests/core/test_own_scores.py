"""Scores of one's own: by hand, equal to ours by a second road, without effect on training, and held to a form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from mhsa_cli.config.load import load_config
from mhsa_cli.core.heads import random_baseline
from mhsa_cli.core.heads.capture import head_weights
from mhsa_cli.core.heads.head_scores import score_heads
from mhsa_cli.core.heads.own_scores import OnRows, OwnScore, own_figures, own_nulls
from mhsa_cli.core.heads.probe import build_probe
from mhsa_cli.core.heads.random_baseline import null_limits, with_limits
from mhsa_cli.core.heads.targets import duplicates
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import TASKS
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.lockstep import Group, build_model, records_of
from mhsa_cli.errors import UsageError
from mhsa_cli.records.timeline import SnapshotRecord

CONFIG = load_config(
    None,
    ["task.name=copy", "task.vocab_size=7", "task.seq_len=10", "d_model=12", "n_heads=3", "n_layers=2"]
    + ["epochs=1", "steps_per_epoch=9", "batch_size=5", "lr=0.02", "dropout=0.1"],
)
TASK = TASKS["copy"](vocab_size=7, seq_len=10)
CAUSAL = torch.ones(3, 3, dtype=torch.bool).tril()


@pytest.fixture(scope="module", autouse=True)
def few_untrained_heads() -> Iterator[None]:
    with mock.patch.object(random_baseline, "HEADS", 12):
        yield


def own(call: Callable[..., Any]) -> OwnScore:
    return OwnScore(f"mine.py:{call.__name__}", call)


def previous(ids: Tensor) -> Tensor:
    B, T = ids.shape
    return torch.ones(B, T, T, dtype=torch.bool).tril(-1).triu(-1)


def same_before(ids: Tensor) -> Tensor:
    return (ids.unsqueeze(1) == ids.unsqueeze(2)).tril(-1)


def on_previous(weights: Tensor, ids: Tensor) -> Tensor:
    return weights.diagonal(-1, 2, 3).mean(-1)


def sharp_model() -> TransformerLM:
    """A model whose untrained heads attend to some tokens more than to others."""
    model = build_model(CONFIG, TASK)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    return model


def test_a_mask_by_hand() -> None:
    """Row 0 has the target {0} for query 1, row 1 that and {0, 1} for query 2."""

    def mine(ids: Tensor) -> Tensor:
        found = torch.zeros(2, 3, 3, dtype=torch.bool)
        found[:, 1, 0] = found[1, 2, 0] = found[1, 2, 1] = found[0, 2] = True  # all keys of query 2 in row 0: no choice
        return found

    weights = torch.zeros(2, 2, 3, 3)
    weights[0, :, 1, 0] = torch.tensor([0.25, 1.0])
    weights[1, :, 1, 0] = torch.tensor([0.5, 1.0])
    weights[1, :, 2, :2] = torch.tensor([[0.25, 0.5], [1.0, 0.0]])
    rows = OnRows(own(mine), torch.zeros(2, 3, dtype=torch.int64), CAUSAL)
    assert rows.counts.tolist() == [1, 2]
    assert rows.by_row([weights]).tolist() == [[0.25, 1.25], [1.0, 2.0]]
    assert rows.means_of(rows.by_row([weights])).tolist() == [0.5, 1.0]
    assert rows.uniform == pytest.approx((0.5 + 0.5 + 2 / 3) / 3)
    u = rows.uniform
    assert rows.levels([weights]).tolist() == pytest.approx([(0.5 - u) / (1 - u), 1.0])


def test_a_value_by_hand_is_asked_layer_by_layer() -> None:
    asked = []

    def mine(weights: Tensor, ids: Tensor) -> Tensor:
        asked.append((tuple(weights.shape), weights.dtype, ids.tolist()))
        return weights[:, :, 2, 0] + ids[:, :1]

    ids = torch.tensor([[1, 0, 0], [3, 0, 0]])
    rows = OnRows(own(mine), ids, CAUSAL)
    layers = [torch.full((2, 2, 3, 3), 0.25).double(), torch.full((2, 1, 3, 3), 0.5)]
    assert rows.by_row(layers).tolist() == [[1.25, 3.25], [1.25, 3.25], [1.5, 3.5]]
    assert rows.uniform == pytest.approx(2 + 1 / 3)
    assert asked[1:] == [((2, 2, 3, 3), torch.float32, ids.tolist()), ((2, 1, 3, 3), torch.float32, ids.tolist())]


@pytest.mark.parametrize(("call", "name"), [(previous, "previous"), (same_before, "duplicate")])
def test_a_mask_equal_to_one_of_our_targets_has_its_figures(call: Callable[..., Any], name: str) -> None:
    model = sharp_model()
    probe = build_probe(model, TASK, 3)
    assert probe is not None
    heads = score_heads(model, TASK, probe, head_weights(model, probe.ids), 3)
    heads = with_limits(heads, null_limits(model, TASK), None)
    found = own_figures(model, TASK, 3, [own(call)])
    assert len(heads) == len(found) == 6
    for head in heads:
        ours, theirs = head.scores[name], found[head.address][call.__name__]
        assert theirs.lift is not None and ours.null is not None
        assert (theirs.value, theirs.uniform, theirs.lift) == pytest.approx((ours.mass, ours.uniform, ours.lift))
        assert theirs.null == pytest.approx(ours.uniform + (1 - ours.uniform) * ours.null)
    assert torch.equal(same_before(probe.ids), duplicates(probe.ids).tril())


def test_a_value_equal_to_a_mask_has_its_figures_and_error() -> None:
    """Query 1 and all later ones count in every row, so the mean of rows is the mean of queries."""
    model = sharp_model()
    for figures in own_figures(model, TASK, 3, [own(previous), own(on_previous)]).values():
        target, value = figures["previous"], figures["on_previous"]
        parts = [(one.value, one.se, one.uniform, one.null_low, one.null) for one in (target, value)]
        assert parts[0] == pytest.approx(parts[1], rel=1e-4)
        assert target.se is not None and 1e-4 < target.se < 0.1 and value.lift is None


def test_untrained_heads_are_a_range_of_the_shape_alone() -> None:
    scores = [own(previous), own(on_previous)]
    first, second = (own_nulls(build_model(CONFIG, TASK, seed=seed), TASK, scores) for seed in (1, 2))
    assert first == second and all(null.low < null.high for null in first.values())
    assert first["previous"].low < 0 < first["previous"].high  # lifts


def meddling(weights: Tensor, ids: Tensor) -> Tensor:
    torch.manual_seed(ids.sum().item())
    torch.rand(3)
    torch.set_grad_enabled(True)
    weights.fill_(0.5)
    ids.zero_()
    return torch.rand(weights.shape[:2])


def meddling_mask(ids: Tensor) -> Tensor:
    ids.zero_()
    return previous(ids) & (torch.rand(*ids.shape, ids.size(1)) < 0.5)


def trained(*scores: OwnScore) -> tuple[list[SnapshotRecord], str, float, Tensor]:
    torch.manual_seed(1)
    group = Group([CONFIG], TASK, torch.device("cpu"), scores=scores)
    found = [record for record in records_of(group) if isinstance(record, SnapshotRecord)]
    return found, weights_sha256(group.model(0)), group.last_eval[0].loss, torch.rand(2)


def test_nothing_that_a_score_does_reaches_the_training() -> None:
    plain, *without = trained()
    with_them, *ends = trained(own(meddling), own(meddling_mask), own(previous))
    again = trained(own(meddling), own(meddling_mask), own(previous))[0]
    assert ends[:2] == without[:2] and torch.equal(ends[2], without[2])
    for one, other in zip(plain, with_them, strict=True):
        assert [head.lifts for head in one.heads] == [head.lifts for head in other.heads]
    assert [one.heads for one in again] == [one.heads for one in with_them]  # each call draws the same
    for one in with_them:
        for head in one.heads:
            uniform = one.own_uniform["previous"]
            lift = (head.own_scores["previous"] - uniform) / (1 - uniform)
            assert lift == pytest.approx(head.lifts["previous"]) and set(head.own_scores) == set(one.own_uniform)


def wrong_parameters(x: Tensor) -> Tensor:
    return x


def raises(ids: Tensor) -> Tensor:
    raise KeyError(3)


def numbers(ids: Tensor) -> Tensor:
    return previous(ids).long()


def one_row(ids: Tensor) -> Tensor:
    return previous(ids)[:1]


def later(ids: Tensor) -> Tensor:
    return previous(ids).transpose(1, 2)


def nothing(ids: Tensor) -> Tensor:
    return previous(ids) & False


def everything(ids: Tensor) -> Tensor:
    return torch.ones_like(previous(ids)).tril()


def by_query(weights: Tensor, ids: Tensor) -> Tensor:
    return weights.amax(-1)


def counted(weights: Tensor, ids: Tensor) -> Tensor:
    return (weights > 0.1).sum((-2, -1))


def entropy(weights: Tensor, ids: Tensor) -> Tensor:
    return -(weights * weights.log()).sum(-1).mean(-1)


def a_list(weights: Tensor, ids: Tensor) -> Any:
    return weights.amax((-2, -1)).tolist()


WRONG = [raises, numbers, one_row, later, nothing, everything, by_query, counted, entropy, a_list, wrong_parameters]


@pytest.mark.parametrize("call", WRONG)
def test_what_is_no_score_is_refused_before_training(call: Callable[..., Any]) -> None:
    with pytest.raises(UsageError) as caught:
        own(call).check(TASK, 3)
    assert caught.value.code == "own-score"


def test_a_right_one_passes() -> None:
    for call in (previous, same_before, on_previous, meddling):
        own(call).check(TASK, 3)


def test_a_value_that_is_not_finite_later_is_not_measured() -> None:
    def mine(weights: Tensor, ids: Tensor) -> Tensor:
        return torch.where(weights[:, :, 1, 0] == 0.5, 1.0, math.nan)

    figures = own_figures(build_model(CONFIG, TASK), TASK, 3, [own(mine)])
    for found in figures.values():
        one = found["mine"]
        assert (one.value, one.se, one.uniform, one.null) == (None, None, 1.0, None)
