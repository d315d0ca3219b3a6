"""Matching of heads: distances by hand and by another library, pairings by brute force and by construction."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mhsa_cli.config.load import load_config
from mhsa_cli.core.heads import match
from mhsa_cli.core.heads.capture import capture
from mhsa_cli.core.heads.match import (
    compare_models,
    head_distance,
    judge_matching,
    match_heads,
    null_costs,
    shared_rows,
)
from mhsa_cli.core.heads.random_baseline import random_weights
from mhsa_cli.core.heads.stream import run_stream
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, build_task, fixed_batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.errors import UsageError
from mhsa_cli.records.claims import LEVEL, Status
from mhsa_cli.records.heads import Untested
from tests.settings import later_wins

SMALL = ["d_model=8", "n_heads=2", "n_layers=1"]
SIZES = ["vocab_size=11", "seq_len=6", "d_model=20", "n_heads=5", "n_layers=2", "residual=true", "norm=layernorm"]


def built(*settings: str) -> tuple[TransformerLM, Task]:
    config = load_config(None, later_wins("task.name=copy", *SIZES, *settings))
    task = build_task(config.task)
    return build_model(config, task), task


def sharpened(*settings: str, scale: float = 6) -> tuple[TransformerLM, Task]:
    """A model whose heads attend to different keys, unlike untrained ones."""
    model, task = built(*settings)
    with torch.no_grad():
        for attn in model.attention:
            attn.qkv_proj.weight *= scale
    return model, task


def random_maps(n: int, B: int, T: int, seed: int) -> Tensor:
    scores = 3 * torch.randn(n, B, T, T, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf).softmax(-1)


def test_a_distance_by_hand() -> None:
    # One query on two keys: (1, 0) against (1/2, 1/2). The mixture is (3/4, 1/4).
    half = (1 * math.log(1 / 0.75) + 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)) / 2
    first = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])
    second = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]]])
    assert head_distance(first, second).item() == pytest.approx(half / math.log(2), abs=1e-12)
    assert half / math.log(2) == pytest.approx(0.311278, abs=1e-6)


def test_equal_is_zero_disjoint_is_one_and_the_first_query_does_not_count() -> None:
    own, first_key = torch.eye(5).expand(1, 3, 5, 5), torch.eye(5)[0].expand(1, 3, 5, 5)
    assert head_distance(own, own).tolist() == [[0.0]]
    assert head_distance(own, first_key).item() == pytest.approx(1.0, abs=1e-12)
    other = own.clone()
    other[:, :, 0, 0] = 0.5
    assert head_distance(own, other).item() == 0
    other[:, 1, 3] = torch.eye(5)[0]  # one of 3 x 4 queries
    assert head_distance(own, other).item() == pytest.approx(1 / 12, abs=1e-12)
    ahead = own.clone()
    ahead[:, 1, 0] = torch.eye(5)[4]  # without a mask the first query has a choice: one of 3 x 5
    assert head_distance(own, ahead).item() == pytest.approx(1 / 15, abs=1e-12)


def test_distances_are_symmetric_and_those_of_scipy() -> None:
    from scipy.spatial.distance import jensenshannon  # as in test_statistics.py

    first, second = random_maps(3, 4, 7, 1), random_maps(5, 4, 7, 2)
    found = head_distance(first, second)
    assert found.shape == (3, 5) and torch.allclose(found, head_distance(second, first).T, atol=1e-12)
    assert head_distance(first, first).diagonal().tolist() == [0.0] * 3
    for i, j in itertools.product(range(3), range(5)):
        rows = jensenshannon(first[i, :, 1:], second[j, :, 1:], base=2, axis=-1) ** 2
        assert float(found[i, j]) == pytest.approx(rows.mean(), abs=1e-12)


@pytest.mark.parametrize("chunk", [1, 90, 10**6])
def test_chunks_change_nothing(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = random_maps(3, 4, 7, 1), random_maps(2, 4, 7, 2)
    whole = head_distance(first, second)
    monkeypatch.setattr(match, "CHUNK", chunk)
    assert torch.allclose(head_distance(first, second), whole, atol=1e-12)


def test_maps_of_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="same rows"):
        head_distance(random_maps(2, 4, 7, 1), random_maps(2, 3, 7, 1))
    with pytest.raises(ValueError, match="2 or more keys"):
        head_distance(torch.ones(2, 3, 1, 1), torch.ones(2, 3, 1, 1))


def layers(maps: Tensor, *heads: int) -> list[Tensor]:
    """Split maps (n, B, T, T) into layers of so many heads, as `capture` gives them."""
    return [part.transpose(0, 1) for part in maps.split(heads)]


@pytest.mark.parametrize("sizes", [((2, 2), (4,)), ((3,), (2, 3)), ((1, 4), (2,))])
def test_the_pairing_is_the_cheapest_of_all(sizes: tuple[tuple[int, ...], ...]) -> None:
    n1, n2 = (sum(heads) for heads in sizes)
    first, second = random_maps(n1, 2, 6, 3), random_maps(n2, 2, 6, 4)
    cost = head_distance(first, second)
    cost = cost if n1 <= n2 else cost.T
    small = min(n1, n2)
    all_costs = [
        sum(float(cost[i, j]) for i, j in enumerate(chosen)) / small
        for chosen in itertools.permutations(range(max(n1, n2)), small)
    ]
    found = match_heads(layers(first, *sizes[0]), layers(second, *sizes[1]), "made up")
    assert found.cost == pytest.approx(min(all_costs), abs=1e-12)
    assert found.cost == pytest.approx(sum(pair[2] for pair in found.pairs) / len(found.pairs))
    assert len(found.pairs) == small and found.inputs == "made up"
    for place, heads in enumerate(sizes):
        left = (found.unmatched_first, found.unmatched_second)[place]
        everyone = [(layer, head) for layer, n in enumerate(heads) for head in range(n)]
        assert sorted([*(pair[place] for pair in found.pairs), *left]) == everyone
        assert len(left) == sum(heads) - small


def permuted(model: TransformerLM, task: Task, orders: list[list[int]]) -> TransformerLM:
    """A copy of a model with each layer's heads in another order; it computes the same."""
    twin, _ = built()
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():
        for attn, order in zip(twin.attention, orders, strict=True):
            d, D = attn.d_head, attn.out_proj.weight.size(0)
            columns = torch.cat([torch.arange(h * d, (h + 1) * d) for h in order])
            rows = torch.cat([columns + part * D for part in range(3)])
            attn.qkv_proj.weight.copy_(attn.qkv_proj.weight[rows].clone())
            attn.qkv_proj.bias.copy_(attn.qkv_proj.bias[rows].clone())
            attn.out_proj.weight.copy_(attn.out_proj.weight[:, columns].clone())
    ids = fixed_batch(task, 3, "probe", 4).inputs
    assert torch.allclose(model(ids), twin(ids), atol=1e-5)
    return twin


def test_heads_in_another_order_are_found_again() -> None:
    model, task = sharpened()
    orders = [[3, 0, 4, 1, 2], [1, 2, 0, 4, 3]]
    twin = permuted(model, task, orders)
    found = compare_models(model, task, twin, task, seed=3)
    expected = {((layer, order[new]), (layer, new)) for layer, order in enumerate(orders) for new in range(5)}
    assert {(one, two) for one, two, _ in found.pairs} == expected
    assert found.cost == pytest.approx(0, abs=1e-9) and found.status is Status.SHOWN
    assert (found.p_value, found.draws, found.untested) == (1 / 40, 39, None)
    assert found.unmatched_first == found.unmatched_second == []


def test_comparing_changes_neither_weights_nor_mode() -> None:
    model, task = built("model.dropout=0.4")
    other, _ = built("model.dropout=0.4", "train.seed=9")
    model.train()
    before = [weights_sha256(m) for m in (model, other)]
    found = [compare_models(model, task, other, task, 1) for _ in range(2)]
    assert found[0] == found[1] and model.training
    assert [weights_sha256(m) for m in (model, other)] == before


def test_other_numbers_of_heads_leave_some_over() -> None:
    model, task = built()
    few, _ = built("n_heads=2", "n_layers=1")
    found = compare_models(few, task, model, task, 1)
    assert len(found.pairs) == 2 and found.unmatched_first == [] and len(found.unmatched_second) == 8


def test_untrained_heads_are_no_more_alike_than_random_ones() -> None:
    """The level of the test: at most 5% of pairs of models that have learned nothing, here with wide weights."""
    p_values: list[float] = []
    for seed in range(40):
        pair = [sharpened(*SMALL, f"train.seed={2 * seed + place}", scale=9) for place in (0, 1)]
        found = compare_models(*pair[0], *pair[1], seed)
        assert found.p_value is not None
        p_values.append(found.p_value)
    assert sum(p <= LEVEL for p in p_values) <= LEVEL * len(p_values)
    assert sum(p > 0.5 for p in p_values) > len(p_values) / 2  # the larger of two uniform ones: 3 of 4


@pytest.mark.parametrize("settings", [["attention=uniform"], ["n_layers=1", "positions=alibi"]])
def test_heads_that_attend_alike_whatever_is_drawn_show_nothing(settings: list[str]) -> None:
    model, task = built(*settings)
    with torch.no_grad():
        for attn in model.attention:
            attn.qkv_proj.weight *= 0  # alibi alone decides
            if attn.qkv_proj.bias is not None:
                attn.qkv_proj.bias *= 0
    found = compare_models(model, task, model, task, 1)
    assert (found.status, found.cost, found.null_cost, found.p_value) == (Status.NOT_SHOWN, 0, 0, 1)


def test_both_runs_must_differ_from_random_heads() -> None:
    """Uniform heads match focused ones as well as random ones of theirs do, though focused random heads cost more."""
    focused, task = sharpened()
    uniform, _ = built("attention=uniform")
    for pair in ((focused, uniform), (uniform, focused)):
        found = compare_models(pair[0], task, pair[1], task, 1)
        assert (found.status, found.p_value) == (Status.NOT_SHOWN, 1)
        assert found.null_cost is not None and found.null_cost > 0


def test_a_p_value_by_hand() -> None:
    """19 and 39 costs: the first must be below all of them, the second may reach one. The harder null decides."""
    matching = match_heads(layers(random_maps(2, 2, 6, 3), 2), layers(random_maps(2, 2, 6, 4), 2), "made up")
    matching = replace(matching, cost=0.3)
    assert (matching.status, matching.p_value, matching.null_cost) == (Status.NOT_MEASURED, None, None)
    high, one, two = [0.9] * 39, [0.2, *[0.8] * 38], [0.3, 0.1, *[0.7] * 37]
    for nulls, p, null_cost, status in [
        ([high, one], 2 / 40, 0.8, Status.SHOWN),
        ([one, two], 3 / 40, 0.3, Status.NOT_SHOWN),
        ([high[:19], high[:19]], 1 / 20, 0.9, Status.SHOWN),
        ([high[:19], one[:19]], 2 / 20, 0.2, Status.NOT_SHOWN),
        ([high, [0.3049] * 39], 1 / 40, 0.3049, Status.NOT_SHOWN),  # lower, but by less than 0.005
    ]:
        for both in (nulls, nulls[::-1]):
            found = judge_matching(matching, both)
            assert (found.p_value, found.null_cost, found.status) == (pytest.approx(p), null_cost, status)
            assert found.draws == len(nulls[0]) and found.untested is None


@pytest.mark.parametrize(("at_once", "parts"), [(1, [1, 1, 1]), (2, [2, 1]), (10, [3])])
def test_null_costs_are_those_of_each_draw_matched_alone(
    at_once: int, parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, task = sharpened("n_heads=2")
    rows, own = fixed_batch(task, 1, "probe", 8).inputs, random_maps(3, 8, 6, 1)
    monkeypatch.setattr(match, "AT_ONCE", at_once * 4 * 8 * 6 * 6)
    found = null_costs(own, model, rows, 3, 5, "a stream")
    generators, wanted = [stream_generator(5, "a stream", layer) for layer in range(2)], []
    for times in parts:
        random = random_weights(model, run_stream(model, rows).inputs, times, generators)
        wanted += [match_heads(layers(own, 3), [w[draw] for w in random], "").cost for draw in range(times)]
    assert found == pytest.approx(wanted, abs=1e-12) and len(set(found)) == 3


def test_random_heads_that_are_not_finite_are_no_null(monkeypatch: pytest.MonkeyPatch) -> None:
    model, task = built()
    original = match.random_weights
    monkeypatch.setattr(match, "random_weights", lambda *given: [w * math.nan for w in original(*given)])
    found = compare_models(model, task, model, task, 1)
    assert (found.untested, found.status, found.draws) == (Untested.NOT_FINITE, Status.NOT_MEASURED, 0)
    assert found.null_cost is found.p_value is None and found.cost == 0


def test_what_cannot_be_compared_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model, task = built()
    other, other_task = built("vocab_size=13")
    with pytest.raises(UsageError, match="vocabularies differ .11 and 13 ids"):
        compare_models(model, task, other, other_task, 1)
    short, short_task = built("task.name=shift", "seq_len=1")
    with pytest.raises(UsageError, match="one token"):
        compare_models(model, task, short, short_task, 1)
    broken, _ = built()
    with torch.no_grad():
        broken.blocks[1].attn.qkv_proj.weight[0, 0] = math.nan  # type: ignore[union-attr, operator]
    with pytest.raises(UsageError, match="of the second run are not finite"):
        compare_models(model, task, broken, task, 1)
    monkeypatch.setattr(match, "MAX_MAP_CELLS", 10 * 6 * 6 - 1)
    with pytest.raises(UsageError, match="10 heads on 6 x 6 tokens are too large"):
        compare_models(model, task, model, task, 1)


@pytest.mark.parametrize(
    ("limit", "rows", "draws"),
    [
        ({}, 32, 39),
        ({"ALL_MAP_CELLS": 7 * 360}, 7, 39),
        ({"MAX_WORK": 79 * 5 * 3600 + 1}, 5, 39),
        ({"MAX_WORK": 79 * 4 * 3600 - 1}, 8, 19),
        ({"MAX_WORK": 39 * 4 * 3600 - 1}, 32, 0),
        ({"ALL_MAP_CELLS": 3 * 360}, 3, 0),
        ({"MAX_WORK": 5 * 3600 + 1}, 5, 0),
        ({"MAX_WORK": 1}, 1, 0),
    ],
)
def test_fewer_rows_and_draws_are_taken_where_rows_are_long(
    limit: dict[str, int], rows: int, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limit.items():
        monkeypatch.setattr(match, name, value)
    model, task = built()
    found = compare_models(model, task, model, task, 1)
    assert found.inputs == f"{rows} row{'s' * (rows > 1)} of copy, 6 tokens each"
    probe = fixed_batch(task, 1, "probe", rows).inputs
    assert found.pairs == match_heads(capture(model, probe), capture(model, probe), "").pairs
    assert found.draws == draws and found.untested == (None if draws else Untested.SIZE)
    assert (found.status is Status.NOT_MEASURED) == (draws == 0)


def test_the_shared_rows_and_what_is_said_of_them(tmp_path: Path) -> None:
    _, copy = built()
    _, longer = built("seq_len=10")
    for pair in ((copy, longer), (longer, copy)):
        rows, said = shared_rows(*pair, 1, 8)
        assert torch.equal(rows, fixed_batch(copy, 1, "probe", 8).inputs)
        assert said == "8 rows of copy, 6 tokens each; one run was trained on longer rows of 10 tokens"
    _, reverse = built("task.name=reverse")
    rows, said = shared_rows(copy, reverse, 1, 50)
    assert rows.shape == (50, 6) and set(rows.flatten().tolist()) == set(range(11))
    assert "50 rows of 6 random ids, because copy and reverse have no rows in common" in said
    assert torch.equal(rows, shared_rows(copy, reverse, 1, 50)[0])
    _, varying = built("min_length=2")
    assert "the ids of the two copy tasks" in shared_rows(copy, varying, 1, 2)[1]


def test_texts_of_the_same_characters_share_rows(tmp_path: Path) -> None:
    texts = []
    for name, text in (("a", "abca" * 40), ("b", "cbba" * 40), ("x", "xyzz" * 40)):
        (tmp_path / name).write_text(text)
        texts.append(
            build_task(load_config(None, ["task.name=text", f"task.path={tmp_path / name}", "seq_len=5"]).task)
        )
    assert "rows of text" in shared_rows(texts[0], texts[1], 1, 2)[1]
    assert "random ids" in shared_rows(texts[0], texts[2], 1, 2)[1]
