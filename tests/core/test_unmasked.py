"""Attention without a causal mask: the same numbers by two roads, and measurements that count the future."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import Tensor

from mhsa_cli.config.load import load_config, parse
from mhsa_cli.config.problems import ConfigError
from mhsa_cli.core.export.transformer_lens import hooked_config
from mhsa_cli.core.heads.capture import answer_weights, capture, head_maps, head_weights, sample_maps, weight_blocks
from mhsa_cli.core.heads.match import compare_models
from mhsa_cli.core.heads.path_patching import path_patch
from mhsa_cli.core.heads.probe import Probe, build_probe, probe_of
from mhsa_cli.core.heads.random_baseline import null_limits
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.heads.scores import by_head, lifts
from mhsa_cli.core.heads.stream import run_stream
from mhsa_cli.core.heads.targets import SCORES, target_of
from mhsa_cli.core.model.attention import MultiHeadSelfAttention, uniform_weights
from mhsa_cli.core.model.generate import generate
from mhsa_cli.core.model.kv_cache import KVCache, LayerCache
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import TASKS, Batch, build_task
from mhsa_cli.core.trace.run import run_trace
from mhsa_cli.core.training.lockstep import Group, records_of
from mhsa_cli.core.training.snapshots import small_maps
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.own_task import asks_next_token
from mhsa_cli.records.heads import Path
from mhsa_cli.records.labels import Label, Role
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.text import Head
from tests.core.forms import MAX, V, tokens
from tests.core.reference import draw, redraw, worst
from tests.core.test_attention_golden import NumpyAttention
from tests.core.test_head_targets import NAMED, Marked, random_rows

T = 9
FORMS = {
    "learned": {"positions": "learned"},
    "rope, shared keys": {"positions": "rope", "n_kv_heads": 2},
    "alibi": {"positions": "alibi"},
    "linear": {"attention": "linear"},
    "uniform": {"attention": "uniform"},
    "two blocks": {"n_layers": 2, "residual": True, "norm": "layernorm", "d_mlp": 29},
}


def unmasked(**settings: object) -> TransformerLM:
    config = load_config(None, []).model.model_copy(update={"d_model": 24, "causal": False, **settings})
    model = TransformerLM(config, vocab_size=V, max_seq_len=MAX)
    redraw(model, 0)
    return model.double().eval()


def test_the_textbook_class_is_the_block_without_a_mask() -> None:
    theirs = NumpyAttention(np.random.default_rng(0), 16, 4)
    x = np.random.default_rng(1).standard_normal((2, 5, 16))
    own = theirs.block(max_seq_len=9)
    block = MultiHeadSelfAttention(16, 4, 9, bias=own.qkv_proj.bias is not None, causal=False, dtype=torch.float64)
    block.load_state_dict(own.state_dict())
    for found in (block(torch.from_numpy(x)), block(torch.from_numpy(x), return_weights=True)[0]):
        assert isinstance(found, Tensor)
        assert float(found.detach().sum()) == pytest.approx(11.9121045906, abs=1e-9)
        assert worst(found, theirs(x)[0]) <= 1e-12
    assert float(own(torch.from_numpy(x)).detach().sum()) == pytest.approx(18.1445253391, abs=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_every_road_gives_the_same_numbers(form: str) -> None:
    """The fused kernel or the sums of linear attention, whole maps, blocks of queries; every weight may be above 0."""
    model, ids = unmasked(**FORMS[form]), tokens(3, T)
    logits, weights = model(ids, return_weights=True)
    assert worst(model(ids), logits) <= 1e-12
    assert all(torch.allclose(w.sum(-1), torch.ones_like(w[..., 0])) and bool((w > 0).all()) for w in weights)
    for layer, first, block in weight_blocks(model, ids, multiple=2):
        assert block.shape[-1] == T and worst(block, weights[layer][..., first : first + block.size(-2), :]) <= 1e-12
    stream = run_stream(model, ids)
    assert worst(model.lm_head(model.final_norm(stream.inputs[-1])), logits) <= 1e-12
    changed = ids.clone()
    changed[:, -1] = (changed[:, -1] + 1) % V
    assert bool((model(changed) != logits).any(-1)[:, 0].all()), "the first query must see the last token"


@pytest.mark.parametrize("positions", ["alibi", "none"])
def test_without_a_mask_a_mirrored_row_gives_mirrored_weights(positions: str) -> None:
    """A law: no query is nearer to the end, so distances count in both directions alike."""
    model, ids = unmasked(positions=positions), tokens(2, T)
    (there,), (back,) = head_weights(model, ids), head_weights(model, ids.flip(1))
    assert worst(back.flip(-1, -2), there) <= 1e-12


def test_what_needs_a_mask_is_refused() -> None:
    model, ids = unmasked(), tokens(1, T)
    with pytest.raises(UsageError) as error:
        generate(model, ids[0], 1)
    assert "causal" in (error.value.hint or "")
    with pytest.raises(ValueError, match="causal"):
        model(ids, cache=KVCache(1))
    with pytest.raises(ValueError, match="causal"):
        MultiHeadSelfAttention(24, 4, causal=False)(draw(1, 3, 24), cache=LayerCache())
    with pytest.raises(ValueError, match="causal"):
        MultiHeadSelfAttention(24, 4, causal=False, window=3)
    for text, code in (("window: 3", "window"), ("attention: mine.py:Mine", "custom-attention")):
        with pytest.raises(ConfigError) as problems:
            parse(f"model: {{causal: false, {text}}}".encode(), "here")
        assert [one.code for one in problems.value.problems] == [code]


def probe(ids: Tensor) -> Probe:
    T = ids.size(1)
    return probe_of(Marked(), Batch(ids, ids), ids, torch.ones(T, T, dtype=torch.bool), "by hand")


# The definitions again as plain loops, the future included.
KEYS = {
    "previous": lambda row, q: {q - 1} - {-1},
    "self": lambda row, q: {q},
    "first": lambda row, q: {0} if q else set(),
    "offset": lambda row, q: {q - 2} if q > 1 else set(),
    "duplicate": lambda row, q: {k for k in range(len(row)) if row[k] == row[q]} - {q},
    "induction": lambda row, q: {j + 1 for j in range(q) if row[j] == row[q]},
    "same": lambda row, q: {k for k in range(len(row)) if row[k] == row[q]},
    "modulo": lambda row, q: {k for k in range(q) if (q - k) % 2 == 1},
    "answer": lambda row, q: {k for k in range(len(row)) if row[k] == (row[q] + 1) % 4},
    "separator": lambda row, q: {k for k in range(len(row)) if row[k] == 2},
    "token": lambda row, q: {k for k in range(len(row)) if row[k] == 3},
}


class Mark(Marked):
    def source(self, inputs: Tensor) -> Tensor:
        return inputs.unsqueeze(1) == (inputs.unsqueeze(2) + 1) % 4


@pytest.mark.parametrize("name", SCORES)
def test_targets_and_their_lift_count_later_keys(name: str) -> None:
    """Against loops: the keys, a random head's mean weight on them, and that of a uniform head."""
    ids, made = random_rows(), draw(4, 1, 7, 7).double().softmax(-1)
    wanted = [[KEYS[name](row, q) for q in range(7)] for row in ids.tolist()]
    keys = target_of(name, NAMED[name], Mark())(ids).expand(4, -1, -1)
    assert [[set(q.nonzero().flatten().tolist()) for q in row] for row in keys] == wanted
    counted = [(b, q) for b in range(4) for q in range(7) if 0 < len(wanted[b][q]) < 7]
    mass = sum(float(made[b, 0, q, list(wanted[b][q])].sum()) for b, q in counted) / len(counted)
    own = probe_of(Mark(), Batch(ids, ids), ids, torch.ones(7, 7, dtype=torch.bool), "by hand")
    if name in own.targets:
        assert own.targets[name].uniform == pytest.approx(sum(len(wanted[b][q]) / 7 for b, q in counted) / len(counted))
        assert float(lifts(made, own)[name].mass) == pytest.approx(mass)


def test_offsets_ahead_have_names_of_their_own() -> None:
    ids = torch.arange(8).expand(3, 8)
    for ahead in (1, 3):
        weights = uniform_weights(torch.ones(8, 8, dtype=torch.bool), torch.float64)
        weights[: 8 - ahead] = torch.eye(8, dtype=torch.float64).roll(ahead, 1)[: 8 - ahead]
        found = lifts(weights.expand(3, 1, 8, 8), probe(ids))["offset"]
        assert found.numbers(0).distance == -ahead and float(found.lift) == pytest.approx(1.0)
        assert list(found.by_distance or {}) == [-1, *(d for back in range(2, 8) for d in (back, -back))]
        assert found.by_distance is not None and float(found.by_distance[-ahead]) == pytest.approx(1.0)
    label = Label("offset", Role.SHOWN, -1)
    assert Label.from_id(label.id) == label and "ahead" in label.attends_to and "tokens" not in label.attends_to
    assert "ahead" not in Label("offset", Role.SHOWN, 1).attends_to
    assert all(Label.from_id(wrong) is None for wrong in ("offset:--1:shown", "token:-1:shown", "modulo:-1:2:shown"))


def test_the_answer_of_a_row_in_place_is_its_mirror_image() -> None:
    for name, order in (("reverse", slice(None, None, -1)), ("copy", slice(None))):
        task = TASKS[name](vocab_size=5, seq_len=7, separator=False)
        batch = task.draw(50, torch.Generator().manual_seed(1))
        assert batch.targets.tolist() == [row[order] for row in batch.inputs.tolist()]
        assert set(batch.inputs.flatten().tolist()) == set(range(5)) and task.n_symbols == 5 and not task.gaps
        keys = task.source(batch.inputs)
        assert keys is not None and keys.tolist() == [
            [[key == answer for key in row] for answer in row[order]] for row in batch.inputs.tolist()
        ]
        assert not asks_next_token(batch)
    assert asks_next_token(TASKS["copy"](vocab_size=5, seq_len=8).draw(5, torch.Generator().manual_seed(1)))


SMALL = ["task.name=reverse", "separator=false", "vocab_size=6", "seq_len=7", "d_model=24", "n_heads=1", "causal=false"]


def trained(*more: str) -> tuple[TransformerLM, list[SnapshotRecord]]:
    config = load_config(None, [*SMALL, "residual=true", "steps_per_epoch=200", "epochs=1", "batch_size=32", *more])
    group = Group([config], build_task(config.task), torch.device("cpu"))
    snapshots = [one for one in records_of(group) if isinstance(one, SnapshotRecord)]
    return group.model(0), snapshots


def test_a_trained_encoder_is_measured_with_its_future() -> None:
    """Reverse in place: the label, the ideal head, path patching, maps over training and the match with itself."""
    model, snapshots = trained()
    task = build_task(load_config(None, SMALL).task)
    (maps,) = capture(model, task.draw(40, torch.Generator().manual_seed(1)).inputs)
    assert bool((maps[:, 0].argmax(-1) == torch.arange(7).flip(0)).all())
    report = head_report(model, task, seed=3)
    (head,) = report.heads
    assert head.label is not None and (head.label.kind, head.label.role) == ("answer", Role.SHOWN)
    assert head.kept is not None and head.kept > 0.9
    answer, probe = head.scores["answer"], build_probe(model, task, 3)
    assert probe is not None
    weights = by_head(torch.cat(capture(model, probe.ids), 1))
    same = task.source(probe.ids)
    assert same is not None
    counts = (same.sum(-1) < 7).sum()
    wanted = float((weights[0] * same * (same.sum(-1, keepdim=True) < 7)).sum() / counts)
    assert answer.mass == pytest.approx(wanted, abs=1e-6)
    shown = head_maps(model, task, 3, 200)
    assert len(shown.weights[0][0][0]) == 7 and sum(shown.weights[0][0][0]) == pytest.approx(1, abs=1e-5)
    found = answer_weights(model, task, probe.ids)
    assert (
        found is not None
        and found[0] is not None
        and float(found[0][0][0]) == pytest.approx(float((weights[0] * same).sum() / same.any(-1).sum()), abs=1e-6)
    )
    assert all(len(row) == 7 for one in snapshots if one.maps for row in one.maps[0][0])
    (effect,) = path_patch(model, task, 3, [Path(Head(0, 0))])
    assert effect.above_null
    matching = compare_models(model, task, model, task, 1)
    assert matching.cost == 0.0


def test_uniform_attention_has_entropy_one_and_no_lift() -> None:
    model, ids = unmasked(attention="uniform"), tokens(5, T)
    _, (entropy,), _ = sample_maps(model, ids[0])
    assert entropy.tolist() == pytest.approx([1.0] * 4)
    (weights,) = head_weights(model, ids)
    assert all(float(one.lift.abs().amax()) < 1e-6 for one in lifts(weights, probe(ids)).values())
    limits = null_limits(unmasked().float(), TASKS["copy"](vocab_size=V, seq_len=8, separator=False))
    assert limits.of("offset", -1) is not None and limits.of("offset", -8) is None


def test_small_maps_keep_the_future() -> None:
    maps, _ = small_maps(torch.full((1, 3, 3), 1 / 3), future=True)
    assert maps == [[[33, 33, 33]] * 3]


@pytest.mark.parametrize("form", ["softmax", "linear", "uniform"])
def test_a_trace_shows_that_earlier_logits_see_the_last_token(form: str) -> None:
    config = load_config(None, [*SMALL, f"model.attention={form}"])
    trace = run_trace(config, build_task(config.task))
    assert all(check.passed for check in trace.checks), trace.checks
    names = {check.name for check in trace.checks}
    assert "unmasked" in names and not names & {"causal", "future is zero", "mask first", "cache"}
    assert trace.cache is None


def test_transformer_lens_is_told_the_direction() -> None:
    for causal, direction in ((True, "causal"), (False, "bidirectional")):
        config = load_config(None, [f"model.causal={str(causal).lower()}", "residual=true"])
        assert json.loads(json.dumps(hooked_config(config.model, 5, 7)))["attention_dir"] == direction
