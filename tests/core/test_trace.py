"""The tensor story: shapes as the lessons print them, sums by hand, and checks that can fail."""

from __future__ import annotations

import pytest
import torch

from mhsa_cli.config.load import load_config
from mhsa_cli.core import attention
from mhsa_cli.core.story import tell
from mhsa_cli.core.tasks import build_task
from mhsa_cli.records import Trace, TraceStep


def told(*settings: str, batch: int = 2, forward_only: bool = False) -> Trace:
    config = load_config(None, settings)
    return tell(config, build_task(config.task), batch=batch, forward_only=forward_only)


def step(trace: Trace, name: str, how: str) -> TraceStep:
    return next(s for s in trace.steps if (s.name, s.how) == (name, how))


def test_the_shape_trace_of_the_interview_lesson() -> None:
    """B=2, L=5, d_model=16, n_heads=4, line for line."""
    trace = told("task.seq_len=5", "model.d_model=16", "model.n_heads=4")
    lines = [
        ("x", "+ sinusoidal", (2, 5, 16)),
        ("q", "split", (2, 5, 16)),
        ("q", "split heads", (2, 4, 5, 4)),
        ("scores", "q @ kT", (2, 4, 5, 5)),
        ("scaled", "/ sqrt(4)", (2, 4, 5, 5)),
        ("weights", "softmax", (2, 4, 5, 5)),
        ("context", "weights @ v", (2, 4, 5, 4)),
        ("merged", "merge heads", (2, 5, 16)),
        ("y", "out_proj", (2, 5, 16)),
    ]
    assert [tuple(step(trace, name, how).shape) for name, how, _ in lines] == [shape for *_, shape in lines]
    assert tuple(step(trace, "q", "split heads").symbols) == ("B", "H", "T", "d_head")


def test_the_exercise_with_three_heads_of_width_four() -> None:
    trace = told("task.seq_len=4", "model.d_model=12", "model.n_heads=3")
    assert trace.sizes["d_head"] == 4
    assert tuple(step(trace, "q", "split heads").shape) == (2, 3, 4, 4)
    assert tuple(step(trace, "scores", "q @ kT").shape) == (2, 3, 4, 4)


def test_gpt2_smalls_attention_has_4_d_squared_parameters() -> None:
    trace = told("model.d_model=768", "model.n_heads=12", "model.bias=false", forward_only=True)
    assert trace.attention_parameters == 2_359_296 and trace.attention_formula == "4*D*D"
    assert all(check.passed for check in trace.checks)
    assert all(part.gradient_norm is None for part in trace.parts)


def test_flops_bytes_views_and_strides_by_hand() -> None:
    """B=3 T=5 D=12 H=2 d_head=6 V=64."""
    trace = told("task.seq_len=5", "model.d_model=12", "model.n_heads=2", batch=3)
    assert step(trace, "qkv", "qkv_proj").flops == 3 * 5 * 36 * (2 * 12 + 1)
    assert step(trace, "scores", "q @ kT").flops == 2 * 3 * 2 * 5 * 5 * 6
    assert step(trace, "context", "weights @ v").flops == 2 * 3 * 2 * 5 * 5 * 6
    assert step(trace, "logits", "lm_head").flops == 3 * 5 * 64 * 25
    heads = step(trace, "k", "split heads")
    assert (heads.data, heads.bytes, tuple(heads.strides)) == ("view", 0, (180, 6, 36, 1))
    merged = step(trace, "merged", "merge heads")
    assert (merged.data, merged.bytes) == ("copy", 3 * 5 * 12 * 4)
    assert trace.cache.bytes_per_token == 2 * 12 * 4 and trace.cache.bytes_at_max == 5 * 96


def test_sharing_heads_shrinks_the_cache_and_linear_attention_ends_its_growth() -> None:
    shared = told("model.n_kv_heads=1")
    assert shared.cache.all_heads_bytes == 4 * shared.cache.bytes_at_max
    assert shared.attention_formula == "2*D*D+2*D*G*d_head+2*D+2*G*d_head"
    linear = told("model.attention=linear").cache
    assert not linear.grows and linear.bytes_at_max == 4 * 8 * 9 * 4


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rope", "alibi", "none"])
@pytest.mark.parametrize("kind", ["softmax", "linear", "uniform"])
@pytest.mark.parametrize(
    "more",
    [[], ["n_kv_heads=2", "n_layers=2", "norm=layernorm", "residual=true", "d_mlp=21", "mlp=swiglu"], ["norm=rmsnorm"]],
)
def test_the_story_is_the_models_own_for_every_form(positions: str, kind: str, more: list[str]) -> None:
    if (positions, kind) == ("alibi", "linear"):
        return
    trace = told(f"model.positions={positions}", f"model.attention={kind}", *more)
    assert {check.name for check in trace.checks if not check.passed} == set()
    assert "logits" in {check.name for check in trace.checks}
    assert trace.parameters == sum(part.parameters for part in trace.parts)
    assert (kind == "softmax") == any(s.name == "scores" for s in trace.steps)


def wrongly_scaled(q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    scores = q.contiguous() @ k.contiguous().transpose(-2, -1) / (q.size(-1) * q.size(-3)) ** 0.5
    return scores if bias is None else scores + bias


def test_a_wrong_scale_fails_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "attention_scores", wrongly_scaled)
    failed = {check.name for check in told().checks if not check.passed}
    assert {"scaling", "two paths"} <= failed


def test_a_mask_that_shows_the_future_fails_its_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "causal_window", lambda q, k, *_, **__: torch.ones(q, k, dtype=torch.bool))
    failed = {check.name for check in told("task.seq_len=9").checks if not check.passed}
    assert "future is zero" in failed and "two paths" in failed


def test_one_token_has_a_story_too() -> None:
    assert all(check.passed for check in told("task.seq_len=1").checks)
