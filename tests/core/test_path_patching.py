"""Path patching: the sum over all writers is the whole input, in every form; by hand; the null; what is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from mhsa_cli.core.heads import path_patching
from mhsa_cli.core.heads.capture import run_with_activations
from mhsa_cli.core.heads.path_patching import (
    PARTS,
    Change,
    Pairs,
    Patcher,
    activation_patch,
    draw_pairs,
    path_error,
    path_patch,
    writing_basis,
)
from mhsa_cli.core.heads.stream import run_stream, writers, written
from mhsa_cli.core.model.attention import share_heads
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import IGNORE, TASKS, Task
from mhsa_cli.errors import UsageError
from mhsa_cli.records.heads import EMBEDDING, Mlp, Part, Path, PathEffect, Together
from mhsa_cli.text import Head
from tests.core.forms import EVERY, Form, tokens
from tests.core.forms import B as ROWS
from tests.core.forms import T as TOKENS
from tests.core.handmade import LOUD, handmade, induction
from tests.core.noise import Noise, small
from tests.core.reference import acted, worst


def drawn_pairs(seed: int = 1) -> Pairs:
    """Random clean and corrupted rows whose numbers of scored places differ."""
    targets = tokens(ROWS, TOKENS, seed=seed + 5).masked_fill(tokens(ROWS, TOKENS, seed=seed + 6) < 9, IGNORE)
    assert len(set((targets != IGNORE).sum(1).tolist())) > 1
    return Pairs(tokens(ROWS, TOKENS, seed=seed), tokens(ROWS, TOKENS, seed=seed + 1), targets)


def row_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum the loss of each row."""
    nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return nats.view(targets.shape).sum(1).double()


@torch.no_grad()
def walked(model: TransformerLM, pairs: Pairs, reader: Head | None, part: Part | None, x: Tensor) -> Tensor:
    """Compute the row losses where a reader's part is computed from x (B, T, D), the other heads being clean."""
    if reader is None:
        return row_losses(model.lm_head(model.final_norm(x)), pairs.targets)
    clean, attn, pos = run_with_activations(model, pairs.clean), model.attention[reader.layer], model.pos[:TOKENS]
    norm = model.blocks[reader.layer].attn_norm
    own = [share_heads(t, attn.n_heads) for t in attn.project(norm(inputs(model, pairs.clean, reader.layer)), pos)]
    other = [share_heads(t, attn.n_heads) for t in attn.project(norm(x), pos)]
    q, k, v = (b if one == part else a for one, a, b in zip(PARTS, own, other, strict=True))
    z = (attn.weights(q, k, None, pos) @ v)[:, reader.head]

    def act(layer: int, A: Tensor, v: Tensor) -> Tensor:
        kept = clean.outputs[layer].clone()
        if layer == reader.layer:
            kept[:, reader.head] = z
        return kept

    return row_losses(acted(model, pairs.clean, act), pairs.targets)


@torch.no_grad()
def inputs(model: TransformerLM, ids: Tensor, layer: int) -> Tensor:
    """Compute the input (B, T, D) of a block; that of the final norm after the last."""
    pos = model.pos[: ids.size(1)]
    x = model.embed(ids, pos)
    for block in model.blocks[:layer]:
        x, _ = block(x, pos)
    return x


def paths(model: TransformerLM) -> Iterator[tuple[Head | None, Part | None]]:
    """List what can be read: every part of a head of each layer, and the logits."""
    yield None, None
    for layer in range(len(model.blocks)):
        for part in PARTS:
            if path_error(model, Path(writers(model, layer)[0], Head(layer, 1), part)) is None:
                yield Head(layer, 1), part


MORE = [
    Form("learned", "softmax", 4, 3),
    Form("rope", "window", 2, 3),
]


@pytest.mark.parametrize("form", [*EVERY[::5], *EVERY[-3:], *MORE], ids=str)
def test_all_writers_at_once_are_the_whole_corrupted_input(form: Form) -> None:
    model, pairs = form.model(), drawn_pairs()
    patcher, told = Patcher(model, pairs), 0
    for reader, part in paths(model):
        layer = len(model.blocks) if reader is None else reader.layer
        whole = Path(Together(tuple(writers(model, layer))), reader, part)
        change = written(model, patcher.corrupted, whole.writer) - written(model, patcher.clean, whole.writer)
        found = patcher.patched_rows(whole, Change(change, torch.eye(change.size(-1)).unsqueeze(0)))
        wanted = walked(model, pairs, reader, part, inputs(model, pairs.corrupted, layer))
        assert worst(found[0], wanted) < 2e-4
        told += float((wanted - patcher.clean_rows).abs().max()) > 1e-2
    assert told > 0  # or nothing was shown


@pytest.mark.parametrize("form", [*EVERY[1::8], *MORE], ids=str)
def test_what_is_written_adds_up_to_every_input(form: Form) -> None:
    model, ids = form.model(), tokens(ROWS, TOKENS)
    stream = run_stream(model, ids)
    for layer in range(len(model.blocks) + 1):
        biases = [model.attention[low].out_proj.bias for low in range(layer)][0 if model.blocks[0].residual else -1 :]
        total = torch.stack([written(model, stream, writer) for writer in writers(model, layer)]).sum(0)
        total = total + sum(bias for bias in biases if bias is not None)
        assert worst(total, inputs(model, ids, layer)) < 1e-4 and torch.equal(
            stream.inputs[layer], stream.inputs[layer]
        )


@pytest.mark.parametrize("norm", ["none", "layernorm", "rmsnorm"])
def test_one_writer_is_replaced_and_no_other(norm: str) -> None:
    """Against the definition: the clean input less the writer's clean contribution, plus its corrupted one."""
    model = small(3, n_layers=3, residual=True, norm=norm, d_mlp=7, d_model=18, n_heads=6, n_kv_heads=2)
    model, pairs = model.double(), drawn_pairs()
    clean, corrupted = (run_with_activations(model, ids) for ids in (pairs.clean, pairs.corrupted))
    patcher = Patcher(model, pairs)

    def contribution(outputs: list[Tensor], head: Head) -> Tensor:
        """What the output projection makes of one head's result alone."""
        z, attn = torch.zeros_like(outputs[head.layer]), model.attention[head.layer]
        z[:, head.head] = outputs[head.layer][:, head.head]
        return attn.out_proj(z.transpose(1, 2).flatten(2)) - (0 if attn.out_proj.bias is None else attn.out_proj.bias)

    for writer, reader in ((Head(0, 4), Head(1, 5)), (Head(0, 1), Head(2, 3)), (Head(1, 2), None)):
        layer = 3 if reader is None else reader.layer
        with torch.no_grad():
            x = inputs(model, pairs.clean, layer) + contribution(corrupted.outputs, writer)
            x = x - contribution(clean.outputs, writer)
        for part in PARTS if reader is not None else (None,):
            effect = patcher.effect(Path(writer, reader, part))
            wanted = walked(model, pairs, reader, part, x) - patcher.clean_rows
            counts = (pairs.targets != IGNORE).sum(1).double()
            delta = float(wanted.sum() / counts.sum())
            assert effect.delta_nats == pytest.approx(delta, abs=1e-9) and abs(delta) > 1e-7
            rest = wanted - delta * counts  # a ratio of sums over rows
            se = math.sqrt(float(rest.square().sum()) * ROWS / (ROWS - 1)) / float(counts.sum())
            assert effect.delta_se == pytest.approx(se, abs=1e-9) and effect.n_pairs == ROWS


@torch.no_grad()
def test_several_readers_each_read_the_change_and_not_each_other() -> None:
    model, pairs = small(3, n_layers=3, residual=True, norm="rmsnorm", d_mlp=7).double(), drawn_pairs()
    patcher, clean = Patcher(model, pairs), run_with_activations(model, pairs.clean)
    readers, writer, pos = (Head(1, 0), Head(1, 2), Head(2, 1)), Head(0, 1), model.pos[:TOKENS]
    change = written(model, patcher.corrupted, writer) - written(model, patcher.clean, writer)
    patched = {}
    for reader in readers:
        norm, attn = model.blocks[reader.layer].attn_norm, model.attention[reader.layer]
        x = inputs(model, pairs.clean, reader.layer)
        (q, _, v), (_, k, _) = attn.project(norm(x), pos), attn.project(norm(x + change), pos)
        patched[reader] = (attn.weights(q, k, None, pos) @ v)[:, reader.head]

    def act(layer: int, A: Tensor, v: Tensor) -> Tensor:
        return torch.stack([patched.get(Head(layer, h), clean.outputs[layer][:, h]) for h in range(3)], 1)

    rows = row_losses(acted(model, pairs.clean, act), pairs.targets) - patcher.clean_rows
    effect = patcher.effect(Path(writer, Together(readers), "k"))
    delta = float(rows.sum() / (pairs.targets != IGNORE).sum())
    assert effect.delta_nats == pytest.approx(delta, abs=1e-9) and abs(delta) > 1e-7
    assert str(effect.path) == "L0.H1:L1.H0+L1.H2+L2.H1.k"


# By hand


def hand_made(seed: int = 3) -> tuple[TransformerLM, Task, Pairs]:
    model, task = induction(), TASKS["induction"](vocab_size=13, seq_len=16, min_period=3, max_period=8)
    return model, task, draw_pairs(model, task, seed)


def uniform_loss(rows: list[list[int]], targets: list[list[int]]) -> float:
    """The loss of a head that finds no match: uniform over the keys from 1 to the query, and its tokens are copied."""
    losses = []
    for row, answers in zip(rows, targets, strict=True):
        (q,) = (t for t, answer in enumerate(answers) if answer != IGNORE)
        logits = [LOUD * row[1 : q + 1].count(symbol) / q for symbol in range(13)]
        losses.append(math.log(sum(math.exp(x) for x in logits)) - logits[answers[q]])
    return sum(losses) / len(losses)


def test_the_induction_circuit_by_hand() -> None:
    model, task, pairs = hand_made()
    below, above = Head(0, 0), Head(1, 0)
    asked = [Path(below, above, part) for part in PARTS] + [Path(EMBEDDING, above, part) for part in PARTS]
    asked += [Path(below), Path(above), Path(EMBEDDING)]
    found = {str(effect.path): effect for effect in path_patch(model, task, 3, asked)}
    assert len(pairs.clean) == 64 == found["L0.H0:L1.H0.k"].n_pairs
    lost = uniform_loss(pairs.clean.tolist(), pairs.targets.tolist())  # values are clean
    assert lost > 3 and found["L0.H0:L1.H0.k"].delta_nats == pytest.approx(lost, abs=1e-4)
    whole = uniform_loss(pairs.corrupted.tolist(), pairs.targets.tolist())
    assert found["L1.H0:logits"].delta_nats == pytest.approx(whole, abs=1e-4)
    assert lost != pytest.approx(whole, abs=1e-3)
    for path, effect in found.items():
        if path not in ("L0.H0:L1.H0.k", "L1.H0:logits"):
            assert effect.delta_nats == pytest.approx(0.0, abs=1e-6), path
    assert found["L0.H0:L1.H0.k"].null < 0.1 * lost
    first, second = activation_patch(model, task, 3)
    assert first.address == below and first.delta_nats == pytest.approx(lost, abs=1e-4)
    assert second.address == above and second.delta_nats == pytest.approx(whole, abs=1e-4)


@pytest.mark.parametrize("form", EVERY[2::9], ids=str)
def test_a_head_patched_whole_is_the_model_walked_with_its_corrupted_output(form: Form) -> None:
    model, pairs = form.model(), drawn_pairs()
    corrupted, heads = run_with_activations(model, pairs.corrupted), model.heads[::2]
    patcher, counts = Patcher(model, pairs), float((pairs.targets != IGNORE).sum())
    for effect, head in zip(patcher.activations(heads), heads, strict=True):

        def act(layer: int, A: Tensor, v: Tensor, head: Head = head) -> Tensor:
            z = A @ v
            if layer == head.layer:
                z[:, head.head] = corrupted.outputs[layer][:, head.head]
            return z

        rows = row_losses(acted(model, pairs.clean, act), pairs.targets) - patcher.clean_rows
        assert effect.address == head and effect.delta_nats == pytest.approx(float(rows.sum()) / counts, abs=1e-4)


# The null


@torch.no_grad()
def test_random_writers_change_as_much_at_every_position(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(3, n_layers=2, residual=True, d_mlp=7, d_model=18, n_heads=3)
    patcher, path = Patcher(model, drawn_pairs(), seed=2), Path(Head(0, 1), Head(1, 2), "k")
    change = written(model, patcher.corrupted, path.writer) - written(model, patcher.clean, path.writer)
    coordinates, directions = patcher.change(path.writer)
    assert directions.shape == (65, 6, 18) and worst(coordinates @ directions[0], change) < 1e-5
    sizes, turned = change.norm(dim=-1), coordinates @ directions[1:].unsqueeze(1)
    assert float(sizes.min()) > 0.1 and worst(turned.norm(dim=-1), sizes.expand(64, -1, -1)) < 1e-5
    likeness = torch.nn.functional.cosine_similarity(turned, change.unsqueeze(0), dim=-1)
    assert float(likeness.mean().abs()) < 0.1 and 0.1 < float(likeness.std()) < 0.4  # about 1 / sqrt(18)
    rows = torch.cat([patcher.patched_rows(path, Change(one, torch.eye(18).unsqueeze(0))) for one in turned])
    largest = float(((rows - patcher.clean_rows).sum(1) / patcher.scored.counts.sum()).abs().max())
    effect = patcher.effect(path)
    assert effect.null == pytest.approx(largest, abs=1e-6) and largest > 1e-3
    monkeypatch.setattr(path_patching, "CHUNK", 1)
    again = patcher.effect(path)
    assert (again.delta_nats, again.null) == (
        pytest.approx(effect.delta_nats, abs=1e-6),
        pytest.approx(effect.null, abs=1e-6),
    )
    assert Patcher(model, drawn_pairs(), seed=3).effect(path).null != effect.null


@pytest.mark.parametrize("writer", [Head(0, 1), Mlp(0), EMBEDDING, Together((Head(0, 0), Mlp(0)))], ids=str)
@torch.no_grad()
def test_the_basis_holds_all_that_is_written(writer: Head) -> None:
    model = small(3, n_layers=2, residual=True, d_mlp=5, d_model=18, n_heads=3)
    patcher, basis = Patcher(model, drawn_pairs()), writing_basis(model, writer)
    change = written(model, patcher.corrupted, writer) - written(model, patcher.clean, writer)
    assert worst(change @ basis @ basis.t(), change) < 1e-5 and float(change.abs().max()) > 0.1
    assert worst(basis.t() @ basis, torch.eye(basis.size(1))) < 1e-5


def test_patching_changes_nothing_in_the_model() -> None:
    model, task, _ = hand_made()
    model.train()
    before = [p.clone() for p in model.parameters()]
    asked = [Path(Head(0, 0), Head(1, 0), "k"), Path(Head(1, 0))]
    first = path_patch(model, task, 3, asked)
    assert first == path_patch(model, task, 3, asked) == path_patch(model, task, 3, asked[::-1])[::-1]
    assert first != path_patch(model, task, 4, asked) and model.training
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


def test_a_model_in_training_is_patched_without_dropout() -> None:
    model = small(2, n_layers=2, residual=True, d_mlp=7, dropout=0.5)
    asked = [Path(Head(0, 1), Head(1, 2), "v"), Path(Mlp(1))]
    assert path_patch(model, Noise(), 1, asked) == path_patch(model.train(), Noise(), 1, asked)
    assert activation_patch(model, Noise(), 1) == activation_patch(model.eval(), Noise(), 1)


# What is refused


def test_paths_that_a_model_does_not_have() -> None:
    residual = small(n_layers=2, residual=True)
    bare = small(n_layers=3)
    with_mlp = small(n_layers=2, d_mlp=5)
    frozen = small(n_layers=2, residual=True, attention="uniform")
    wrong: list[tuple[TransformerLM, Path, str]] = [
        (residual, Path(Head(0, 3), Head(1, 0), "k"), path_patching.UNKNOWN),
        (residual, Path(Head(0, 0), Head(2, 0), "k"), path_patching.UNKNOWN),
        (residual, Path(Mlp(0)), path_patching.UNKNOWN),
        (residual, Path(Head(1, 0), Head(1, 1), "q"), path_patching.NOT_ABOVE),
        (residual, Path(Head(0, 0), Together((Head(1, 0), Head(0, 1))), "q"), path_patching.NOT_ABOVE),
        (residual, Path(Together((Head(0, 0), Head(1, 2))), Head(0, 1), "v"), path_patching.NOT_ABOVE),
        (bare, Path(EMBEDDING, Head(1, 0), "v"), path_patching.NO_PATH),
        (bare, Path(Head(0, 1)), path_patching.NO_PATH),
        (bare, Path(Head(0, 1), Head(2, 0), "v"), path_patching.NO_PATH),
        (bare, Path(Head(0, 1), Head(1, 0), "v"), path_patching.NO_PATH),  # only heads read it
        (with_mlp, Path(Head(0, 1), Head(1, 0), "v"), path_patching.NO_PATH),
        (frozen, Path(Head(0, 1), Head(1, 0), "k"), path_patching.NO_SCORES),
    ]
    for model, path, code in wrong:
        error = path_error(model, path)
        assert error is not None and error.code == code and str(path) in error.message and error.hint
        with pytest.raises(UsageError):
            path_patch(model, Noise(), 0, [path])
    right = [
        (residual, Path(EMBEDDING, Head(0, 0), "q")),
        (bare, Path(Head(1, 0), Head(2, 1), "q")),
        (bare, Path(Head(2, 1))),
        (with_mlp, Path(Mlp(0), Head(1, 0), "k")),
        (frozen, Path(Head(0, 1), Head(1, 0), "v")),
    ]
    for model, path in right:
        (effect,) = path_patch(model, Noise(), 0, [path])
        assert isinstance(effect, PathEffect) and abs(effect.delta_nats) > 1e-6


def test_rows_that_cannot_be_patched_from_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one_row = TASKS["repeat"](vocab_size=1, seq_len=5)
    with pytest.raises(UsageError) as refused:
        path_patch(handmade("previous"), one_row, 0, [Path(Head(0, 0))])
    assert refused.value.code == path_patching.NO_PAIRS
    monkeypatch.setattr(path_patching, "MAX_CHANGES", 64 * 12 * TOKENS * 7)
    model = small(n_layers=2, residual=True)
    assert len(draw_pairs(model, Noise(), 0).clean) == 7
    monkeypatch.setattr(path_patching, "MAX_CHANGES", 64 * 12 * TOKENS * 3)
    with pytest.raises(UsageError) as refused:
        draw_pairs(model, Noise(), 0)
    assert refused.value.code == path_patching.TOO_LONG


def test_pairs_are_held_out_rows_with_a_partner() -> None:
    task = TASKS["copy"](vocab_size=12, seq_len=10, min_length=2)
    pairs = draw_pairs(small(n_layers=2, vocab_size=12), task, 5)
    assert len(pairs.clean) == 64 and (pairs.clean != pairs.corrupted).any(1).all()
    assert ((pairs.clean == 11) == (pairs.corrupted == 11)).all()  # of one length
    assert (pairs.targets != IGNORE).any(1).all() and len(pairs.clean.unique(dim=0)) > 60
    assert not torch.equal(pairs.clean, draw_pairs(small(n_layers=2, vocab_size=12), task, 6).clean)
