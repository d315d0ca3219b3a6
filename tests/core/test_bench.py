"""What is measured, and what is left out because it would take too much. Speeds themselves are not tested."""

from __future__ import annotations

import subprocess
from typing import Any
from unittest import mock

import pytest
import torch

from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import Config, ModelConfig
from mhsa_cli.core.bench import measure
from mhsa_cli.core.bench.measure import (
    EFFORTS,
    PATHS,
    Effort,
    attention_speeds,
    bench_sizes,
    import_speed,
    stack_speeds,
)
from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.errors import NonFiniteError
from mhsa_cli.records.bench import AttentionSpeed, NotMeasured, StackSpeed, StepSpeed

CPU = torch.device("cpu")
TINY = ["task.vocab_size=11", "task.seq_len=6", "model.d_model=12", "model.n_heads=3", "train.batch_size=7"]


def test_every_size_is_a_valid_config_and_keeps_what_the_machine_is_asked_for() -> None:
    for name, config in bench_sizes(load_config(None, [*TINY, "train.threads=3", "train.dtype=float64"])).items():
        assert (config.train.threads, config.train.dtype) == (3, "float64"), name
        assert type(config).model_validate(config.to_dict()).to_dict() == config.to_dict(), name


def test_a_stack_is_timed_as_the_stack_it_is_called() -> None:
    seen: set[int] = set()
    original = Stack.step

    def watched(self: Stack, inputs: torch.Tensor, targets: torch.Tensor, lr: float, **more: bool) -> None:
        seen.add(len(inputs))
        original(self, inputs, targets, lr, **more)

    config = bench_sizes(load_config(None, TINY))["config"]
    with mock.patch.object(Stack, "step", watched):
        (record,) = stack_speeds(config, CPU, Effort(0.0, (5,), (), 0))
    assert seen == {5}
    assert isinstance(record, StackSpeed) and record.models == 5
    assert record.model_steps_per_second == pytest.approx(5 / (record.step_ms[1] / 1e3))


def test_stacks_that_would_hold_or_take_too_much_are_named_and_not_built() -> None:
    config = bench_sizes(load_config(None, TINY))["config"]
    effort = Effort(0.0, (1, 10_000_000), (), 0)
    small, large = stack_speeds(config, CPU, effort)
    assert isinstance(small, StackSpeed)
    assert isinstance(large, NotMeasured) and "GB" in large.why and large.what == "10000000 models"
    slow = {1: (9.0, 9.0, 9.0)}
    with mock.patch.object(measure, "step_seconds", return_value=(slow, 8)) as calls:
        _, large = stack_speeds(config, CPU, Effort(0.0, (1, 2), (), 0))
    assert isinstance(large, NotMeasured) and "18 s" in large.why and calls.call_count == 1


def test_more_threads_are_recommended_only_where_they_pay() -> None:
    config = bench_sizes(load_config(None, TINY))["config"]
    for faster, wanted in ((0.9, 1), (0.7, 4), (3.0, 1)):
        found = {1: (1.0, 1.0, 1.0), 4: (faster,) * 3}
        with (
            mock.patch.object(measure, "cores", return_value=4),
            mock.patch.object(measure, "step_seconds", return_value=(found, 8)),
        ):
            records = [r for r in measure.step_speeds("config", config, CPU, 1.0) if isinstance(r, StepSpeed)]
        assert [r.threads for r in records if r.recommended] == [wanted]
        assert [r.tokens_per_second for r in records] == pytest.approx([7 * 6, 7 * 6 / faster])


@pytest.mark.parametrize(
    "model",
    [
        ModelConfig(d_model=12, n_heads=3, d_mlp=20, n_layers=2, dropout=0.1),
        ModelConfig(d_model=12, n_heads=3, positions="alibi", window=5),
        ModelConfig(d_model=16, n_heads=4, n_kv_heads=2, positions="rope"),
        ModelConfig(d_model=12, n_heads=3, attention="uniform", max_seq_len=9),
        ModelConfig(d_model=12, n_heads=3, attention="linear", positions="learned"),
    ],
)
def test_every_path_runs_for_every_form_of_attention(model: ModelConfig) -> None:
    records = list(attention_speeds(Config().model_copy(update={"model": model}), CPU, Effort(0.0, (), (10, 31), 0)))
    assert [(r.path, r.seq_len) for r in records if isinstance(r, AttentionSpeed)] == [
        (path, T) for path in PATHS for T in (10, 31)
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_attention_is_timed_in_the_dtype_of_the_config(dtype: str) -> None:
    met: set[torch.dtype] = set()
    real = MultiHeadSelfAttention.project

    def project(self: MultiHeadSelfAttention, *given: Any) -> Any:
        found = real(self, *given)
        met.update(part.dtype for part in found)
        return found

    config = load_config(None, [*TINY, f"train.dtype={dtype}"])
    with mock.patch.object(MultiHeadSelfAttention, "project", project):
        assert list(attention_speeds(config, CPU, Effort(0.0, (), (10,), 0)))
    assert met == {getattr(torch, dtype)}


def test_rows_that_would_take_too_long_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "PATIENCE", 0.0)
    config = Config(model=ModelConfig(d_model=12, n_heads=3))
    records = list(attention_speeds(config, CPU, Effort(0.0, (), (10, 31), 0)))
    assert [r.what for r in records if isinstance(r, NotMeasured)] == [f"{path}, T=31" for path in PATHS]


def test_a_training_that_does_not_stay_finite_is_no_speed() -> None:
    config = bench_sizes(load_config(None, TINY))["config"]
    with (
        mock.patch.object(Stack, "step", side_effect=NonFiniteError("step 1: a loss is not finite")),
        mock.patch.object(Stack, "finite_slots", return_value=[]),
        pytest.raises(NonFiniteError, match="not finite"),
    ):
        measure.step_seconds(config, 1, CPU, 0.0, [1])


def test_thread_counts_that_were_not_tried_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mhsa_cli.core.bench.timing.PATIENCE", 0.0)
    monkeypatch.setattr(measure, "cores", lambda: 3)
    found = list(measure.step_speeds("config", bench_sizes(load_config(None, TINY))["config"], CPU, 0.01))
    assert [type(record).__name__ for record in found] == ["StepSpeed", "NotMeasured"]
    assert isinstance(found[1], NotMeasured) and found[1].section == "steps" and found[1].what == "config, 3 threads"


def test_the_thread_count_is_put_back() -> None:
    torch.set_num_threads(2)
    try:
        config = load_config(None, [*TINY, "train.threads=1"])
        with (
            mock.patch.object(measure, "step_seconds", side_effect=ZeroDivisionError),
            pytest.raises(ZeroDivisionError),
        ):
            list(measure.measure(config, CPU, EFFORTS["quick"]))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_no_second_process_is_no_end() -> None:
    with mock.patch.object(subprocess, "run", side_effect=PermissionError):
        assert isinstance(import_speed(1), NotMeasured)
