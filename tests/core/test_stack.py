"""The update: a stack equals single models, and each part by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mhsa_cli.core.heads.capture import capture
from mhsa_cli.core.model.generate import generate
from mhsa_cli.core.tasks import TrainBatches, build_task
from mhsa_cli.core.tasks.base import IGNORE, sums
from mhsa_cli.core.trace.tensors import Recorder, forward, symbols_of
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.stack import Stack, learning_rate, unstack
from mhsa_cli.errors import NonFiniteError
from tests.core.test_engine import CPU, rich, run

FORMS = [
    (),
    ("model.dropout=0.2",),
    ("model.tie_embeddings=true", "model.norm=rmsnorm"),
    ("model.mlp=swiglu", "model.n_kv_heads=1", "model.positions=rope"),
    ("model.mlp=relu", "model.d_head=5"),
    ("model.positions=alibi", "model.window=4", "model.dropout=0.0"),
    ("model.attention=linear", "model.dropout=0.0"),
    ("train.dtype=bfloat16",),  # with its gradient by autograd
    # The bare block.
    ("model.n_layers=1", "model.d_mlp=0", "model.norm=none", "model.residual=false", "model.dropout=0.0"),
    ("model.n_layers=1", "model.mlp=relu", "model.d_head=5", "model.norm=none", "model.dropout=0.0"),
]


@pytest.mark.parametrize("settings", FORMS, ids=lambda settings: " ".join(settings) or "everything")
def test_a_stack_of_models_is_bit_for_bit_the_single_runs(settings: tuple[str, ...]) -> None:
    settings = (*settings, "train.steps_per_epoch=5")  # past the warm-up, and an evaluation between two epochs
    config = rich(*settings)
    task, seeds = build_task(config.task), [3, 1, 8]
    stack = Stack([build_model(config, task, seed) for seed in seeds], seeds, config.train, CPU)
    batches = [TrainBatches(task, seed, config.train.batch_size) for seed in seeds]
    for step in range(1, 11):
        rows = [b[step] for b in batches]
        inputs, targets = (torch.stack([getattr(r, part) for r in rows]) for part in ("inputs", "targets"))
        stack.step(inputs, targets, learning_rate(config.train, step))
    for slot, seed in enumerate(seeds):
        single, _ = run(rich(*settings, f"train.seed={seed}"))
        assert weights_sha256(unstack(stack.model, slot)) == weights_sha256(single.model(0)), f"slot {slot}"


def test_a_model_of_a_stack_has_no_generators_of_the_stack() -> None:
    config, seeds = rich("model.dropout=0.3"), [3, 1, 8]
    stack = Stack([build_model(config, build_task(config.task), seed) for seed in seeds], seeds, config.train, CPU)
    assert any(getattr(module, "generators", None) for module in stack.model.modules())
    assert not any(getattr(module, "generators", None) for module in unstack(stack.model, 1).modules())


VECTORS = [
    ("model.d_mlp=1", "model.dropout=0.0"),
    ("model.d_model=1", "model.n_heads=1", "train.batch_size=1", "model.norm=none", "model.dropout=0.0"),
]


@pytest.mark.parametrize("settings", VECTORS, ids=" ".join)
def test_models_of_width_or_length_1_are_bit_for_bit_the_single_ones(settings: tuple[str, ...]) -> None:
    """With gradients by hand: torch multiplies several matrices otherwise than one where one side is a vector."""
    config, seeds = rich(*settings), [3, 1, 8]
    task = build_task(config.task)
    batches = [TrainBatches(task, seed, config.train.batch_size) for seed in seeds]
    stacks = [
        Stack([build_model(config, task, seed) for seed in some], some, config.train, CPU)
        for some in (seeds, *([seed] for seed in seeds))
    ]
    assert all(stack.analytic is not None for stack in stacks)
    for step in range(1, 5):
        rows = [batch[step] for batch in batches]
        inputs, targets = (torch.stack([getattr(r, part) for r in rows]) for part in ("inputs", "targets"))
        for stack, some in zip(stacks, (slice(0, 3), slice(0, 1), slice(1, 2), slice(2, 3)), strict=True):
            stack.step(inputs[some], targets[some], 0.02)
    for slot, alone in enumerate(stacks[1:]):
        assert weights_sha256(unstack(stacks[0].model, slot)) == weights_sha256(unstack(alone.model, 0)), f"slot {slot}"


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "every other row": lambda ids: torch.stack([ids, ids], 2).flatten(1, 2)[:, ::2],
    "every other token": lambda ids: torch.stack([ids, ids], -1)[..., 0],
    "tokens first": lambda ids: ids.permute(2, 1, 0).contiguous().permute(2, 1, 0),
    "int32": lambda ids: ids.to(torch.int32),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("settings", [("train.dtype=bfloat16",), FORMS[-1]], ids=["autograd", "by hand"])
def test_how_ids_lie_in_memory_changes_nothing(layout: str, settings: tuple[str, ...]) -> None:
    """Slices and views, wherever ids are taken: a step, evaluation, the forward pass, its trace, maps, a prompt."""
    config = rich(*settings)
    task, batch = build_task(config.task), TrainBatches(build_task(config.task), 3, 8)[1]
    plain = [rows.view(2, 4, -1) for rows in (batch.inputs, batch.targets)]
    others = [LAYOUTS[layout](rows) for rows in plain]
    assert all(torch.equal(a, b) for a, b in zip(plain, others, strict=True))
    assert layout == "int32" or not others[0].is_contiguous()
    found = []
    for ids, targets in (plain, others):
        stack = Stack([build_model(config, task, seed) for seed in (1, 2)], [1, 2], config.train, CPU)
        assert (stack.analytic is not None) == (settings == FORMS[-1])
        stack.step(ids, targets, 1e-3)
        model = unstack(stack.model).requires_grad_(False)
        symbols = symbols_of(model, ids[0], config.model.d_mlp)
        traced = forward(model, ids[0], Recorder(symbols, config.model.positions))
        figures = [stack.loss, stack.accuracy, torch.tensor(stack.evaluate(ids, targets)), *sums(model(ids), targets)]
        said = torch.tensor(list(generate(model, ids[0, 0, :3], 4)))
        found.append([stack.weights, *figures, model(ids[0]), traced, *capture(model, ids[0]), said])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("settings", [("train.dtype=bfloat16",), FORMS[-1]], ids=["autograd", "by hand"])
def test_ids_and_targets_that_are_no_models_own_are_refused_before_the_update(settings: tuple[str, ...]) -> None:
    """One too many would be read from the next model's table, a target of -1 would be trained towards token 0."""
    config = rich(*settings)
    task, batch = build_task(config.task), TrainBatches(build_task(config.task), 3, 6)[1]
    stack = Stack([build_model(config, task, seed) for seed in (1, 2, 3)], [1, 2, 3], config.train, CPU)
    ids, targets = (rows.view(3, 2, -1) for rows in (batch.inputs, batch.targets))
    before = stack.weights.clone()
    for wrong in (task.vocab_size, -1):
        for part in range(2):
            spoilt = [ids.clone(), targets.clone()]
            spoilt[part][1, 1, 4] = wrong
            for call in (stack.step, stack.evaluate):
                with pytest.raises(ValueError) as caught:
                    call(*spoilt, 4)
                assert str(wrong) in str(caught.value) and "(1, 1, 4)" in str(caught.value)
    for rows in (ids[:2], ids[0], ids[..., :-1]):
        with pytest.raises(ValueError) as caught:
            stack.step(rows, targets, 1e-3)
        assert str(tuple(rows.shape)) in str(caught.value)
    assert torch.equal(stack.weights, before) and stack.updates == 0


@pytest.mark.parametrize(("eps", "clip"), [(1e-8, None), (1e-2, None), (1e-8, 0.05)])
def test_the_update_is_adamw(eps: float, clip: float | None) -> None:
    """The fused call on flat buffers against torch's optimiser and clipping on the ordinary model."""
    plain = ("model.dropout=0.0", "train.schedule=constant", "train.warmup_steps=0")
    config = rich(*plain, f"train.eps={eps}", f"train.grad_clip={'null' if clip is None else clip}")
    task = build_task(config.task)
    model = build_model(config, task)
    decay = config.train.weight_decay
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.train.lr, weight_decay=decay, eps=eps)
    stack = Stack([build_model(config, task)], [42], config.train, CPU)
    batches = TrainBatches(task, 42, config.train.batch_size)
    for step in range(1, 6):
        batch = batches[step]
        logits = model(batch.inputs)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        if clip is not None:
            assert float(torch.nn.utils.clip_grad_norm_(model.parameters(), clip)) > clip
        mine = stack.views(stack.gradients)
        stack.step(batch.inputs.unsqueeze(0), batch.targets.unsqueeze(0), config.train.lr)
        assert float(stack.loss) == pytest.approx(float(loss.detach()), abs=1e-5)
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            assert torch.allclose(mine[name][0], parameter.grad, atol=1e-6 if step == 1 else 1e-4), name
        optimiser.step()
    for name, parameter in model.named_parameters():  # a small eps makes steps of the rounding errors of zero gradients
        assert eps < 1e-4 or torch.allclose(stack.parameters[name][0], parameter, atol=1e-5), name


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear"])
@pytest.mark.parametrize("least", [0.0, 1e-3])
@pytest.mark.parametrize("warmup", [0, 1, 2, 19, 20])
def test_the_learning_rate_rises_to_its_peak_once_and_falls_to_the_last_step(
    schedule: str, least: float, warmup: int
) -> None:
    changes = [f"train.schedule={schedule}", f"train.warmup_steps={warmup}", "train.lr=0.02"]
    least = least if schedule != "constant" else 0.0
    train = rich("train.steps_per_epoch=10", *changes, f"train.min_lr={least}").train
    rates = [learning_rate(train, step) for step in range(1, 21)]
    assert all(least <= rate <= train.lr for rate in rates) and rates[0] > 0
    rising, falling = rates[: max(warmup, 1)], rates[max(warmup, 1) - 1 :]
    assert rising == [pytest.approx(train.lr * step / max(warmup, 1)) for step in range(1, len(rising) + 1)]
    assert rising[-1] == falling[0] == train.lr
    assert falling == sorted(falling, reverse=True)
    if schedule != "constant" and warmup < 20:
        assert len(set(falling)) == len(falling) and falling[-1] == least
        half = falling[: (len(falling) + 1) // 2]  # a cosine and a line are symmetric about their middle
        assert [a + b for a, b in zip(half, falling[::-1], strict=False)] == pytest.approx(
            [train.lr + least] * len(half)
        )


def test_the_learning_rate_by_hand() -> None:
    train = rich("train.steps_per_epoch=5", "train.schedule=linear", "train.warmup_steps=2", "train.lr=0.8").train
    expected = [0.4, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]
    assert [learning_rate(train, step) for step in range(1, 11)] == pytest.approx(expected)
    cosine = ["train.schedule=cosine", "train.warmup_steps=3", "train.lr=1.0", "train.min_lr=0.2"]
    train = rich("train.steps_per_epoch=4", "train.epochs=2", *cosine).train
    # From step 3 to step 8 the angle is 0, 36, ... 180 degrees.
    angles = [0.2 + 0.4 * (1 + math.cos(math.radians(36 * i))) for i in range(6)]
    assert [learning_rate(train, step) for step in range(1, 10)] == pytest.approx([1 / 3, 2 / 3, *angles, 0.2])
    single = rich("train.steps_per_epoch=1", "train.epochs=1", "train.schedule=linear", "train.warmup_steps=0").train
    assert learning_rate(single, 1) == single.lr  # the only step is the first one


def test_loss_and_hits_by_hand() -> None:
    logits = torch.tensor([[0.0, math.log(3.0), 0.0], [2.0, 0.0, 1.0], [9.0, 9.0, 0.0]]).view(1, 1, 3, 3)
    loss, right, count = sums(logits, torch.tensor([[[1, 0, IGNORE]]]))
    expected = -math.log(3 / 5) - math.log(math.exp(2) / (math.exp(2) + 1 + math.e))
    assert float(loss) == pytest.approx(expected) and int(right) == 2 and int(count) == 2


def test_clipping_bounds_each_models_own_norm() -> None:
    config = rich("train.grad_clip=0.01", "model.dropout=0.0")
    task = build_task(config.task)
    stack = Stack([build_model(config, task, seed) for seed in (1, 2, 3)], [1, 2, 3], config.train, CPU)
    batch = TrainBatches(task, 5, 3 * 4)[1]
    stack.step(batch.inputs.view(3, 4, -1), batch.targets.view(3, 4, -1), 1e-3)
    squares = [g.flatten(1).square().sum(1) for g in stack.views(stack.gradients).values()]
    assert torch.stack(squares).sum(0).sqrt().tolist() == pytest.approx([0.01] * 3, rel=1e-3)


def test_weights_that_exploded_are_found_by_the_next_step() -> None:
    config = rich("train.grad_clip=null")
    task = build_task(config.task)
    stack = Stack([build_model(config, task)], [42], config.train, CPU)
    stack.weights.fill_(1e30)
    batch = TrainBatches(task, 42, 5)[1]
    with pytest.raises(NonFiniteError, match="step 1"):
        stack.step(batch.inputs.unsqueeze(0), batch.targets.unsqueeze(0), 1e-3)
    assert stack.weights.unique().tolist() == [pytest.approx(1e30)] and stack.moment1.abs().max() == 0


def poised(count: int, gradient: float | None = None, loss: float = 1.0) -> tuple[Stack, list[torch.Tensor]]:
    """Make a stack whose next step finds this loss and, unless it is computed, this gradient everywhere."""
    config = rich("train.grad_clip=null", "model.dropout=0.0")
    task, seeds = build_task(config.task), list(range(count))
    stack = Stack([build_model(config, task, seed) for seed in seeds], seeds, config.train, CPU)
    real = stack.analytic or stack.by_autograd

    def compute(inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        figures = real(inputs, targets)
        if gradient is not None:
            stack.gradients[: stack.size] = gradient
        return figures[0] * loss, figures[1]

    stack.analytic = compute  # type: ignore[assignment]
    batch = TrainBatches(task, 5, count * 4)[1]
    return stack, [rows.view(count, 4, -1) for rows in (batch.inputs, batch.targets)]


@pytest.mark.parametrize(
    ("gradient", "loss"),
    [(None, math.inf), (None, math.nan), (1e25, 1.0)],
    ids=["infinite loss", "no loss", "the second moment would be infinite"],
)
def test_what_is_not_finite_beside_a_finite_gradient_stops_as_well(gradient: float | None, loss: float) -> None:
    stack, batch = poised(1, gradient, loss)
    before = stack.weights.clone()
    with pytest.raises(NonFiniteError, match="step 1"):
        stack.step(*batch, 1e-3)
    assert torch.equal(stack.weights, before) and stack.updates == 0
    assert stack.finite_slots() == [] and stack.finite_weights() == [0]


def test_a_sum_over_models_that_overflows_is_no_failure_of_any() -> None:
    stack, batch = poised(3)
    own = stack.size // 3
    stack, batch = poised(3, math.sqrt(2e38 / own))
    assert not math.isfinite(float(stack.gradients.fill_(math.sqrt(2e38 / own)).square().sum()))
    stack.step(*batch, 1e-3)
    assert stack.updates == 1 and stack.finite_slots() == [0, 1, 2]


def test_a_gradient_whose_square_overflows_is_told_by_its_tensor_and_its_model() -> None:
    config = rich("train.grad_clip=null")
    task = build_task(config.task)
    stack = Stack([build_model(config, task, seed) for seed in (2, 7, 4)], [2, 7, 4], config.train, CPU)
    gradients = stack.views(stack.gradients)
    name = list(gradients)[-2]
    gradients[name][1].view(-1)[3] = -3e22  # finite, but not its square
    assert stack.finite_slots() == [0, 2]
    assert name in stack.nonfinite(1) and "3.0e+22" in stack.nonfinite(1)
    assert not [other for other in gradients if other != name and other in stack.nonfinite(1)]
