"""Training: observing changes nothing, stopping loses nothing, and non-finite values stop it in time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import Config
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.lockstep import Group, build_model, records_of
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.errors import NonFiniteError, RunError
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.records.training import EpochRecord, EvalRecord, Record, SaveRecord, StepRecord
from tests.settings import later_wins

CPU = torch.device("cpu")
# Every size is different, and every part of the model is there.
RICH = [
    "task.name=copy",
    "task.vocab_size=17",
    "task.seq_len=10",
    "task.min_length=3",
    "model.d_model=24",
    "model.n_heads=3",
    "model.n_layers=2",
    "model.d_mlp=29",
    "model.residual=true",
    "model.norm=layernorm",
    "model.positions=learned",
    "model.dropout=0.1",
    "train.batch_size=7",
    "train.epochs=2",
    "train.steps_per_epoch=9",
    "train.eval_sequences=11",
    "train.grad_clip=0.7",
    "train.schedule=cosine",
    "train.warmup_steps=4",
    "train.weight_decay=0.01",
]


def rich(*more: str) -> Config:
    return load_config(None, later_wins(*RICH, *more))


def run(config: Config, resume: Mapping[str, bytes] | None = None) -> tuple[Group, list[Record]]:
    group = Group([config], build_task(config.task), CPU, resume=None if resume is None else [resume])
    return group, list(records_of(group))


def digest(config: Config) -> str:
    return weights_sha256(run(config)[0].model(0))


@pytest.fixture(scope="module")
def usual() -> str:
    return digest(rich())


@pytest.fixture(scope="module")
def whole() -> tuple[Group, list[Record]]:
    """A run that saved after every step and was never stopped; tests only read it."""
    return run(rich("train.save_every=1"))


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(usual: str) -> None:
    assert digest(rich()) == usual != digest(rich("train.seed=43"))


@pytest.mark.parametrize(
    "how", [["train.log_every=5"], ["train.eval_every=2"], ["train.save_every=1"], ["train.eval_sequences=3"]]
)
def test_observing_more_or_less_often_changes_no_weight(how: list[str], usual: str) -> None:
    assert digest(rich(*how)) == usual


def test_the_callers_random_numbers_change_no_weight_and_are_not_used_up(usual: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert digest(rich()) == usual
    assert torch.equal(torch.get_rng_state(), before)


# The first step, the last of the warm-up and the next, those around the end of an epoch, and the last but one.
@pytest.mark.parametrize("stop", [1, 4, 5, 8, 9, 10, 17])
def test_stopping_after_any_step_and_resuming_equals_never_stopping(
    stop: int, whole: tuple[Group, list[Record]]
) -> None:
    group, records = whole
    files = next(r.files for r in records if isinstance(r, SaveRecord) and r.step == stop)
    resumed, rest = run(rich("train.save_every=1"), files)
    assert weights_sha256(resumed.model(0)) == weights_sha256(group.model(0))
    assert torch.equal(resumed.stack.moment2, group.stack.moment2)
    measured = (EvalRecord, EpochRecord)  # of a step come after its save
    said = [r for r in records if r.step > stop or (r.step == stop and isinstance(r, measured))]
    said = [r for r in said if not isinstance(r, SaveRecord)]
    assert [r for r in rest if not isinstance(r, SaveRecord)] == said


def test_every_step_is_recorded_once_and_in_order() -> None:
    _, records = run(rich())
    assert [r.step for r in records if isinstance(r, StepRecord)] == list(range(1, 19))
    assert [r.step for r in records if isinstance(r, EvalRecord)] == [0, 9, 18]
    saves = [(r.step, r.reason) for r in records if isinstance(r, SaveRecord)]
    assert saves == [(0, "start"), (9, "periodic"), (18, "end")]
    epoch = next(r for r in records if isinstance(r, EpochRecord))
    losses = [r.loss for r in records if isinstance(r, StepRecord)][:9]
    assert epoch.loss == pytest.approx(sum(losses) / 9, abs=1e-12)


def test_no_epochs_save_the_untrained_model() -> None:
    group, records = run(rich("train.epochs=0", "train.warmup_steps=0"))
    assert [type(r) for r in records] == [EvalRecord, SnapshotRecord, SaveRecord]
    fresh = build_model(rich(), group.task)
    assert weights_sha256(group.model(0)) == weights_sha256(fresh)


def test_a_stop_is_obeyed_after_the_step_with_a_checkpoint_of_it() -> None:
    config = rich()
    group = Group([config], build_task(config.task), CPU, stop=lambda: group.step >= 5)
    records = list(records_of(group))
    last = records[-1]
    assert isinstance(last, SaveRecord) and (last.step, last.reason) == (5, "stop")
    assert [r.step for r in records if isinstance(r, StepRecord)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("step", [1, 6, 12])
def test_a_gradient_that_is_not_finite_stops_before_it_reaches_a_weight(
    step: int, value: float, whole: tuple[Group, list[Record]]
) -> None:
    healthy = rich("train.save_every=1")
    expected = next(r for r in whole[1] if isinstance(r, SaveRecord) and r.step == step - 1)
    group = Group([healthy], build_task(healthy.task), CPU)

    poison_gradient(group.stack, lambda: value if group.step == step - 1 else 1.0)
    records: list[Record] = []
    with pytest.raises(NonFiniteError, match=f"step {step}: ") as caught:
        records.extend(iter_into(group, records))
    assert caught.value.exit_code == 3 and "train.lr" in str(caught.value)
    last = records[-1]
    assert isinstance(last, SaveRecord) and last.step == step - 1
    assert last.files["model.safetensors"] == expected.files["model.safetensors"]
    assert last.files["optimizer.safetensors"] == expected.files["optimizer.safetensors"]


def poison_gradient(stack: Stack, factors: Callable[[], float | Tensor]) -> None:
    """Multiply the gradient of each model's last parameter by its factor, at every step."""
    compute = stack.analytic
    assert compute is not None

    def poisoned(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        figures = compute(inputs, targets)
        gradient = list(stack.views(stack.gradients).values())[-1].view(stack.M, -1)
        gradient *= torch.as_tensor(factors()).view(-1, 1)
        return figures

    stack.analytic = poisoned  # type: ignore[assignment]


def iter_into(group: Group, records: list[Record]) -> list[Record]:
    for record in records_of(group):
        records.append(record)
    return []


def test_a_checkpoint_of_another_model_is_refused_in_the_configs_words(whole: tuple[Group, list[Record]]) -> None:
    files = next(r.files for r in whole[1] if isinstance(r, SaveRecord))
    with pytest.raises(RunError, match=r"up.weight is \(29, 24\), the config makes it \(31, 24\)"):
        run(rich("model.d_mlp=31"), files)


@pytest.mark.parametrize("more", [[], ["train.eval_every=1", "train.save_every=1"]])
def test_the_seconds_of_training_are_those_of_its_steps_alone(more: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes 2 s by the test's clock, an evaluation and a save 100."""
    now = [0.0]

    def lasting(seconds: float, real: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*given: Any, **more: Any) -> Any:
            now[0] += seconds
            return real(*given, **more)

        return slow

    for owner, name, seconds in ((Stack, "step", 2.0), (Stack, "evaluate", 100.0), (Group, "save", 100.0)):
        monkeypatch.setattr(owner, name, lasting(seconds, getattr(owner, name)))
    config = rich(*more)
    group = Group([config], build_task(config.task), CPU, stop=lambda: group.step == 9, clock=lambda: now[0])
    files = next(r.files for r in reversed(list(records_of(group))) if isinstance(r, SaveRecord))
    assert group.trained() == (9 * 7 * 10, 18.0) and now[0] > 300
    resumed = Group([config], build_task(config.task), CPU, resume=[files], clock=lambda: now[0])
    assert resumed.trained() == (0, 0.0) and len(list(records_of(resumed))) > 9
    assert resumed.trained() == (9 * 7 * 10, 18.0)


def test_evaluation_repeats_itself_and_leaves_the_model_training() -> None:
    config = rich()
    group = Group([config], build_task(config.task), CPU)
    assert group.evaluate()[0] == group.evaluate()[0]
    assert group.stack.model.training


@pytest.mark.parametrize("chunk", [1, 3, 4, 11])
def test_evaluation_does_not_depend_on_its_chunks(chunk: int) -> None:
    config = rich()
    group = Group([config], build_task(config.task), CPU)
    inputs, targets = group.eval_inputs, group.eval_targets
    loss, accuracy = group.stack.evaluate(inputs, targets, chunk)
    whole = group.last_eval[0]
    assert loss[0] == pytest.approx(whole.loss, abs=1e-6) and accuracy[0] == whole.accuracy


def test_tied_embeddings_stay_tied_through_training_and_a_checkpoint() -> None:
    config = rich("model.tie_embeddings=true")
    group, records = run(config)
    model = group.model(0)
    assert model.lm_head.weight is model.tok_emb.weight
    last = next(r for r in reversed(records) if isinstance(r, SaveRecord))
    again, _ = run(config, last.files)
    assert weights_sha256(again.model(0)) == weights_sha256(model)


def test_float64_is_float64_throughout() -> None:
    group, records = run(rich("train.dtype=float64", "train.epochs=1"))
    assert group.stack.weights.dtype == group.stack.loss.dtype == torch.float64
    _, narrow = run(rich("train.epochs=1"))
    wide = [r.loss for r in records if isinstance(r, StepRecord)]
    close = [r.loss for r in narrow if isinstance(r, StepRecord)]
    assert wide == pytest.approx(close, abs=1e-3) and wide != close
