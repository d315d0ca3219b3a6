"""The null distribution: enough untrained heads, dependent on shape and task alone."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from mhsa_cli.core.heads import capture, probe, random_baseline
from mhsa_cli.core.heads.capture import run_with_activations
from mhsa_cli.core.heads.families import Lift
from mhsa_cli.core.heads.probe import build_probe, probe_of
from mhsa_cli.core.heads.random_baseline import (
    Lifts,
    Limits,
    limits_of,
    null_lifts,
    null_limits,
    percentile,
    random_lifts,
    random_limits,
    with_limits,
)
from mhsa_cli.core.heads.scores import concat_heads, lifts
from mhsa_cli.core.heads.targets import SCORES
from mhsa_cli.core.model.transformer import draw_weights
from mhsa_cli.core.tasks import Batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.records.heads import HeadScore, TargetScore
from tests.core.handmade import Attended
from tests.core.noise import small


def of_all(found: Lifts | None) -> dict[str, Lift]:
    """The lifts of a model whose layers all see the same keys."""
    assert found is not None
    ((_, lifts),) = found
    return lifts


def test_random_heads_are_at_least_two_hundred_of_the_shape_alone() -> None:
    task = Attended("self", vocab_size=17, seq_len=13)
    one, other, wider = small(0), small(1), small(0, d_model=24)
    found, again, more = of_all(null_lifts(one, task)), of_all(null_lifts(other, task)), of_all(null_lifts(wider, task))
    assert set(found) == set(SCORES) - {"answer", "separator"}  # this task has neither
    for name, lift in found.items():
        assert len(lift.lift) == 201  # 67 models of three heads
        assert torch.equal(lift.lift, again[name].lift), "the null depends on the weights that are judged"
        assert len(lift.lift.unique()) > 190  # each model drew its own
        assert not torch.equal(lift.lift, more[name].lift)
    limits, offsets = null_limits(one, task), found.pop("offset").by_distance
    assert limits.targets == {name: percentile(lift.lift) for name, lift in found.items()}
    assert offsets is not None and list(limits.offsets) == list(offsets) == list(range(2, 13))
    assert limits.offsets[2] == percentile(offsets[2]) and limits == limits_of(null_lifts(one, task)[0][1], percentile)
    assert limits.of("first", None) == percentile(found["first"].lift) and limits.of("answer", None) is None
    assert limits.of("modulo", 3) == limits.targets["modulo"] and limits.of("offset", 13) is None
    assert limits.of("offset", 7) == limits.offsets[7] <= limits.offsets[8]


def test_the_limit_of_an_offset_is_that_of_all_nearer_ones() -> None:
    """By hand: two heads, three distances; the far one does not judge the near ones."""
    lifts_at = {2: [0.1, 0.3], 3: [0.4, 0.2], 4: [0.0, 0.9]}
    by_distance = {d: torch.tensor(values) for d, values in lifts_at.items()}
    zero = torch.zeros(2)
    found = {"offset": Lift(zero, zero, zero, by_distance=by_distance), "self": Lift(zero, zero + 0.5, zero)}
    seen: list[list[float]] = []
    limits = limits_of(found, lambda values: seen.append(values.tolist()) or float(values.max()))
    assert seen[1:] == [pytest.approx(values) for values in ([0.1, 0.3], [0.4, 0.3], [0.4, 0.9])]
    assert limits.targets == {"self": 0.5}
    assert limits.offsets == {d: pytest.approx(value) for d, value in {2: 0.3, 3: 0.4, 4: 0.9}.items()}


FORMS: dict[str, dict[str, object]] = {
    "softmax": {},
    "grouped, rope, a norm": {"n_kv_heads": 1, "positions": "rope", "norm": "rmsnorm", "n_layers": 2, "residual": True},
    "alibi, no biases": {"positions": "alibi", "bias": False},
    "a window": {"window": 4, "positions": "none"},
    "unmasked": {"causal": False},
    "linear": {"attention": "linear"},
    "uniform": {"attention": "uniform"},
}


@pytest.mark.parametrize("queries", [3, 13])
@pytest.mark.parametrize("settings", FORMS.values(), ids=FORMS)
def test_untrained_heads_are_models_read_one_by_one(
    settings: dict[str, object], queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other computation: each model drawn and run alone, and whole maps. Blocks of queries and models are alike."""
    task, model, wanted = Attended("self", vocab_size=17, seq_len=13), small(0, d_model=24, **settings), []
    rows = build_probe(model, task, random_baseline.SEED, random_baseline.ROWS)
    assert rows is not None and len(rows.ids) == random_baseline.ROWS == 16
    layers = len(model.blocks)
    for index in range(-(-200 // len(model.heads))):
        draw_weights(model, stream_generator(random_baseline.SEED, "null", index))
        maps = run_with_activations(model, rows.ids).weights
        wanted.append([lifts(concat_heads([layer]), rows) for layer in maps])
    for module in (capture, random_baseline):
        monkeypatch.setattr(module, "BLOCK_CELLS", 5 * 16 * 3 * 13 * queries)  # of five models
    monkeypatch.setattr(capture, "ROW_CELLS", 13 * queries)
    found = null_lifts(small(1, d_model=24, **settings), task)
    assert [numbers for numbers, _ in found] == [[*range(layers)]]
    for name, lift in of_all(found).items():
        alone = [torch.cat([one[layer][name].lift for one in wanted]) for layer in range(layers)]
        assert torch.allclose(lift.lift, torch.cat(alone), rtol=0, atol=1e-6)
        for distance, values in (lift.by_distance or {}).items():
            alone = [torch.cat([one[layer][name].by_distance[distance] for one in wanted]) for layer in range(layers)]
            assert torch.allclose(values, torch.cat(alone), rtol=0, atol=1e-6)


def test_of_long_rows_random_heads_see_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    model, task = small(0), Attended("self", vocab_size=17, seq_len=13)
    full = of_all(null_lifts(model, task))["duplicate"].lift
    monkeypatch.setattr(random_baseline, "MAX_ALL", 200 * 13 * 13 * 5)
    found = null_limits(model, task)
    monkeypatch.setattr(random_baseline, "MAX_ALL", 2**24)
    monkeypatch.setattr(random_baseline, "ROWS", 5)
    assert null_limits(model, task) == found
    assert percentile(full) < found.targets["duplicate"]  # a mean over fewer rows scatters more
    monkeypatch.setattr(probe, "MAX_WEIGHTS", 0)
    assert null_lifts(model, task) == [] and null_limits(model, task) == Limits({}, {})


def test_the_limit_is_the_99th_percentile() -> None:
    assert percentile(torch.arange(101.0)) == pytest.approx(99.0)
    assert percentile(torch.tensor([0.0] * 100 + [7.0])) == pytest.approx(0.0)  # 1 in 101 lies above
    assert percentile(torch.tensor([4.0])) == 4.0


@pytest.mark.parametrize("settings", FORMS.values(), ids=FORMS)
def test_random_heads_are_those_of_a_model_with_drawn_queries_and_keys(settings: dict[str, object]) -> None:
    """The other computation: copies of the model with the drawn maps written into one layer, run whole."""
    model, task = small(0, d_model=24, **settings), Attended("self", vocab_size=17, seq_len=13)
    probe = build_probe(model, task, seed=4, rows=random_baseline.ROWS)
    assert probe is not None
    found, again = of_all(random_lifts(model, probe)), of_all(random_lifts(model, probe))
    assert all(torch.equal(lift.lift, again[name].lift) for name, lift in found.items())
    times = -(-64 // len(model.heads))
    wanted = []
    for layer, attn in enumerate(model.attention):
        d, H = attn.d_head, attn.n_heads
        generator = stream_generator(random_baseline.SEED, "random-null", layer)
        drawn = []  # for queries, then for keys: maps, then biases
        for part in range(2):
            rows = attn.qkv_proj.weight.split(attn.widths)[part]
            heads = rows.view(-1, d, 24).repeat_interleave(H * d // len(rows), 0)
            maps = torch.randn(times, H, d * 24, generator=generator).view(times, H, d, 24)
            maps = (
                maps / maps.flatten(2).norm(dim=-1).view(times, H, 1, 1) * heads.flatten(1).norm(dim=-1).view(H, 1, 1)
            )
            biases = None
            if attn.qkv_proj.bias is not None:
                own = attn.qkv_proj.bias.split(attn.widths)[part].view(-1, d).repeat_interleave(H * d // len(rows), 0)
                biases = torch.randn(times, H, d, generator=generator)
                biases = biases / biases.norm(dim=-1, keepdim=True) * own.norm(dim=-1, keepdim=True)
            drawn.append((maps, biases))
        for time in range(times):
            for head in range(H):
                other = copy.deepcopy(model)
                block, group = other.attention[layer], head * attn.n_kv_heads // H
                with torch.no_grad():
                    for part, place in ((0, head * d), (1, H * d + group * d)):
                        block.qkv_proj.weight[place : place + d] = drawn[part][0][time, head]
                        if block.qkv_proj.bias is not None:
                            block.qkv_proj.bias[place : place + d] = drawn[part][1][time, head]
                weights = run_with_activations(other, probe.ids).weights[layer][:, head : head + 1]
                wanted.append(lifts(weights, probe))
    for name, lift in found.items():
        alone = torch.cat([one[name].lift for one in wanted])
        assert lift.lift.shape == alone.shape and len(alone) >= 64
        assert float((lift.lift - alone).abs().max()) < 1e-5
    limits = random_limits(model, probe)
    assert limits is not None and limits.of("previous", None) == float(found["previous"].lift.max())
    if settings.get("attention") == "uniform":
        assert max(limits.targets.values()) < 1e-6


def test_random_heads_see_the_first_tokens_of_long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    model, task = small(0), Attended("self", vocab_size=17, seq_len=13)
    probe = build_probe(model, task, seed=4, rows=6)
    short = build_probe(model, Attended("self", vocab_size=17, seq_len=9), seed=4, rows=6)
    assert probe is not None and short is not None
    monkeypatch.setattr(random_baseline, "MAX_KEYS", 9)
    found = random_limits(model, probe)
    batch = Batch(probe.ids[:, :9], probe.batch.targets[:, :9])
    cut = probe_of(task, batch, probe.shuffled[:, :9], short.visible, "")
    assert found == random_limits(model, cut) and found is not None and set(found.offsets) == set(range(2, 9))


def test_both_limits_are_added_to_every_score() -> None:
    score = TargetScore(0.5, 0.1, 0.4)
    head = HeadScore(0, 1, {"offset": replace(score, distance=4), "first": score, "answer": score})
    untrained, random = Limits({"first": 0.1}, {3: 0.2, 4: 0.3}), Limits({"first": 0.6}, {4: 0.5})
    found = with_limits([head], untrained, random)[0].scores
    assert [(one.null, one.random_null) for one in found.values()] == [(0.3, 0.5), (0.1, 0.6), (None, None)]
    assert {one.random_null for one in with_limits([head], untrained, None)[0].scores.values()} == {None}
