"""Direct logit attribution, against slow computations and hand-built heads."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mhsa_cli.core.heads.circuits import circuits
from mhsa_cli.core.heads.logit_attribution import direct_by_position, direct_layers, direct_logits, row_mean
from mhsa_cli.core.model.transformer import NORMS, TransformerLM
from mhsa_cli.core.tasks import Batch, fixed_batch
from mhsa_cli.core.tasks.base import IGNORE
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
    batch = Noise(unscored=3).sample(torch.Generator().manual_seed(1), 4)
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
        assert figure.mean == pytest.approx(sum(found) / len(found), abs=1e-10)
        assert figure.se == pytest.approx(np.std(np.reshape(found, (4, -1)).mean(1), ddof=1) / 2, abs=1e-10)


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


@pytest.mark.parametrize(
    "settings", [{}, {"n_layers": 2}, {"n_layers": 2, "residual": True, "norm": "rmsnorm"}], ids=str
)
@torch.no_grad()
def test_by_position_the_figures_are_those_of_the_rows_scored_there(settings: dict[str, object]) -> None:
    """Each position alone is the whole measurement on targets that are scored there alone; together their mean."""
    model, batch = small(3, **settings), Noise().sample(torch.Generator().manual_seed(2), 9)
    targets = batch.targets.masked_fill(
        torch.rand(batch.targets.shape, generator=torch.Generator().manual_seed(1)) < 0.4, IGNORE
    )
    targets[:, 4] = IGNORE
    batch = Batch(batch.inputs, targets)
    logits = model(batch.inputs)
    counts, found = direct_by_position(model, batch)
    assert counts == (targets != IGNORE).sum(0).tolist() and counts[:2] == [0, 0] and counts[4] == 0
    whole, _ = direct_logits(model, batch, logits)
    assert found.keys() == whole.keys() and len(found) == 3 * (2 if "residual" in settings else 1)
    for head, figures in found.items():
        total = sum(n * figure for n, figure in zip(counts, figures, strict=True) if figure is not None)
        assert total / sum(counts) == pytest.approx(whole[head].mean, abs=1e-5)
    for t, n in enumerate(counts):
        here = torch.full_like(targets, IGNORE)
        here[:, t] = targets[:, t]
        alone, _ = direct_logits(model, Batch(batch.inputs, here), logits)
        assert [found[head][t] for head in found] == [
            pytest.approx(alone[head].mean, abs=1e-5) if n else None for head in found
        ]
    assert direct_by_position(small(d_mlp=5), batch) == (counts, {})


@torch.no_grad()
def test_the_residual_error_sees_a_wrong_sum() -> None:
    model = small(1, residual=True, norm="layernorm").double()
    batch = Noise().sample(torch.Generator().manual_seed(1), 4)
    logits = model(batch.inputs)
    logits[2, 3, 5] += 0.25
    assert direct_logits(model, batch, logits)[1] == pytest.approx(0.25)


def test_where_nothing_is_direct_it_is_said() -> None:
    through_mlp = circuits(small(d_mlp=5), Noise(), 0, 0)
    assert through_mlp.residual_error is None and {h.direct_logits for h in through_mlp.heads} == {None}
    assert {h.ov_top1 for h in through_mlp.heads} == {None} and {h.ov_copying for h in through_mlp.heads} == {None}
    assert "no direct logits" in [note.predicate for note in through_mlp.notes]
    assert all(h.qk_shares is not None for h in through_mlp.heads)

    stacked = circuits(small(n_layers=2), Noise(), 0, 0)
    assert [h.direct_logits is None for h in stacked.heads] == [True] * 3 + [False] * 3
    assert stacked.residual_error is not None and stacked.residual_error < 1e-5
    assert not stacked.compositions and {h.ov_top1 for h in stacked.heads} == {None}
    assert [note.predicate for note in stacked.notes] == [
        "QK shares of layer 0 only",
        "no OV circuits",
        "direct logits of the last layer only",
        "no composition without residuals",
    ]

    rows = Noise(unscored=9).sample(torch.Generator(), 2)
    assert direct_logits(small(), rows, small()(rows.inputs))[0] == {}
    unscored = circuits(small(), Noise(unscored=9), 0, 0)
    assert {h.direct_logits for h in unscored.heads} == {None} and unscored.residual_error is not None
    assert "no scored token" in [note.predicate for note in unscored.notes]


def test_rows_with_more_scored_tokens_count_for_more() -> None:
    values = torch.tensor([[2.0, 4.0, 99.0], [1.0, 99.0, 99.0], [99.0, 99.0, 99.0]], dtype=torch.float64)
    scored = values < 99
    assert row_mean(values, scored).mean == pytest.approx(7 / 3)
    wanted = math.sqrt(((6 - 14 / 3) ** 2 + (1 - 7 / 3) ** 2 + 0) * 3 / 2) / 3
    assert row_mean(values, scored).se == pytest.approx(wanted) and row_mean(values[:1], scored[:1]).se is None
    values[2, 1] = math.nan  # not scored, not read
    assert row_mean(values, scored).se == pytest.approx(wanted)


@torch.no_grad()
def test_long_rows_are_computed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(4, window=4, positions="alibi").double()
    batch = Noise(seq_len=13).sample(torch.Generator().manual_seed(1), 3)
    logits = model(batch.inputs)
    whole = direct_logits(model, batch, logits)
    monkeypatch.setattr("mhsa_cli.core.heads.stream.BLOCK_CELLS", 3 * 3 * 13 * 5)
    figures, error = direct_logits(model, batch, logits)
    assert error is not None and error < 1e-12
    assert all(figure == pytest.approx(whole[0][head], abs=1e-12) for head, figure in figures.items())
    monkeypatch.setattr("mhsa_cli.core.heads.circuits.PROBE_CELLS", 13 * 17 * 2)  # logits are more than weights here
    found = circuits(small(2), Noise(seq_len=13), 0, 0)
    assert found.inputs.startswith("1 row of noise") and math.isfinite(found.heads[0].direct_logits or math.nan)
    products = 3 * 13 * sum(p.numel() for p in small(2).parameters())
    monkeypatch.setattr("mhsa_cli.core.heads.circuits.PROBE_CELLS", 2**20)
    monkeypatch.setattr("mhsa_cli.core.heads.circuits.PROBE_PRODUCTS", products)
    assert circuits(small(2), Noise(seq_len=13), 0, 0).inputs.startswith("3 rows of noise")
