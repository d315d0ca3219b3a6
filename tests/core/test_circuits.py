"""Circuits: shares against plain loops, copying by two roads, heads built by hand, every form of attention."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mhsa_cli.core.heads.circuits import (
    circuits,
    copying,
    ov_circuits,
    ov_null,
    qk_shares,
    score_parts,
    score_shares,
    top1,
)
from mhsa_cli.core.model.positions import LearnedPositions
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.records.claims import Claim
from tests.core.forms import FORMS, Form, H, V, tokens
from tests.core.noise import Noise, small


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few random rotations where only their presence matters."""
    monkeypatch.setattr("mhsa_cli.core.heads.composition.DRAWS", (19,))


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_has_circuits_or_says_why_not(form: Form) -> None:
    model = form.model()
    found = circuits(model, Noise(), 3, 7)
    assert [(h.layer, h.head) for h in found.heads] == [(layer, h) for layer in range(form.n_layers) for h in range(H)]
    for head in found.heads:
        known = form.n_layers == 1 and form.kind in ("softmax", "window")  # two layers have norms
        assert (head.qk_shares is not None) == known
        assert head.qk_shares is None or abs(sum(head.qk_shares.values()) - 1) < 1e-6
        assert head.ov_top1 is not None and 0 <= head.ov_top1 <= 1
        assert head.ov_copying is not None and -1 <= head.ov_copying <= 1
        assert head.direct_logits is not None and math.isfinite(head.direct_logits)
        assert head.direct_se is not None and head.direct_se > 0
    with torch.no_grad():
        size = float(model(Noise().sample(torch.Generator(), 64).inputs).abs().max())
    assert found.residual_error is not None and 0 < found.residual_error < 1e-5 * max(1, size)
    assert len(found.compositions) == (0 if form.n_layers == 1 else H * H)
    by_scores = [math.isfinite(pair.queries) and math.isfinite(pair.keys) for pair in found.compositions]
    assert all(known == (form.kind in ("softmax", "window")) for known in by_scores)
    assert found.step == 7 and found.inputs.startswith("64 rows of noise")
    assert (found.null_top1 or 0) > 0 and 0 < (found.null_copying or 0) <= 1
    assert (found.composition_limit is None) == (form.n_layers == 1)


def test_looking_changes_nothing_and_gives_the_same_every_time() -> None:
    model = small(dropout=0.4, n_layers=2, residual=True, norm="layernorm")
    model.train()
    before, state = weights_sha256(model), torch.get_rng_state()
    assert circuits(model, Noise(), 1, 0) == circuits(model, Noise(), 1, 0)
    assert model.training and weights_sha256(model) == before and torch.equal(torch.get_rng_state(), state)


LOOPED = {
    "sinusoidal": {"positions": "sinusoidal"},
    "learned, no bias": {"positions": "learned", "bias": False},
    "window, shared keys": {"positions": "learned", "window": 3, "n_kv_heads": 1},
    "alibi": {"positions": "alibi"},
    "rope": {"positions": "rope", "n_kv_heads": 1},
    "none": {"positions": "none"},
}


@pytest.mark.parametrize("settings", LOOPED.values(), ids=LOOPED)
@torch.no_grad()
def test_shares_are_those_of_plain_loops(settings: dict[str, object]) -> None:
    model = small(4, **settings).double()
    ids, attn, d = tokens(2, 6), model.attention[0], 4
    parts: dict[str, list[list[Tensor]]] = {"tok": [[model.tok_emb.weight[i] for i in row] for row in ids]}
    if settings["positions"] in ("sinusoidal", "learned"):
        table = model.positions.pos_emb.weight if settings["positions"] == "learned" else model.positions.table
        parts["pos"] = [[table[t] for t in range(6)] for _ in ids]
    W, b = attn.qkv_proj.weight, attn.qkv_proj.bias
    names = [*parts, *(["bias"] if b is not None else [])]

    def made(name: str, row: int, t: int, start: int) -> Tensor:
        rows = slice(start, start + d)
        vector = b[rows] if name == "bias" else W[rows] @ parts[name][row][t]
        return model.positions.turn(vector.view(1, d), torch.tensor([t]))[0] if "rope" in settings.values() else vector

    shares = score_shares(model, ids)
    for h in range(3):
        group = h // (3 // attn.n_kv_heads)
        terms: dict[str, list[float]] = {f"{i}-{j}": [] for i in names for j in names}
        if settings["positions"] == "alibi":
            terms["distance"] = []
        rows_of = []
        for row in range(2):
            for q in range(6):
                for k in range(max(0, q - 2) if "window" in settings else 0, q + 1):
                    rows_of.append(row * 6 + q)
                    for i in names:
                        for j in names:
                            query, key = made(i, row, q, h * d), made(j, row, k, 12 + group * d)
                            terms[f"{i}-{j}"].append(float(query @ key) / math.sqrt(d))
                    if "distance" in terms:
                        terms["distance"].append(-float(model.positions.slopes[h]) * (q - k))
        centred = {}
        for name, values in terms.items():
            array, seen = np.array(values), np.array(rows_of)
            centred[name] = array - np.array([array[seen == r].mean() for r in range(12)])[seen]
        total = np.sum(list(centred.values()), axis=0)
        if "rope" in settings.values():
            of_distance = by_mean_token(model, ids, h, group)
            centred = {"distance": of_distance, "token-distance": total - of_distance}
        wanted = {name: np.mean(values * total) / np.mean(total**2) for name, values in centred.items()}
        assert shares[h] == pytest.approx(wanted, abs=1e-9)
        assert sum(shares[h].values()) == pytest.approx(1, abs=1e-12)


def by_mean_token(model: TransformerLM, ids: Tensor, h: int, group: int) -> np.ndarray:
    """Average the score of all pairs of these tokens, one by one, at each distance; centred over a query's keys."""
    attn, positions = model.attention[0], model.positions
    D, d, seen = attn.d_model, attn.d_head, ids.flatten()
    qkv = model.tok_emb.weight[seen] @ attn.qkv_proj.weight.T + attn.qkv_proj.bias
    query, key = qkv[:, h * d : (h + 1) * d], qkv[:, D + group * d : D + (group + 1) * d]
    means = []
    for distance in range(ids.size(1)):
        turned = [
            float(q @ positions.turn(k.view(1, d), torch.tensor([0]))[0])
            for q in positions.turn(query.view(-1, 1, d), torch.tensor([distance])).flatten(1)
            for k in key
        ]
        means.append(np.mean(turned) / math.sqrt(d))
    rows = [np.array(means[: q + 1][::-1]) for q in range(ids.size(1))]
    return np.concatenate([row - row.mean() for row in rows] * len(ids))


@torch.no_grad()
def test_a_rotated_head_of_equal_tokens_is_all_distance_and_one_of_unlike_ones_none() -> None:
    model = small(2, positions="rope", bias=True).double()
    attn, ids = model.attention[0], tokens(4, 7) % (V - 1)
    attn.qkv_proj.weight.zero_()
    attn.qkv_proj.bias[:24] = torch.linspace(-1, 2, 24)  # every token asks and answers alike
    assert [share["distance"] for share in score_shares(model, ids)] == pytest.approx([1.0] * 3)
    model.tok_emb.weight.zero_()[:, 0] = torch.arange(V) % 2 * 2.0 - 1
    attn.qkv_proj.bias.zero_()
    attn.qkv_proj.weight[:24, 0] = torch.linspace(-1, 2, 24)
    even = torch.cat([ids, ids ^ 1])  # as many of one kind as of the other: on average the score is 0
    assert [share["distance"] for share in score_shares(model, even)] == pytest.approx([0.0] * 3, abs=1e-12)


@torch.no_grad()
def test_shared_keys_score_as_if_every_head_had_its_own() -> None:
    shared = small(3, d_model=24, n_heads=6, n_kv_heads=2, positions="sinusoidal", bias=False).double()
    alone = small(3, d_model=24, n_heads=6, positions="sinusoidal", bias=False).double()
    W = shared.attention[0].qkv_proj.weight
    alone.tok_emb.weight.copy_(shared.tok_emb.weight)
    alone.attention[0].qkv_proj.weight[:24] = W[:24]
    alone.attention[0].qkv_proj.weight[24:48] = W[24:32].view(2, 1, 4, 24).expand(2, 3, 4, 24).reshape(24, 24)
    for few, many in zip(score_shares(shared, tokens(3, 8)), score_shares(alone, tokens(3, 8)), strict=True):
        assert few == pytest.approx(many, abs=1e-12) and abs(few["tok-tok"]) > 1e-3 and abs(few["pos-pos"]) > 1e-3
    alone.attention[0].qkv_proj.weight *= 1e90  # the variance is beyond any float: no share of it is known
    assert score_shares(alone, tokens(3, 8)) == [None] * 6


@torch.no_grad()
def test_blocks_of_queries_give_the_same_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = small(2, positions="learned", window=5).double(), tokens(3, 11)
    whole = score_shares(model, ids)
    monkeypatch.setattr("mhsa_cli.core.heads.circuits.BLOCK_CELLS", 3 * 3 * 11 * 4)
    for cut, share in zip(score_shares(model, ids), whole, strict=True):
        assert cut == pytest.approx(share, abs=1e-12)


@torch.no_grad()
def test_a_positional_head_is_all_position_and_a_token_head_all_token() -> None:
    model = small(1, positions="learned").double()
    positions, attn = model.positions, model.attention[0]
    assert isinstance(positions, LearnedPositions)
    model.tok_emb.weight[:, 5:] = 0  # tokens live in features 0..4, positions in the others
    positions.pos_emb.weight[:, :5] = 0
    attn.qkv_proj.weight[0:4, :5] = attn.qkv_proj.weight[12:16, :5] = 0  # head 0 reads positions only
    attn.qkv_proj.weight[4:8, 5:] = attn.qkv_proj.weight[16:20, 5:] = 0  # head 1 tokens only
    attn.qkv_proj.bias[:24] = 0
    attn.qkv_proj.weight[8:12] = 0  # head 2 has no scores at all
    notes: list[Claim] = []
    shares = qk_shares(model, tokens(4, 7), notes)
    assert set(shares) == {(0, 0), (0, 1)}
    assert shares[0, 0]["pos-pos"] == pytest.approx(1, abs=1e-12)
    assert shares[0, 1]["tok-tok"] == pytest.approx(1, abs=1e-12)
    assert [(note.predicate, note.evidence["heads"]) for note in notes] == [
        ("no QK shares of constant scores", ["L0.H2"])
    ]
    queries, keys = score_parts(model, tokens(4, 7))
    assert list(queries) == list(keys) == ["tok", "pos", "bias"]


@pytest.mark.parametrize("settings", [{"positions": "none", "bias": False}, {"positions": "none"}])
@torch.no_grad()
def test_rounding_is_not_taken_for_variance(settings: dict[str, object]) -> None:
    """A row that says one token over and over gives every key the same score."""
    model, notes = small(1, **settings).double(), []
    assert qk_shares(model, tokens(5, 1).expand(5, 9), notes) == {}
    assert notes[0].evidence["heads"] == ["L0.H0", "L0.H1", "L0.H2"]


@torch.no_grad()
def test_a_head_built_to_copy_copies_and_its_negative_does_the_opposite() -> None:
    model = small(3, vocab_size=7, d_model=14, n_heads=2, n_kv_heads=1, bias=False).double()
    attn = model.attention[0]
    model.tok_emb.weight.zero_()[:, :7] = torch.eye(7)
    model.lm_head.weight.zero_()[:, 7:] = torch.eye(7)
    attn.qkv_proj.weight.zero_()[21:, :7] = torch.eye(7)  # the shared values are the tokens themselves
    attn.out_proj.weight.zero_()[7:, :7] = torch.eye(7)  # head 0 writes them to the answer, head 1 takes them away
    attn.out_proj.weight[7:, 7:] = -torch.eye(7)
    assert ov_circuits(model, []) == {(0, 0): (1.0, 1.0), (0, 1): (0.0, -1.0)}
    null = ov_null(model, 1)  # of the same heads, had they read other directions
    assert 0 < null[0] < 0.9 and 0 < null[1] < 0.9
    attn.out_proj.weight[7:, :7] = torch.eye(7).roll(1, 0)  # every token raises the next: eigenvalues cancel
    found = ov_circuits(model, [])[0, 0]
    assert found[0] == 0 and found[1] == pytest.approx(0, abs=1e-12)
    attn.out_proj.weight[7:, :7] = 0  # nothing is written: all logits are equal, none is the largest
    assert ov_circuits(model, [])[0, 0] == (0.0, None)


@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
@torch.no_grad()
def test_copying_has_the_nonzero_eigenvalues_of_the_large_matrix(n_kv_heads: int) -> None:
    model = small(5, d_model=18, n_heads=6, n_kv_heads=n_kv_heads).double()
    W, out = model.attention[0].qkv_proj.weight, model.attention[0].out_proj.weight
    for h, (best, copies) in enumerate(ov_circuits(model, []).values()):
        group = {1: [0] * 6, 2: [0, 0, 0, 1, 1, 1], 6: range(6)}[n_kv_heads][h]
        value = 18 + 3 * n_kv_heads + 3 * group  # first row of the head's values
        large = model.tok_emb.weight @ W[value : value + 3].T @ out[:, 3 * h : 3 * h + 3].T @ model.lm_head.weight.T
        values = torch.linalg.eigvals(large)
        assert copies == pytest.approx(float(values.real.sum() / values.abs().sum()), abs=1e-6)
        assert best == sum(int(row.argmax()) == t for t, row in enumerate(large)) / V


def test_chunks_and_large_vocabularies(monkeypatch: pytest.MonkeyPatch) -> None:
    read, written = torch.randn(2, 17, 5, generator=torch.Generator().manual_seed(2)).double()
    whole = top1(read, written.T + read.T, torch.arange(17))
    both = top1(torch.stack([read, -read]), written.T + read.T, torch.arange(17))  # of several heads at once
    monkeypatch.setattr("mhsa_cli.core.heads.circuits.BLOCK_CELLS", 40)
    assert top1(read, written.T + read.T, torch.arange(17)) == whole == both[0] and 0 < whole < 1 and both[1] < whole
    monkeypatch.setattr("mhsa_cli.core.heads.circuits.TOP1_CELLS", 100)
    found = circuits(small(), Noise(), 0, 0)
    assert ("top-1 of some tokens", {"tokens": 6, "vocab_size": 17}) in [(n.predicate, n.evidence) for n in found.notes]
    assert copying(read * math.nan, written.T).isnan() and top1(read * math.nan, written.T, torch.arange(17)).isnan()
    parts = torch.stack([read, read * math.nan, 3 * read])
    assert copying(parts, written.T).tolist() == pytest.approx(
        [float(copying(read, written.T)), math.nan, float(copying(read, written.T))], nan_ok=True
    )


TINY = {"H=1": ({"n_heads": 1}, {}), "T=1": ({}, {"seq_len": 1, "unscored": 0}), "V=2": ({}, {"vocab_size": 2})}


@pytest.mark.parametrize(("settings", "of_task"), TINY.values(), ids=TINY)
@pytest.mark.parametrize("whole", [False, True])
def test_the_smallest_sizes(settings: dict[str, object], of_task: dict[str, int], whole: bool) -> None:
    task = Noise(**of_task)
    block = {"residual": True, "norm": "layernorm", "d_mlp": 5, "n_layers": 2} if whole else {}
    found = circuits(small(1, task.vocab_size, **settings, **block), task, 0, 0)
    assert all(h.direct_logits is not None and h.ov_top1 is not None for h in found.heads)
    assert all((h.qk_shares is None) == (whole or task.seq_len == 1) for h in found.heads)
    assert found.residual_error is not None and found.residual_error < 1e-4


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_broken_weights_give_no_figures(value: float) -> None:
    model = small(n_layers=2, residual=True)
    with torch.no_grad():
        model.attention[1].qkv_proj.weight[0, 0] = value
    found = circuits(model, Noise(), 0, 4)
    assert len(found.heads) == 6 and not found.compositions and found.residual_error is None
    assert {(h.qk_shares, h.ov_top1, h.ov_copying, h.direct_logits) for h in found.heads} == {(None,) * 4}
    assert [note.predicate for note in found.notes] == ["no circuits"]


def test_half_precision_is_measured_exactly_and_its_rounding_is_told() -> None:
    model = small(2, positions="rope", d_model=18, n_layers=2, residual=True, norm="rmsnorm").bfloat16()
    wide = circuits(small(2, positions="rope", d_model=18, n_layers=2, residual=True, norm="rmsnorm"), Noise(), 0, 0)
    found = circuits(model, Noise(), 0, 0)
    assert found.residual_error is not None and 1e-4 < found.residual_error < 1
    assert found.notes[0].evidence == {"dtype": "bfloat16"}
    for rounded, head in zip(found.heads, wide.heads, strict=True):
        assert rounded.direct_logits == pytest.approx(head.direct_logits, abs=0.1)
    assert next(model.parameters()).dtype == torch.bfloat16


@pytest.mark.parametrize("n_kv_heads", [1, 3])
@torch.no_grad()
def test_untrained_heads_exceed_the_null_of_copying_in_about_one_case_of_a_hundred(n_kv_heads: int) -> None:
    """Untrained weights have random directions already: rotations do not change how their figures are distributed."""
    above, halfway = [0, 0], [0, 0]
    for seed in range(40):
        model = small(seed, d_model=24, n_heads=3, n_kv_heads=n_kv_heads).double()
        null = ov_null(model, seed)
        for figures in ov_circuits(model, []).values():
            for way, figure in enumerate(figures):
                above[way] += figure > null[way]
                halfway[way] += figure > null[way] / 2
    assert max(above) <= 5 and min(halfway) > 3  # of 120 each
