"""Ablations of a model's heads: by hand, by a second computation, in pieces, and within a budget."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from mhsa_cli.core.heads import causal
from mhsa_cli.core.heads.capture import attend
from mhsa_cli.core.heads.causal import ABLATIONS, REPLACED, Ablator, ratio
from mhsa_cli.core.model.transformer import Block, TransformerLM
from mhsa_cli.core.tasks import IGNORE, Batch
from tests.core.forms import EVERY, Form, tokens
from tests.core.forms import B as ROWS
from tests.core.forms import T as TOKENS
from tests.core.handmade import Attended
from tests.core.noise import Noise, small
from tests.core.reference import acted, array, loop_attention, worst

LENGTH = 6


def batch_of(task: Noise | Attended, n: int = 5, seed: int = 4) -> Batch:
    return task.sample(torch.Generator().manual_seed(seed), n)


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


def given_weights() -> Tensor:
    """Weights (B, H, T, T) of no model, on the keys up to the query."""
    return torch.rand(5, 3, LENGTH, LENGTH, generator=torch.Generator().manual_seed(9)).double().tril()


def given_outputs() -> Tensor:
    """Head outputs (B, H, T, d) of no model."""
    return torch.randn(5, 3, LENGTH, 4, generator=torch.Generator().manual_seed(8)).double()


def replaced(kind: str, A: np.ndarray, v: np.ndarray, head: int | None) -> np.ndarray:
    """Ablate one head, or all, by the definition: A (B, H, T, T), v and the result (B, H, T, d)."""
    given = given_weights().numpy()
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
        elif kind == "pattern":
            z[b, h, q] = sum(given[b, h, q, k] * v[b, h, k] for k in range(q + 1))
        elif kind == "output":
            z[b, h, q] = given_outputs()[b, h, q].numpy()
        else:  # resample: the weights of the row before
            z[b, h, q] = sum(A[(b - 1) % B, h, q, k] * v[b, h, k] for k in range(length))
    return z


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("kind", list(REPLACED))
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
    ablator.patterns, ablator.outputs = [given_weights()], [given_outputs()]
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


@pytest.mark.parametrize("kind", ["uniform", "clean", "given"])
def test_heads_with_given_weights_are_the_model_with_those_weights(kind: str) -> None:
    """In every layer: uniform weights are the uniform ablation, a head's own weights change nothing."""
    model = small(1, n_layers=2, residual=True, n_heads=4, n_kv_heads=2)
    ablator = Ablator(model, batch_of(Noise()))
    B, T = ablator.inputs.shape
    drawn = torch.rand(B, 4, T, T, generator=torch.Generator().manual_seed(2)).tril()
    ways = {"uniform": ablator.uniform, "clean": ablator.clean.weights, "given": [drawn, drawn.flip(0)]}
    ablator.patterns = ways[kind]
    chosen = torch.rand(4, 8, generator=torch.Generator().manual_seed(3)) < 0.5
    found = ablator.logits("pattern", chosen)
    if kind == "uniform":
        assert worst(found, ablator.logits("uniform", chosen)) < 1e-5
    elif kind == "clean":
        assert worst(found, ablator.clean.logits[ablator.scored].expand_as(found)) < 1e-4
    else:
        for flags, logits in zip(chosen, found, strict=True):

            def act(layer: int, A: Tensor, v: Tensor, flags: Tensor = flags) -> Tensor:
                own = flags.split(4)[layer][:, None, None]
                return torch.where(own, ways["given"][layer], A) @ v

            assert worst(logits, acted(model, ablator.inputs, act)[ablator.scored]) < 1e-4


def test_a_ratio_and_its_error_by_hand() -> None:
    """Sums 1 + 2 + 6 and 4 + 0 + 2 over weights 1 + 0 + 2; residuals -2, 2, 0 and 2, 0, -2."""
    rows, weights = torch.tensor([[1.0, 2.0, 6.0], [4.0, 0.0, 2.0]]), torch.tensor([1.0, 0.0, 2.0])
    error = math.sqrt((4 + 4) * 3 / 2) / 3
    assert ratio(rows, weights) == (pytest.approx([3.0, 2.0]), pytest.approx([error, error]))
    assert ratio(rows, -weights) == (pytest.approx([-3.0, -2.0]), pytest.approx([error, error]))
    assert ratio(2.5 * weights.unsqueeze(0), weights) == ([2.5], [0.0])  # nothing but the weights varies
    assert ratio(torch.tensor([[3.0]]), torch.tensor([2.0])) == ([1.5], [0.0])


def test_means_are_over_scored_tokens() -> None:
    ablator = Ablator(small(3), uneven())
    assert ablator.counts.tolist() == [0, 1, 2, 3, 4]
    assert [effect.delta for effect in ablator.means(torch.tensor([[7.0, 1, 2, 3, 4], [0, 5, 0, 0, 0]]).double())] == [
        1.7, 0.5,
    ]  # fmt: skip
    assert ablator.means(3 * ablator.counts.unsqueeze(0)) == [(3.0, 0.0)]
    assert ablator.means(ablator.clean_rows.unsqueeze(0))[0].delta == pytest.approx(ablator.loss, abs=1e-12)


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


def test_variants_of_one_mask_below_share_the_layers_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """All coalitions of three layers of two heads: 4 inputs to the second layer and 16 to the third, not 64 to each."""
    ablator, masks = Ablator(small(n_layers=3, n_heads=2), uneven()), torch.tensor([*product([False, True], repeat=6)])
    alone = torch.cat([ablator.ablated_rows("uniform", mask.unsqueeze(0)) for mask in masks])
    inputs: list[int] = []

    def counted(block: Block, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        inputs.append(len(x))
        return attend(block, x, pos)

    monkeypatch.setattr(causal, "attend", counted)
    shuffled = torch.randperm(64, generator=torch.Generator().manual_seed(3))
    found = ablator.ablated_rows("uniform", masks[shuffled])
    assert inputs == [4, 16] and torch.allclose(found, alone[shuffled], rtol=1e-6)
    assert len({round(float(rows.sum()), 6) for rows in found}) > 50, "the heads change nothing: the test shows nothing"


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


def test_what_exceeds_the_budget_is_not_run() -> None:
    ablator = Ablator(small(1), batch_of(Noise()))
    ablator.budget = 4.5 * ablator.flops
    assert ablator.affordable == 4 and ablator.each("uniform") is not None  # three variants
    assert ablator.each("zero") is None and not ablator.spend(2)
    assert ablator.affordable == 1 and ablator.spend(1) and ablator.affordable == 0
