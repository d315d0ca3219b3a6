"""Attention broken on purpose: each fault fails its check, and the check reports what it found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mhsa_cli.config.load import load_config
from mhsa_cli.core.model import attention
from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.model.kv_cache import LayerCache
from mhsa_cli.core.model.layers import Linear
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.trace import run
from mhsa_cli.core.trace.run import run_trace
from mhsa_cli.records.trace import TraceCheck

CAUSAL = torch.ones(64, 64, dtype=torch.bool).tril()
project = MultiHeadSelfAttention.project
extend = LayerCache.extend


def failed(*settings: str) -> dict[str, TraceCheck]:
    config = load_config(None, ["task.name=copy", "n_layers=2", *settings])
    trace = run_trace(config, build_task(config.task))
    return {check.name: check for check in trace.checks if not check.passed}


def by_sqrt_d_model(q: Tensor, k: Tensor, bias: Tensor | None = None) -> Tensor:
    scores = q.contiguous() @ k.contiguous().transpose(-2, -1) / math.sqrt(q.size(-1) * q.size(-3))
    return scores if bias is None else scores + bias


def all_visible(n_queries: int, n_keys: int, *_: Any, **__: Any) -> Tensor:
    return torch.ones(n_queries, n_keys, dtype=torch.bool)


def mask_after_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores.softmax(-1) * (1 if mask is None else mask)


def mask_after_softmax_patched_up(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Rows sum to one again, but the future changes the rounding: bits are compared."""
    weights = mask_after_softmax(scores, mask)
    return weights / weights.sum(-1, keepdim=True)


def filled_with_a_finite_number(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores.masked_fill(~CAUSAL[: scores.size(-2), : scores.size(-1)], -5.0).softmax(-1)


def keys_for_queries(self: MultiHeadSelfAttention, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = project(self, x, pos)
    return k, q, v


def forgets(self: LayerCache, k: Tensor, v: Tensor, pos: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    extend(self, k[..., 1:, :], v[..., 1:, :], pos[1:])
    return k, v, pos


FAULTS: list[tuple[Any, str, Callable[..., Any], set[str]]] = [
    (attention, "attention_scores", by_sqrt_d_model, {"scaling", "two paths", "logits"}),
    (attention, "causal_window", all_visible, {"future is zero", "two paths", "causal"}),
    (attention, "masked_softmax", mask_after_softmax, {"sum to one", "mask first", "causal", "two paths"}),
    (attention, "masked_softmax", mask_after_softmax_patched_up, {"causal"}),
    (attention, "masked_softmax", filled_with_a_finite_number, {"future is zero", "mask first", "causal"}),
    (MultiHeadSelfAttention, "project", keys_for_queries, {"two paths", "logits"}),
    (LayerCache, "extend", forgets, {"cache"}),
]


@pytest.mark.parametrize(
    ("where", "name", "fault", "checks"), FAULTS, ids=[fault.__name__ for _, _, fault, _ in FAULTS]
)
def test_a_fault_fails_its_checks(
    where: Any, name: str, fault: Callable[..., Any], checks: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failed() == {}
    monkeypatch.setattr(where, name, fault)
    assert checks <= set(failed())


def test_a_wrong_shape_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    symbols = run.symbols_of
    monkeypatch.setattr(run, "symbols_of", lambda *args: {**symbols(*args), "d_head": 5})
    facts = failed("positions=none")["shapes"].facts
    assert (facts["count"], len(facts["wrong"])) == (31, 8) and set(facts["wrong"]) == {"q", "k", "v", "context"}


def test_a_failed_check_has_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "attention_scores", by_sqrt_d_model)
    facts = failed()["scaling"].facts
    assert (facts["divisor"], facts["sqrt(D)"]) == pytest.approx((5.657, 5.657), abs=1e-3)
    assert facts["sqrt(d_head)"] == pytest.approx(2.828, abs=1e-3)


def test_a_nan_passes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Linear.forward
    monkeypatch.setattr(Linear, "forward", lambda self, x: forward(self, x) * math.nan)
    assert {"sum to one", "causal", "two paths", "logits", "gradients"} <= set(failed())
