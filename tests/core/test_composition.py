"""Composition of heads: dense matrices, hand-built heads, and its limit on models of random directions."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mhsa_cli.core.heads.circuits import circuits
from mhsa_cli.core.heads.composition import (
    composition_limit,
    compositions,
    layers_of,
    overlaps,
    rarely_exceeded,
    rotations,
)
from mhsa_cli.core.model.transformer import TransformerLM
from tests.core.noise import Noise, small


@pytest.mark.parametrize("d_head", [None, 2, 23])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
@torch.no_grad()
def test_composition_is_that_of_dense_matrices(n_kv_heads: int, d_head: int | None) -> None:
    model = small(3, n_layers=3, residual=True, d_model=18, n_heads=6, n_kv_heads=n_kv_heads, d_head=d_head).double()
    d = d_head or 3
    queries, groups = 6 * d, d * n_kv_heads

    def dense(layer: int, h: int) -> tuple[Tensor, Tensor]:
        W, out = model.attention[layer].qkv_proj.weight, model.attention[layer].out_proj.weight
        own, group = slice(d * h, d * h + d), {1: [0] * 6, 2: [0, 0, 0, 1, 1, 1], 6: range(6)}[n_kv_heads][h]
        shared = slice(d * group, d * group + d)
        W_Q, W_K, W_V = W[:queries][own].T, W[queries : queries + groups][shared].T, W[queries + groups :][shared].T
        return W_Q @ W_K.T, W_V @ out[:, own].T

    found = list(compositions(model))
    assert len(found) == len({(pair.writer, pair.reader) for pair in found}) == 3 * 36
    for pair in found:
        assert pair.writer[0] < pair.reader[0]
        (_, written), (scored, read) = dense(*pair.writer), dense(*pair.reader)
        for figure, matrix in ((pair.queries, scored), (pair.keys, scored.T), (pair.values, read)):
            overlap = float((written @ matrix).norm() / written.norm() / matrix.norm())
            assert figure == pytest.approx(overlap - 1 / math.sqrt(18), abs=1e-9)


@torch.no_grad()
def test_a_reader_of_what_is_written_scores_high_and_one_of_the_rest_below_chance() -> None:
    model = small(2, n_layers=2, residual=True).double()
    first, second = model.attention
    first.out_proj.weight.zero_()[:4] = torch.eye(4).repeat(1, 3)  # every head of layer 0 writes features 0..3
    first.qkv_proj.weight[24:] = torch.eye(12)
    W = second.qkv_proj.weight
    W[0:12] = torch.eye(12)[:4].repeat(3, 1)  # queries read exactly these
    W[12:24] = torch.eye(12)[4:8].repeat(3, 1)  # keys read others
    limit = composition_limit(model, torch.Generator().manual_seed(0))
    for pair in compositions(model):
        assert pair.queries == pytest.approx(0.5 - 1 / math.sqrt(12)) and limit is not None and pair.queries > limit
        assert pair.keys == pytest.approx(-1 / math.sqrt(12)) and pair.values < limit  # 1 / sqrt(4 equal directions)
    W[24:28] = 0  # head 0 has no values: its pairs are left out, and it is said
    found = circuits(model.float(), Noise(), 0, 0)
    assert {pair.reader for pair in found.compositions} == {(1, 1), (1, 2)} and found.composition_limit is not None
    assert ("pairs without composition", {"missing": 3, "pairs": 9}) in [(n.predicate, n.evidence) for n in found.notes]


def test_rotations_are_drawn_uniformly() -> None:
    R = torch.cat(list(rotations(7, 400, torch.Generator().manual_seed(1))))
    assert torch.allclose(R @ R.transpose(1, 2), torch.eye(7).double(), atol=1e-12) and len(R) == 400
    traces = R.diagonal(dim1=1, dim2=2).sum(1)  # of uniform ones: mean 0, variance 1
    assert abs(float(traces.mean())) < 0.15 and 0.8 < float(traces.var()) < 1.2


@torch.no_grad()
def test_the_mean_square_over_rotations_is_that_of_random_directions() -> None:
    model = small(3, n_layers=2, residual=True, d_model=18, n_heads=6, n_kv_heads=2).double()
    early, late = layers_of(model)
    R = torch.cat(list(rotations(18, 3000, torch.Generator().manual_seed(1))))
    assert overlaps(R @ early.written, late).square().mean(0) == pytest.approx(torch.full((3, 6, 6), 1 / 18), rel=0.1)


def narrow(model: TransformerLM) -> None:
    """Leave every head one direction to read and to write, as in training: then large scores are likelier."""
    for attn in model.attention:
        for weight in (attn.qkv_proj.weight, attn.out_proj.weight.t()):
            weight.unflatten(0, (-1, attn.d_head))[:, 1:] *= 0.01


@pytest.mark.parametrize("change", [None, narrow])
@torch.no_grad()
def test_few_models_of_random_directions_have_a_score_above_their_limit(
    change: Callable[[TransformerLM], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mhsa_cli.core.heads.composition.DRAWS", (19,))
    above = nearly = 0
    for seed in range(60):
        model = small(seed, n_layers=3, residual=True, d_model=24).double()
        if change is not None:
            change(model)
        limit = composition_limit(model, torch.Generator().manual_seed(seed))
        largest = max(max(pair.queries, pair.keys, pair.values) for pair in compositions(model))
        assert limit is not None
        above += largest > limit
        nearly += largest > limit * 0.75
    assert 0 < above <= 7 and nearly > 10  # of 60; wanted are 3


def test_the_limit_is_of_a_rank_that_one_more_draw_exceeds_as_often() -> None:
    drawn = [float(n) for n in range(99, 0, -1)]
    assert rarely_exceeded(drawn, 0.05) == 95 and rarely_exceeded(drawn[:19], 0.05) == 99
    assert rarely_exceeded(drawn, 0.01) == 99 and rarely_exceeded(drawn[:5], 0.01) == 99  # too few: the largest
    assert rarely_exceeded([*drawn, 100.0], 0.05) == 96 and rarely_exceeded([], 0.01) is None


def test_what_is_too_much_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mhsa_cli.core.heads.composition.MAX_PRODUCTS", 1000)
    found = circuits(small(n_layers=2, residual=True), Noise(), 0, 0)
    assert len(found.compositions) == 9 and found.composition_limit is None
    assert found.null_top1 is None and found.null_copying is None
    assert "composition not compared" in [note.predicate for note in found.notes]
    monkeypatch.setattr("mhsa_cli.core.heads.circuits.MAX_PAIRS", 8)
    found = circuits(small(n_layers=2, residual=True), Noise(), 0, 0)
    assert not found.compositions
    assert ("too many pairs of heads", {"pairs": 9, "limit": 8}) in [(n.predicate, n.evidence) for n in found.notes]
