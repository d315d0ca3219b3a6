"""Matching of heads: distances by hand and by another library, pairings by brute force and by construction."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mhsa_cli.config.load import load_config
from mhsa_cli.core.heads import match
from mhsa_cli.core.heads.capture import capture
from mhsa_cli.core.heads.match import compare_models, head_distance, match_heads, shared_rows
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, build_task, fixed_batch
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.errors import UsageError
from tests.settings import later_wins

SIZES = ["vocab_size=11", "seq_len=6", "d_model=20", "n_heads=5", "n_layers=2", "residual=true", "norm=layernorm"]


def built(*settings: str) -> tuple[TransformerLM, Task]:
    config = load_config(None, later_wins("task.name=copy", *SIZES, *settings))
    task = build_task(config.task)
    return build_model(config, task), task


def sharpened(*settings: str) -> tuple[TransformerLM, Task]:
    """A model whose heads attend to different keys, unlike untrained ones."""
    model, task = built(*settings)
    with torch.no_grad():
        for attn in model.attention:
            attn.qkv_proj.weight *= 6
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
    other[:, :, 0] = torch.eye(5)[4]
    assert head_distance(own, other).item() == 0
    other[:, 1, 3] = torch.eye(5)[0]  # one of 3 x 4 queries
    assert head_distance(own, other).item() == pytest.approx(1 / 12, abs=1e-12)


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
def test_the_pairing_is_the_cheapest_of_all_and_random_is_their_mean(sizes: tuple[tuple[int, ...], ...]) -> None:
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
    assert found.random_cost == pytest.approx(sum(all_costs) / len(all_costs), abs=1e-12)
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
    assert found.cost == pytest.approx(0, abs=1e-9) and found.random_cost > 0.01
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
    ("limit", "rows"),
    [({}, 64), ({"ALL_MAP_CELLS": 7 * 360}, 7), ({"MAX_WORK": 5 * 3600 + 1}, 5), ({"MAX_WORK": 1}, 1)],
)
def test_fewer_rows_are_looked_at_where_they_are_long(
    limit: dict[str, int], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limit.items():
        monkeypatch.setattr(match, name, value)
    model, task = built()
    found = compare_models(model, task, model, task, 1)
    assert found.inputs == f"{rows} held-out row{'s' * (rows > 1)} of copy, 6 tokens each"
    probe = fixed_batch(task, 1, "probe", rows).inputs
    assert found == match_heads(capture(model, probe), capture(model, probe), found.inputs)


def test_the_shared_rows_and_what_is_said_of_them(tmp_path: Path) -> None:
    _, copy = built()
    _, longer = built("seq_len=10")
    for pair in ((copy, longer), (longer, copy)):
        rows, said = shared_rows(*pair, 1, 8)
        assert torch.equal(rows, fixed_batch(copy, 1, "probe", 8).inputs)
        assert said == "8 held-out rows of copy, 6 tokens each; one run was trained on longer rows of 10 tokens"
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
    assert "held-out rows of text" in shared_rows(texts[0], texts[1], 1, 2)[1]
    assert "random ids" in shared_rows(texts[0], texts[2], 1, 2)[1]
