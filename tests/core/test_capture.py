"""Captured weights: capturing changes nothing, and every figure matches its definition."""

from __future__ import annotations

import math

import pytest
import torch

from mhsa_cli.config.load import load_config
from mhsa_cli.core.heads.capture import (
    answer_mass,
    answer_weights,
    capture,
    head_maps,
    read_tokens,
    row_entropy,
    sample_maps,
    weight_blocks,
)
from mhsa_cli.core.model.attention import causal_window
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, build_task
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.errors import UsageError


def copy_model(*more: str) -> tuple[TransformerLM, Task]:
    config = load_config(None, ["task.name=copy", "model.n_layers=2", "model.d_model=24", "model.n_heads=3", *more])
    task = build_task(config.task)
    return build_model(config, task), task


def test_capturing_changes_neither_weights_nor_mode() -> None:
    model, task = copy_model("model.dropout=0.4")
    model.train()
    before = weights_sha256(model)
    first, second = (head_maps(model, task, 1, 0) for _ in range(2))
    assert first == second and model.training and weights_sha256(model) == before


def test_maps_are_causal_distributions_of_every_head() -> None:
    model, task = copy_model()
    maps = head_maps(model, task, 1, 0)
    weights = torch.tensor(maps.weights)
    assert weights.shape == (2, 3, 12, 12)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 3, 12), atol=1e-5)
    assert weights.triu(1).abs().max() == 0
    flat = weights.flatten(0, 1)
    assert all(not torch.equal(flat[i], flat[j]) for i in range(6) for j in range(i))


def test_entropy_is_one_for_uniform_and_zero_for_one_key() -> None:
    uniform = torch.ones(5, 5).tril()
    uniform = uniform / uniform.sum(-1, keepdim=True)
    keys = torch.arange(1, 6)
    assert row_entropy(uniform, keys)[1:].tolist() == pytest.approx([1.0] * 4)
    assert row_entropy(torch.eye(5), keys)[1:].tolist() == [0.0] * 4
    assert row_entropy(uniform[3:], keys[3:]).tolist() == pytest.approx([1.0] * 2)
    assert row_entropy(torch.full((5, 5), 0.2), torch.full((5,), 5)).tolist() == pytest.approx([1.0] * 5)
    half = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0]])
    assert row_entropy(half, keys[:3])[1:].tolist() == pytest.approx([1.0, math.log(2) / math.log(3)])


def test_the_uniform_control_has_entropy_one_and_chance_on_the_source() -> None:
    model, task = copy_model("model.attention=uniform")
    for head in head_maps(model, task, 1, 0).heads:
        assert head.entropy == pytest.approx(1.0, abs=1e-6)
        assert head.answer_weight == pytest.approx(head.answer_uniform, abs=1e-6)


def test_tokens_of_ones_own_have_no_weight_on_a_source() -> None:
    model, task = copy_model()
    shown = head_maps(model, task, 1, 0, torch.tensor([3, 1, 4]))
    assert {(head.answer_weight, head.answer_uniform) for head in shown.heads} == {(None, None)}
    assert all(head.answer_weight for head in head_maps(model, task, 1, 0).heads)


def test_source_mass_by_hand() -> None:
    weights = torch.zeros(2, 1, 3, 3)
    weights[0, 0, 1, 0], weights[0, 0, 2, 1], weights[1, 0, 2, 0] = 0.5, 0.25, 0.75
    source = torch.zeros(2, 3, 3, dtype=torch.bool)
    source[0, 1, 0], source[0, 2, 0], source[0, 2, 1], source[1, 2, 0] = True, True, True, True
    assert answer_mass(weights, source).tolist() == [1.5]
    weights[0, 0, 2, 0], weights[1, 0, 1, 1] = 0.125, 0.5  # a second place of the answer, and a query without one
    assert answer_mass(weights, source).tolist() == [1.625]
    assert answer_mass(weights[:, :, 2:], source[:, 2:]).tolist() == [1.125]


def test_the_weight_on_the_answer_is_that_of_rows_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other computation: whole maps and a loop over queries with an answer; rows may be split in any way."""
    model, task = copy_model("model.window=5", "task.vocab_size=5")
    rows = task.sample(torch.Generator().manual_seed(3), 9).inputs
    source, uniform, mass = task.source(rows), 0.0, torch.zeros(2, 3)
    assert source is not None
    source = source & causal_window(*source.shape[1:], 5)
    queries = source.any(-1).nonzero().tolist()
    for b, q in queries:
        sees = [k for k in range(q + 1) if q - k < 5]
        keys = [k for k in sees if source[b, q, k]]
        uniform += len(keys) / len(sees) / len(queries)
        for layer, weights in enumerate(capture(model, rows[b : b + 1])):
            mass[layer] += weights[0, :, q, keys].sum(-1) / len(queries)
    for cells in (10**6, 1):
        monkeypatch.setattr("mhsa_cli.core.heads.capture.MAX_CELLS", cells)
        found = answer_weights(model, task, rows)
        assert found is not None and all(one is not None and one[1] == pytest.approx(uniform) for one in found)
        assert torch.allclose(torch.stack([one[0] for one in found if one]), mass, atol=1e-6)


@pytest.mark.parametrize("settings", [[], ["positions=rope", "n_kv_heads=1"], ["positions=alibi"], ["window=3"]])
@pytest.mark.parametrize("kind", ["softmax", "linear", "uniform"])
@pytest.mark.parametrize("cells", [1, 300, 10**6])
def test_blocks_of_rows_are_the_rows_of_the_whole(
    settings: list[str], kind: str, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind != "softmax" and settings in (["positions=alibi"], ["window=3"]):
        return
    model, _ = copy_model(f"model.attention={kind}", "model.residual=true", *settings)
    ids = torch.randint(64, (2, 11), generator=torch.Generator().manual_seed(1))
    whole = capture(model, ids)
    monkeypatch.setattr("mhsa_cli.core.heads.capture.BLOCK_CELLS", cells)
    rebuilt = [torch.zeros_like(w) for w in whole]
    for layer, first, block in weight_blocks(model, ids):
        rebuilt[layer][:, :, first : first + block.size(-2), : block.size(-1)] = block
    for mine, theirs in zip(rebuilt, whole, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


def test_a_long_sample_is_pooled_and_its_figures_are_those_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    model, task = copy_model()
    rows = task.sample(torch.Generator().manual_seed(3), 1).inputs[0]
    full, entropy, pool = sample_maps(model, rows)
    assert pool == 1
    monkeypatch.setattr("mhsa_cli.core.heads.capture.MAX_CELLS", 6 * 4 * 4)
    monkeypatch.setattr("mhsa_cli.core.heads.capture.BLOCK_CELLS", 3 * 12 * 4)
    pooled, same, pool = sample_maps(model, rows)
    assert pool == 4 and pooled[0].shape == (3, 3, 3)
    assert float(pooled[1][2, 2, 0]) == pytest.approx(float(full[1][2, 8:12, 0:4].max()))
    assert torch.allclose(torch.stack(same), torch.stack(entropy), atol=1e-6)
    maps = head_maps(model, task, 1, 0)
    assert list(maps.tokens) == ["0", "4", "8"] and maps.note


def test_one_token_has_a_map_and_no_entropy() -> None:
    model, task = copy_model()
    maps = head_maps(model, task, 1, 0, torch.tensor([4]))
    assert maps.weights[1][2] == [[1.0]] and maps.heads[0].entropy is None


def test_the_first_rows_of_a_map_do_not_depend_on_what_follows() -> None:
    model, _ = copy_model()
    ids = torch.randint(64, (1, 12), generator=torch.Generator().manual_seed(1))
    whole, part = capture(model, ids)[1], capture(model, ids[:, :7])[1]
    assert torch.allclose(whole[..., :7, :7], part, atol=1e-6)


def test_tokens_are_read_as_ids_and_symbols() -> None:
    _, task = copy_model()
    assert read_tokens("3, 5 |  9", task, 12).tolist() == [3, 5, 63, 9]
    for text, words in (
        ("", "is empty"),
        ("3 64", r"'64' \(token 2 of 2\)"),
        ("3 x", "'x'"),
        ("-1", "'-1'"),
        ("1 " * 13, "13 tokens exceed max_seq_len=12"),
    ):
        with pytest.raises(UsageError, match=words):
            read_tokens(text, task, 12)


def test_too_many_weights_are_refused_before_they_are_made() -> None:
    model, _ = copy_model()
    with pytest.raises(UsageError, match="1000000000 x 3 x 12 x 12"):
        capture(model, torch.zeros(1, 1, dtype=torch.long).expand(10**9, 12))
