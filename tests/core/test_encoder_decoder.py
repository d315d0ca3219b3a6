"""The encoder-decoder: by hand from its parts, and its cross-attention heads measured by two roads."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mhsa_cli.config.estimate import parameters
from mhsa_cli.config.load import load_config, parse
from mhsa_cli.config.problems import ConfigError
from mhsa_cli.config.schema import ModelConfig
from mhsa_cli.core.heads.capture import answer_weights, capture, head_maps, weight_blocks
from mhsa_cli.core.heads.causal import Ablator
from mhsa_cli.core.heads.path_patching import path_patch
from mhsa_cli.core.heads.probe import build_probe
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.heads.stream import run_stream
from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.model.cross_attention import MultiHeadCrossAttention
from mhsa_cli.core.model.generate import generate
from mhsa_cli.core.model.kv_cache import KVCache
from mhsa_cli.core.model.transformer import Block, TransformerLM
from mhsa_cli.core.tasks import IGNORE, Task, build_task
from mhsa_cli.core.training.lockstep import Group, records_of
from mhsa_cli.errors import UsageError
from mhsa_cli.records.heads import LayerRole, Path
from mhsa_cli.records.labels import Role
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.pictures.heatmap import head_maps as picture
from mhsa_cli.runs.heads import maps_from_dict, maps_to_dict
from mhsa_cli.text import Head
from tests.core.forms import tokens
from tests.core.reference import redraw, worst
from tests.settings import later_wins

V, T, S, D, H = 17, 10, 5, 24, 4
CROSS = 5  # the layers are L0, L1 encoder, L2 decoder, L3 cross, L4 decoder, L5 cross


def model(**settings: object) -> TransformerLM:
    given = {"d_model": D, "n_heads": H, "encoder_layers": 2, "n_layers": 2, "residual": True, "norm": "layernorm"}
    config = ModelConfig(**{**given, "d_mlp": 29, **settings})  # type: ignore[arg-type]
    made = TransformerLM(config, vocab_size=V, max_seq_len=T)
    redraw(made, 0)
    return made.double().eval()


def self_attention(block: Block, causal: bool) -> MultiHeadSelfAttention:
    found = MultiHeadSelfAttention(D, H, S, causal=causal, dtype=torch.float64)
    found.load_state_dict(block.attn.state_dict())
    return found


def cross_attention(block: Block) -> MultiHeadCrossAttention:
    found, own = MultiHeadCrossAttention(D, H, dtype=torch.float64), block.attn.state_dict()
    rows = {part: own[f"qkv_proj.{part}"].split([D, 2 * D]) for part in ("weight", "bias")}
    state = {f"{name}.{part}": rows[part][i] for i, name in enumerate(("q_proj", "kv_proj")) for part in rows}
    found.load_state_dict({**state, **{f"out_proj.{part}": own[f"out_proj.{part}"] for part in rows}})
    return found


@torch.no_grad()
def by_hand(made: TransformerLM, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Two sequences, as a textbook has them: the encoder's output, and the logits of separator and answer."""

    def mlp(block: Block, x: Tensor) -> Tensor:
        assert block.mlp is not None and block.mlp_norm is not None
        up, down = block.mlp.up, block.mlp.down
        return x + F.linear(F.gelu(F.linear(block.mlp_norm(x), up.weight, up.bias)), down.weight, down.bias)

    table = made.positions.table  # type: ignore[attr-defined]
    source, answer = (made.tok_emb(part) + table[: part.size(1)] for part in (ids[:, :S], ids[:, S:]))
    for block in made.blocks[:2]:
        source = mlp(block, source + self_attention(block, causal=False)(block.attn_norm(source)))
    for inner, cross in ((made.blocks[2], made.blocks[3]), (made.blocks[4], made.blocks[5])):
        answer = answer + self_attention(inner, causal=True)(inner.attn_norm(answer))
        answer = answer + cross_attention(cross)(cross.attn_norm(answer), cross.attn_norm(source))
        answer = mlp(cross, answer)
    return source, made.lm_head(made.final_norm(answer))


def test_it_is_a_textbooks_encoder_and_decoder() -> None:
    made, ids = model(), tokens(3, T)
    source, logits = by_hand(made, ids)
    assert worst(made(ids)[:, S:], logits.detach()) <= 1e-12
    stream = run_stream(made, ids)
    assert worst(stream.inputs[-1][:, :S], source.detach()) <= 1e-12
    assert worst(made.lm_head(made.final_norm(stream.inputs[-1])), made(ids).detach()) <= 1e-12


def test_who_sees_whom() -> None:
    """Every answer sees the whole source, and of the answer only what is before it."""
    made, ids = model(), tokens(2, T)
    before = made(ids)
    for place in range(T):
        changed = ids.clone()
        changed[:, place] = (changed[:, place] + 1) % V
        moved = (made(changed) != before).any(-1).all(0)[S:]
        assert moved.tolist() == [place < S or place <= q for q in range(S, T)], place


@pytest.mark.parametrize("positions", ["sinusoidal", "rope", "alibi", "learned", "none"])
@pytest.mark.parametrize("kind", ["softmax", "uniform"])
def test_maps_are_the_blocks_of_its_parts(positions: str, kind: str) -> None:
    made, ids = model(positions=positions, attention=kind, d_mlp=0, norm="none"), tokens(3, T)
    roles = [part.role for part in made.parts]
    assert roles == [LayerRole.ENCODER] * 2 + [LayerRole.DECODER, LayerRole.CROSS] * 2
    logits, weights = made(ids, return_weights=True)
    assert worst(made(ids), logits) <= 1e-12
    for part, w in zip(made.parts, weights, strict=True):
        (first, end), (start, stop) = part.queries, part.keys
        inside = w[:, :, first:end, start:stop]
        assert float(w.detach().sum()) == pytest.approx(float(inside.detach().sum())) and torch.allclose(
            inside.sum(-1), torch.ones_like(inside[..., 0])
        )
        ahead = inside.triu(1).sum()
        assert (ahead == 0) if part.causal else (ahead > 0)
    for layer, first, block in weight_blocks(made, ids, multiple=3):
        assert worst(block, weights[layer][..., first : first + block.size(-2), :].detach()) <= 1e-12


def test_what_it_does_not_have_is_refused() -> None:
    made, ids = model(), tokens(1, T)
    with pytest.raises(ValueError, match="source"):
        made(ids[:, :S])
    with pytest.raises(ValueError, match="cache"):
        made(ids, cache=KVCache(6))
    with pytest.raises(UsageError):
        generate(made, ids[0, :S], 1)
    lines = ["window: 3", "causal: false", "attention: linear", "attention: mine.py:Mine", "max_seq_len: 90"]
    tasks = [
        "repeat}",
        "copy, min_length: 2}",
        "reverse, separator: false}",
        "mine.py:Mine, vocab_size: 4, seq_len: 6}",
    ]
    texts = [f"task: {{name: copy}}\nmodel: {{encoder_layers: 1, {line}}}" for line in lines]
    texts += [f"task: {{name: {task}\nmodel: {{encoder_layers: 1}}" for task in tasks]
    for text in texts:
        with pytest.raises(ConfigError) as problems:
            parse(text.encode(), "here")
        assert "encoder" in [one.code for one in problems.value.problems], text


SMALL = ["seq_len=10", "vocab_size=9", "d_model=24", "n_heads=2", "encoder_layers=1", "residual=true"]
SMALL += ["norm=layernorm", "batch_size=32", "epochs=1", "steps_per_epoch=300"]


@pytest.fixture(scope="module", params=["reverse", "copy"])
def trained(request: pytest.FixtureRequest) -> tuple[TransformerLM, Task, list[SnapshotRecord]]:
    config = load_config(None, [f"task.name={request.param}", *SMALL])
    group = Group([config], build_task(config.task), torch.device("cpu"))
    snapshots = [one for one in records_of(group) if isinstance(one, SnapshotRecord)]
    assert sum(p.numel() for p in group.model(0).parameters()) == parameters(config.task, config.model)
    return group.model(0), build_task(config.task), snapshots


def test_its_cross_attention_is_labelled(trained: tuple[TransformerLM, Task, list[SnapshotRecord]]) -> None:
    """The mirrored diagonal, or the diagonal five back; encoder and decoder heads get no label that is not theirs."""
    made, task, snapshots = trained
    report = head_report(made, task, seed=3)
    labels = {head.address: head.label for head in report.heads}
    own = [
        head for head in report.heads if head.layer == 2 and head.label is not None and head.role is not Role.NO_EFFECT
    ]
    assert own, labels
    for head in own:
        assert head.label is not None
        found = (head.label.kind, head.label.distance)
        assert found == (("answer", None) if task.name == "reverse" else ("offset", 5)), labels
        assert head.scores["answer"].mass > 0.8 and "previous" not in head.scores
    last = [one for one in snapshots if one.maps][-1]
    assert [len(layer) for layer in last.maps] == [2, 2, 2] and max(
        last.heads[4].lifts, key=last.heads[4].lifts.__getitem__
    )
    batch = task.draw(50, torch.Generator().manual_seed(1))
    cross = capture(made, batch.inputs)[2][:, own[0].head, S:, :S]
    places = torch.arange(S).flip(0) if task.name == "reverse" else torch.arange(S)
    assert float((cross.argmax(-1) == places).double().mean()) > 0.99


def test_ablations_by_two_roads(trained: tuple[TransformerLM, Task, list[SnapshotRecord]]) -> None:
    """A head made uniform by the ablator, and by a model whose block computes it so."""
    made, task, _ = trained
    probe = build_probe(made, task, 3, 16)
    assert probe is not None
    ablator = Ablator(made, probe.batch)
    scored = probe.batch.targets != IGNORE
    for layer in range(3):
        attn = made.attention[layer]

        plain, even = attn.weights, ablator.uniform[layer]

        def uniform(*given: Any, plain: Any = plain, even: Tensor = even) -> Tensor:
            found = plain(*given).clone()
            found[:, 1] = even.to(found)
            return found

        attn.weights = uniform  # type: ignore[method-assign,assignment]
        try:
            logits = made(probe.ids, return_weights=True)[0]
        finally:
            del attn.weights
        wanted = F.cross_entropy(logits[scored], probe.batch.targets[scored])
        found = ablator.loss + ablator.joint("uniform", [Head(layer, 1)]).delta
        assert found == pytest.approx(float(wanted.detach()), abs=1e-5)


def test_maps_are_kept_and_drawn_with_their_own_axes(
    trained: tuple[TransformerLM, Task, list[SnapshotRecord]],
) -> None:
    made, task, _ = trained
    maps = head_maps(made, task, 3, 300)
    assert maps_from_dict(json.loads(json.dumps(maps_to_dict(maps)))).parts == [
        replace(part, queries=list(part.queries), keys=list(part.keys)) for part in made.parts
    ]
    lines = picture(maps, Surface(width=80, depth=None), heads=[Head(2, 0)]).plain.splitlines()
    top = next(i for i, line in enumerate(lines) if line.split() == list(maps.tokens[:S]))
    assert [line.split()[0] for line in lines[top + 1 : top + 1 + S]] == list(maps.tokens[S:])
    weights = answer_weights(made, task, task.draw(9, torch.Generator().manual_seed(2)).inputs)
    assert weights is not None and weights[0] is None and weights[2] is not None
    with pytest.raises(UsageError) as error:
        path_patch(made, task, 3, [Path(Head(0, 0))])
    assert error.value.code == "encoder-decoder"


def test_it_generates_the_answer(trained: tuple[TransformerLM, Task, list[SnapshotRecord]]) -> None:
    made, task, _ = trained
    order = -1 if task.name == "reverse" else 1
    assert list(generate(made, torch.tensor([1, 2, 3, 4, 5, 8]), 5)) == [1, 2, 3, 4, 5][::order]


def test_a_stack_has_the_bits_of_single_runs() -> None:
    configs = [
        load_config(None, later_wins("task.name=copy", *SMALL, "steps_per_epoch=3", f"seed={s}")) for s in (1, 2, 3)
    ]
    task, device = build_task(configs[0].task), torch.device("cpu")
    stack = Group(configs, task, device, watch=False)
    list(records_of(stack))
    for slot, config in enumerate(configs):
        alone = Group([config], task, device, watch=False)
        list(records_of(alone))
        pairs = zip(stack.model(slot).parameters(), alone.model(0).parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
