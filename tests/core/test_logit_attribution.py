"""Direct logit attribution and composition, against slow computations and hand-built heads."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mhsa_cli.core.heads.circuits import LowRank, circuits, compositions, overlap, random_overlap
from mhsa_cli.core.heads.logit_attribution import direct_layers, direct_logits
from mhsa_cli.core.model.transformer import NORMS, TransformerLM
from mhsa_cli.core.tasks import fixed_batch
from mhsa_cli.core.tasks.base import IGNORE, stream_generator
from tests.core.noise import Noise, small


def run_with_hooks(model: TransformerLM, ids: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
    """Give the logits, what went into each out_proj, and what went into the final norm."""
    contexts: list[Tensor] = []
    finals: list[Tensor] = []
    hooks = [attn.out_proj.register_forward_pre_hook(lambda _, x: contexts.append(x[0])) for attn in model.attention]
    hooks.append(model.final_norm.register_forward_pre_hook(lambda _, x: finals.append(x[0])))
    logits = model(ids)
    for hook in hooks:
        hook.remove()
    return logits, contexts, finals[0]


SHAPES = {
    "lesson": {},
    "block": {"residual": True, "n_layers": 2, "d_mlp": 7, "n_kv_heads": 1},
    "bare block": {"residual": True, "n_layers": 2, "bias": False},
    "stacked": {"n_layers": 2},
    "swiglu": {"residual": True, "d_mlp": 7, "mlp": "swiglu"},
}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("settings", SHAPES.values(), ids=SHAPES)
@torch.no_grad()
def test_direct_logits_are_those_of_whole_logits_written_out(norm: str, settings: dict[str, object]) -> None:
    model = small(6, norm=norm, **settings).double()
    batch = Noise(unscored=3).sample(4, torch.Generator().manual_seed(1))
    logits, contexts, x = run_with_hooks(model, batch.inputs)
    figures, error = direct_logits(model, batch, logits)
    assert error is not None and error < 1e-12
    scale, weight = torch.ones(()), getattr(model.final_norm, "weight", torch.ones(()))
    if norm == "layernorm":
        scale = (((x - x.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True) + 1e-5).sqrt()
    if norm == "rmsnorm":
        scale = ((x**2).mean(-1, keepdim=True) + 1e-5).sqrt()
    assert {layer for layer, _ in figures} == set(direct_layers(model))
    for (layer, h), figure in figures.items():
        heads = slice(4 * h, 4 * h + 4)
        part = contexts[layer][..., heads] @ model.attention[layer].out_proj.weight[:, heads].T  # (B, T, D)
        part = part - part.mean(-1, keepdim=True) if norm == "layernorm" else part
        added = (part / scale * weight) @ model.lm_head.weight.T  # (B, T, V)
        found = []
        for b, row in enumerate(batch.targets.tolist()):
            for t, answer in enumerate(row):
                if answer != IGNORE:
                    found.append(float(added[b, t, answer] - added[b, t].mean()))
        assert figure == pytest.approx(sum(found) / len(found), abs=1e-10)


@torch.no_grad()
def test_the_lessons_heads_add_up_to_its_answers() -> None:
    model = small(8, bias=False)
    model.lm_head.bias.zero_()
    found = circuits(model, Noise(), 5, 0)
    assert found.residual_error is not None and found.residual_error < 1e-5
    batch = fixed_batch(Noise(), 5, "probe", 64)
    logits = model(batch.inputs)
    scored = batch.targets != IGNORE
    right = logits.gather(-1, batch.targets.clamp(min=0).unsqueeze(-1)).squeeze(-1) - logits.mean(-1)
    assert sum(h.direct_logits or 0 for h in found.heads) == pytest.approx(float(right[scored].mean()), abs=1e-5)


@torch.no_grad()
def test_the_residual_error_sees_a_wrong_sum() -> None:
    model = small(1, residual=True, norm="layernorm").double()
    batch = Noise().sample(4, torch.Generator().manual_seed(1))
    logits = model(batch.inputs)
    logits[2, 3, 5] += 0.25
    assert direct_logits(model, batch, logits)[1] == pytest.approx(0.25)


def test_where_nothing_is_direct_it_is_said() -> None:
    through_mlp = circuits(small(d_mlp=5), Noise(), 0, 0)
    assert through_mlp.residual_error is None and {h.direct_logits for h in through_mlp.heads} == {None}
    assert {h.ov_top1 for h in through_mlp.heads} == {None} and {h.ov_copying for h in through_mlp.heads} == {None}
    assert any("only through the MLP" in note for note in through_mlp.notes)
    assert all(h.qk_shares is not None for h in through_mlp.heads)

    stacked = circuits(small(n_layers=2), Noise(), 0, 0)
    assert [h.direct_logits is None for h in stacked.heads] == [True] * 3 + [False] * 3
    assert stacked.residual_error is not None and stacked.residual_error < 1e-5
    assert not stacked.compositions and {h.ov_top1 for h in stacked.heads} == {None}
    assert [note.split(":")[0] for note in stacked.notes] == [
        "QK shares are of layer 0 only",
        "No OV circuits",
        "Direct logits are of the last layer only",
        "No composition",
    ]

    rows = Noise(unscored=9).sample(2, torch.Generator())
    assert direct_logits(small(), rows, small()(rows.inputs))[0] == {}
    unscored = circuits(small(), Noise(unscored=9), 0, 0)
    assert {h.direct_logits for h in unscored.heads} == {None} and unscored.residual_error is not None
    assert "No direct logits: these rows have no scored token." in unscored.notes


@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
@torch.no_grad()
def test_composition_is_that_of_dense_matrices(n_kv_heads: int) -> None:
    model = small(3, n_layers=3, residual=True, d_model=18, n_heads=6, n_kv_heads=n_kv_heads).double()
    groups = 3 * n_kv_heads

    def dense(layer: int, h: int) -> tuple[Tensor, Tensor]:
        W, out = model.attention[layer].qkv_proj.weight, model.attention[layer].out_proj.weight
        own, group = slice(3 * h, 3 * h + 3), {1: [0] * 6, 2: [0, 0, 0, 1, 1, 1], 6: range(6)}[n_kv_heads][h]
        shared = slice(3 * group, 3 * group + 3)
        W_Q, W_K, W_V = W[:18][own].T, W[18 : 18 + groups][shared].T, W[18 + groups :][shared].T
        return W_Q @ W_K.T, W_V @ out[:, own].T

    found = list(compositions(model, 11))
    assert len(found) == len({(pair.writer, pair.reader) for pair in found}) == 3 * 36
    chance = set()
    for pair in found:
        assert pair.writer[0] < pair.reader[0]
        (_, written), (scored, read) = dense(*pair.writer), dense(*pair.reader)
        for figure, matrix in ((pair.queries, scored), (pair.keys, scored.T), (pair.values, read)):
            chance.add(round(float((written @ matrix).norm() / written.norm() / matrix.norm()) - figure, 9))
    assert len(chance) == 1 and chance.pop() > 0
    assert found == list(compositions(model, 11)) and found != list(compositions(model, 12))


@torch.no_grad()
def test_a_reader_of_what_is_written_scores_high_and_one_of_the_rest_below_chance() -> None:
    model = small(2, n_layers=2, residual=True).double()
    first, second = model.attention
    first.out_proj.weight.zero_()[:4] = torch.eye(4).repeat(1, 3)  # every head of layer 0 writes features 0..3
    first.qkv_proj.weight[24:] = torch.eye(12)
    W = second.qkv_proj.weight
    W[0:12] = torch.eye(12)[:4].repeat(3, 1)  # queries read exactly these
    W[12:24] = torch.eye(12)[4:8].repeat(3, 1)  # keys read others
    chance = random_overlap(12, 4, stream_generator(0, "composition", 0))
    for pair in compositions(model, 0):
        assert pair.queries == pytest.approx(0.5 - chance) and pair.queries > 0.2  # 1 / sqrt(4 equal directions)
        assert pair.keys == pytest.approx(-chance) and pair.keys < -0.2
    W[24:28] = 0  # head 0 has no values: its pairs are left out, and it is said
    found = circuits(model.float(), Noise(), 0, 0)
    assert {pair.reader for pair in found.compositions} == {(1, 1), (1, 2)}
    assert any(note.startswith("3 of 9 pairs") for note in found.notes)


def test_random_heads_score_chance() -> None:
    drawn = torch.randn(4, 9, 23, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    heads = LowRank(drawn[0], drawn[1]), LowRank(drawn[2], drawn[3])
    mean = random_overlap(23, 5, torch.Generator().manual_seed(1))
    assert float(overlap(*heads).mean()) == pytest.approx(mean, abs=0.02) and 0.1 < mean < 0.5
    one = LowRank(drawn[0, :, :1, :1], drawn[1, :, :1, :1])
    assert overlap(one, one) == pytest.approx(torch.ones(9, 9))  # in one dimension everything is read


def test_too_many_pairs_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mhsa_cli.core.heads.circuits.MAX_PAIRS", 8)
    found = circuits(small(n_layers=2, residual=True), Noise(), 0, 0)
    assert not found.compositions and any("9 pairs of heads exceed the limit of 8" in note for note in found.notes)


@torch.no_grad()
def test_long_rows_are_computed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(4, window=4, positions="alibi").double()
    batch = Noise(seq_len=13).sample(3, torch.Generator().manual_seed(1))
    logits = model(batch.inputs)
    whole = direct_logits(model, batch, logits)
    monkeypatch.setattr("mhsa_cli.core.heads.logit_attribution.BLOCK_CELLS", 3 * 3 * 13 * 5)
    figures, error = direct_logits(model, batch, logits)
    assert error is not None and error < 1e-12 and figures == pytest.approx(whole[0], abs=1e-12)
    monkeypatch.setattr("mhsa_cli.core.heads.circuits.PROBE_CELLS", 13 * 17 * 2)  # logits are more than weights here
    found = circuits(small(2), Noise(seq_len=13), 0, 0)
    assert found.inputs.startswith("1 held-out row of noise") and math.isfinite(
        found.heads[0].direct_logits or math.nan
    )
    products = 3 * 13 * sum(p.numel() for p in small(2).parameters())
    monkeypatch.setattr("mhsa_cli.core.heads.circuits.PROBE_CELLS", 2**20)
    monkeypatch.setattr("mhsa_cli.core.heads.circuits.PROBE_PRODUCTS", products)
    assert circuits(small(2), Noise(seq_len=13), 0, 0).inputs.startswith("3 held-out rows of noise")
