"""The trace: shapes as the lessons print them, costs by hand, and the model's own logits."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import SCHEMES
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.trace.run import first_rows, run_trace
from mhsa_cli.core.trace.tensors import size_of
from mhsa_cli.core.training.lockstep import Group, build_model, records_of
from mhsa_cli.records.trace import Trace, TraceStep
from mhsa_cli.records.training import StepRecord
from tests.core.forms import fits


def told(*settings: str, batch: int = 2, forward_only: bool = False) -> Trace:
    config = load_config(None, settings)
    return run_trace(config, build_task(config.task), batch=batch, forward_only=forward_only)


def step(trace: Trace, name: str, how: str) -> TraceStep:
    return next(s for s in trace.steps if (s.name, s.how) == (name, how))


def shape(trace: Trace, name: str, how: str) -> str:
    found = step(trace, name, how)
    return f"({', '.join(found.symbols)}) = ({', '.join(map(str, found.shape))})"


MOVIE = [
    ("x", "+ sinusoidal", "(B, T, D) = {btd}"),
    ("q", "split", "(B, T, D) = {btd}"),
    ("k", "split", "(B, T, D) = {btd}"),
    ("v", "split", "(B, T, D) = {btd}"),
    ("q", "split heads", "(B, H, T, d_head) = {heads}"),
    ("k", "split heads", "(B, H, T, d_head) = {heads}"),
    ("v", "split heads", "(B, H, T, d_head) = {heads}"),
    ("scores", "q @ kT", "(B, H, T, T) = {maps}"),
    ("scaled", "/ sqrt(4)", "(B, H, T, T) = {maps}"),
    ("masked", "mask: -inf", "(B, H, T, T) = {maps}"),
    ("weights", "softmax", "(B, H, T, T) = {maps}"),
    ("context", "weights @ v", "(B, H, T, d_head) = {heads}"),
    ("merged", "merge heads", "(B, T, D) = {btd}"),
    ("y", "out_proj", "(B, T, D) = {btd}"),
]


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        (("seq_len=5", "d_model=16", "n_heads=4"), {"btd": (2, 5, 16), "heads": (2, 4, 5, 4), "maps": (2, 4, 5, 5)}),
        (("seq_len=4", "d_model=12", "n_heads=3"), {"btd": (2, 4, 12), "heads": (2, 3, 4, 4), "maps": (2, 3, 4, 4)}),
    ],
    ids=["the shapes trace of the interview lesson", "the exercise with D=12 and H=3"],
)
def test_the_lessons_shapes_word_for_word(settings: tuple[str, ...], sizes: dict[str, tuple[int, ...]]) -> None:
    trace = told(*settings)
    assert trace.sizes["d_head"] == 4
    attention = [s for s in trace.steps if s.part == "attention" or s.how == "+ sinusoidal"]
    wanted = [(name, how, text.format(**sizes)) for name, how, text in MOVIE]
    assert [(s.name, s.how, shape(trace, s.name, s.how)) for s in attention if s.name != "qkv"] == wanted
    assert shape(trace, "qkv", "qkv_proj").startswith("(B, T, 3*D)")


def test_gpt2_smalls_attention_has_4_d_squared_parameters() -> None:
    trace = told("model.d_model=768", "model.n_heads=12", "model.bias=false", forward_only=True)
    assert trace.attention_parameters == 2_359_296 and trace.attention_formula == "4*D*D"
    assert all(check.passed for check in trace.checks)
    facts = next(check.facts for check in trace.checks if check.name == "parameters")
    assert (facts["counted"], facts["wanted"], facts["formula"]) == (2_359_296, 2_359_296, "4*D*D")
    assert all(part.gradient_norm is None for part in trace.parts)


def test_flops_bytes_views_and_strides_by_hand() -> None:
    """B=3 T=5 D=12 H=2 d_head=6 V=64."""
    trace = told("task.seq_len=5", "model.d_model=12", "model.n_heads=2", batch=3)
    assert step(trace, "x", "+ sinusoidal").flops == 3 * 5 * 12
    assert step(trace, "qkv", "qkv_proj").flops == 3 * 5 * 36 * (2 * 12 + 1)
    assert step(trace, "scores", "q @ kT").flops == 2 * 3 * 2 * 5 * 5 * 6
    assert step(trace, "scaled", "/ sqrt(6)").flops == 3 * 2 * 5 * 5
    assert step(trace, "weights", "softmax").flops == 5 * 3 * 2 * 5 * 5
    assert step(trace, "context", "weights @ v").flops == 2 * 3 * 2 * 5 * 5 * 6
    assert step(trace, "logits", "lm_head").flops == 3 * 5 * 64 * 25
    assert trace.flops == sum(s.flops for s in trace.steps) == 180 + 13_500 + 1_800 + 150 + 750 + 1_800 + 4_500 + 24_000
    ids = step(trace, "ids", "the task's")
    assert (ids.data, ids.bytes, ids.dtype, ids.mean) == ("input", 3 * 5 * 8, "int64", None)
    heads = step(trace, "k", "split heads")
    assert (heads.data, heads.bytes, tuple(heads.strides)) == ("view", 0, (180, 6, 36, 1))
    merged = step(trace, "merged", "merge heads")
    assert (merged.data, merged.bytes) == ("copy", 3 * 5 * 12 * 4)
    assert trace.cache.bytes_per_token == 2 * 12 * 4 and trace.cache.bytes_at_max == 5 * 96


def test_the_cost_of_what_a_block_has_besides() -> None:
    """B=2 T=5 D=12 H=3 d_head=4 d_mlp=7, one KV head; the matrix products are also counted by torch."""
    settings = ["seq_len=5", "d_model=12", "n_heads=3", "n_kv_heads=1", "positions=rope", "norm=layernorm"]
    trace = told(*settings, "residual=true", "d_mlp=7", "mlp=swiglu", "n_layers=2")
    assert shape(trace, "qkv", "qkv_proj") == "(B, T, D+2*G*d_head) = (2, 5, 20)"
    assert shape(trace, "k", "split heads") == "(B, G, T, d_head) = (2, 1, 5, 4)"
    shared = step(trace, "v", "share heads")
    assert (shared.data, shared.bytes, tuple(shared.shape)) == ("copy", 2 * 3 * 5 * 4 * 4, (2, 3, 5, 4))
    assert step(trace, "q", "rope").flops == 3 * 2 * 3 * 5 * 4 and step(trace, "k", "rope").flops == 3 * 2 * 5 * 4
    assert step(trace, "h", "attn_norm").flops == 7 * 2 * 5 * 12
    assert step(trace, "x", "x + y").flops == 2 * 5 * 12
    assert step(trace, "gate", "gate").flops == 2 * 5 * 7 * 25 and step(trace, "hidden", "silu(g) * up").flops == 140
    config = load_config(None, [*settings, "residual=true", "d_mlp=7", "mlp=swiglu", "n_layers=2", "bias=false"])
    task = build_task(config.task)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        build_model(config, task).eval()(first_rows(config, task, 2, torch.device("cpu"))[0], return_weights=True)
    products = ("qkv", "scores", "context", "y", "up", "gate", "logits")
    ours = sum(s.flops for s in run_trace(config, task).steps if s.name in products)
    assert ours - 2 * 5 * 64 == counter.get_total_flops()  # torch leaves out the head's bias


def test_heads_with_a_width_of_their_own_have_it_in_every_shape_and_formula() -> None:
    settings = ["seq_len=5", "d_model=12", "n_heads=5", "d_head=6", "residual=true", "d_mlp=7", "mlp=relu"]
    trace = told(*settings)
    assert shape(trace, "qkv", "qkv_proj") == "(B, T, 3*H*d_head) = (2, 5, 90)"
    assert shape(trace, "merged", "merge heads") == "(B, T, H*d_head) = (2, 5, 30)"
    assert shape(trace, "y", "out_proj") == "(B, T, D) = (2, 5, 12)" and step(trace, "hidden", "relu(up)").flops == 70
    assert trace.attention_parameters == 12 * 90 + 90 + 30 * 12 + 12 and all(check.passed for check in trace.checks)
    assert all(check.passed for check in told(*settings[:2], "n_heads=6", "n_kv_heads=2", *settings[3:]).checks)


def test_linear_attention_has_sums_in_place_of_scores() -> None:
    """Two blocks of 64 and a rest: B=2 T=130 D=12 H=3 d_head=4."""
    trace = told("seq_len=130", "d_model=12", "n_heads=3", "attention=linear")
    assert not {"scores", "masked", "weights"} & {s.name for s in trace.steps}
    assert shape(trace, "state", "sum phi(k) vT") == "(B, H, d_head, d_head) = (2, 3, 4, 4)"
    assert step(trace, "state", "sum phi(k) vT").flops == 2 * 6 * 130 * 16
    exact = sum(4 * n * n * 4 + n * n + 4 * n for n in (64, 64, 2))
    past = sum(2 * n * 16 + 2 * n * 4 + 4 * n + n for n in (64, 2))
    assert step(trace, "context", "running sums").flops == 6 * (exact + past)


def test_a_view_is_measured() -> None:
    """With one token, merging the heads moves nothing; uniform weights are one row of numbers for all heads."""
    assert step(told("seq_len=1"), "merged", "merge heads").data == "view"
    even = step(told("seq_len=5", "attention=uniform"), "weights", "1 / visible")
    assert (even.data, even.bytes, tuple(even.strides)) == ("new", 5 * 5 * 4, (0, 0, 5, 1))


def test_mean_and_std_are_those_of_the_values() -> None:
    config = load_config(None, ["seq_len=5"])
    task = build_task(config.task)
    trace = run_trace(config, task)
    table = build_model(config, task).tok_emb.weight.detach()
    ids, _ = first_rows(config, task, 2, torch.device("cpu"))
    looked = step(trace, "x", "tok_emb[ids]")
    assert looked.mean == pytest.approx(float(table[ids].mean()), abs=1e-7)
    assert looked.std == pytest.approx(float(table[ids].double().std(correction=0)), rel=1e-5)
    masked = step(trace, "masked", "mask: -inf")  # of what stays visible
    assert masked.std is not None and 0 < masked.std < 1


def test_the_rows_are_those_of_the_first_training_step() -> None:
    config = load_config(None, ["epochs=1", "steps_per_epoch=1", "eval_sequences=1"])
    task = build_task(config.task)
    records = records_of(Group([config], task, torch.device("cpu")))
    first = next(record for record in records if isinstance(record, StepRecord))
    assert run_trace(config, task, batch=16).loss == pytest.approx(first.loss, abs=1e-5)
    with pytest.raises(ValueError, match="17 rows"):
        run_trace(config, task, batch=17)


def test_sharing_heads_shrinks_the_cache_and_linear_attention_ends_its_growth() -> None:
    shared = told("model.n_kv_heads=1")
    assert shared.cache.all_heads_bytes == 4 * shared.cache.bytes_at_max
    assert shared.attention_formula == "2*D*D+2*D*G*d_head+2*D+2*G*d_head"
    linear = told("model.attention=linear").cache
    assert not linear.grows and linear.bytes_at_max == 4 * 8 * 9 * 4
    assert told("train.dtype=float64").cache.bytes_per_token == 2 * told().cache.bytes_per_token


def test_uniform_attention_sends_no_gradient_to_queries_and_keys() -> None:
    norms = {part.name: part.gradient_norm for part in told("attention=uniform").parts}
    assert norms["q projection"] == norms["k projection"] == 0 and (norms["v projection"] or 0) > 0.1


FORMS = [
    (positions, kind)
    for positions, kind in itertools.product(SCHEMES, ["softmax", "window", "linear", "uniform"])
    if fits(positions, kind)
]
BLOCKS = {
    "bare": [],
    "layernorm": ["norm=layernorm", "n_layers=2", "residual=true", "d_mlp=21", "mlp=swiglu"],
    "rmsnorm": ["norm=rmsnorm", "n_layers=3", "d_mlp=9", "tie_embeddings=true", "bias=false", "dropout=0.2"],
}


STORIES = [(*form, n, block) for form in FORMS for n in (1, 2, 4) for block in BLOCKS]
# Each form with each number of heads, and the blocks in turn; tests/long has the others.
IN_TURN = [STORIES[3 * at + (at // 3 + at) % 3] for at in range(len(STORIES) // 3)]


@pytest.mark.parametrize(("positions", "kind", "n_kv_heads", "block"), IN_TURN)
def test_the_story_is_the_models_own_for_every_form(positions: str, kind: str, n_kv_heads: int, block: str) -> None:
    form = ["attention=softmax", "window=5"] if kind == "window" else [f"attention={kind}"]
    trace = told("task.name=copy", f"positions={positions}", f"n_kv_heads={n_kv_heads}", *form, *BLOCKS[block])
    assert [check for check in trace.checks if not check.passed] == []
    assert {"shapes", "sum to one", "future is zero", "causal", "logits"} <= {check.name for check in trace.checks}
    assert trace.parameters == sum(part.parameters for part in trace.parts)
    assert (kind in ("softmax", "window")) == any(s.name == "scores" for s in trace.steps)
    assert all(tuple(size_of(s, trace.sizes) for s in step.symbols) == tuple(step.shape) for step in trace.steps)


@pytest.mark.parametrize("kind", ["softmax", "linear", "uniform"])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_the_story_is_told_in_the_configs_numbers(kind: str, dtype: str) -> None:
    trace = told(f"attention={kind}", f"train.dtype={dtype}", "task.name=copy")
    assert [check for check in trace.checks if not check.passed] == []
    assert step(trace, "qkv", "qkv_proj").dtype == dtype


def test_one_token_has_a_story_too() -> None:
    assert all(check.passed for check in told("task.seq_len=1", batch=1).checks)
