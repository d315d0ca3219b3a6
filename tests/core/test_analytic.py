"""Analytic gradients equal those of autograd for all supported models, and no other model uses them."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import Config
from mhsa_cli.core.model.layers import LayerNorm
from mhsa_cli.core.model.positions import RopePositions
from mhsa_cli.core.tasks import TrainBatches, build_task
from mhsa_cli.core.tasks.base import IGNORE
from mhsa_cli.core.training.analytic import attention, gradient
from mhsa_cli.core.training.analytic.gradient import has_analytic_gradient
from mhsa_cli.core.training.analytic.loss import CrossEntropy
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.stack import Stack, unstack
from tests.settings import later_wins

CPU = torch.device("cpu")


def config(*more: str) -> Config:
    sizes = ["task.vocab_size=19", "task.seq_len=10", "model.d_model=24", "model.n_heads=3", "train.batch_size=7"]
    return load_config(None, later_wins("task.name=copy", *sizes, *more))


def stack_of(settings: Config, seeds: list[int]) -> Stack:
    task = build_task(settings.task)
    return Stack([build_model(settings, task, seed) for seed in seeds], seeds, settings.train, CPU)


FORMS = {
    "bare": [],
    "learned positions": ["positions=learned", "max_seq_len=13"],
    "no positions, no bias": ["positions=none", "model.bias=false"],
    "residual": ["residual=true", "n_layers=2"],
    "norm without residual": ["norm=layernorm"],
    "mlp": ["d_mlp=20", "n_layers=2"],
    "block": ["residual=true", "norm=layernorm", "d_mlp=20", "n_layers=3", "positions=learned"],
    "long rows": ["residual=true", "norm=layernorm", "n_layers=2"],  # long by a patch
    "relu and wide heads": ["d_mlp=20", "mlp=relu", "d_head=5", "residual=true"],
    "unmasked": ["residual=true", "n_layers=2", "causal=false"],
    "long unmasked rows": ["residual=true", "n_layers=2", "causal=false"],
    "block without bias": ["residual=true", "norm=layernorm", "d_mlp=20", "model.bias=false"],
}

# Six heads, of which the rotated ones need an even width and the grouped ones keys for two or three each.
OTHER_FORMS = {
    "rope": ["positions=rope", "n_layers=2"],
    "rope half": ["positions=rope", "rope_layout=half"],
    "grouped": ["n_kv_heads=2", "d_mlp=20", "residual=true"],
    "multi-query": ["n_kv_heads=1"],
    "tied": ["tie_embeddings=true", "positions=learned"],
    "uniform": ["attention=uniform", "n_kv_heads=3", "n_layers=2", "residual=true"],
    "window": ["window=3"],
    "alibi": ["positions=alibi", "n_kv_heads=3"],
    "linear": ["attention=linear", "positions=rope", "n_kv_heads=2"],
    "rmsnorm": ["norm=rmsnorm", "residual=true", "n_layers=2"],
    "swiglu": ["d_mlp=20", "mlp=swiglu", "residual=true"],
    "llama": [
        "d_mlp=20",
        "mlp=swiglu",
        "norm=rmsnorm",
        "residual=true",
        "positions=rope",
        "n_kv_heads=2",
        "n_layers=2",
    ],
    "long rotated rows": ["positions=rope", "rope_layout=half", "n_kv_heads=2"],  # long by a patch
    "long windows": ["window=3", "positions=alibi"],
    "long linear rows": ["attention=linear"],
    "long uniform rows": ["attention=uniform"],
}
FORMS |= OTHER_FORMS

TASKS, SEEDS = ["task.min_length=2", "task.name=shift"], [[4], [4, 9, 2]]
SHAPES = list(itertools.product(set(FORMS) - set(OTHER_FORMS), [1, 3, 24], TASKS, SEEDS))
SHAPES = sorted(SHAPES) + list(itertools.product(OTHER_FORMS, [6], TASKS, SEEDS))
# Each form with each number of heads, on each task and in each stack in turn; tests/long has the others.
IN_TURN = [shape for at, shape in enumerate(SHAPES) if at % 4 in ((0, 3), (1, 2))[at // 4 % 2]]


@pytest.mark.parametrize(("form", "heads", "task", "seeds"), IN_TURN)
def test_every_gradient_equals_autograds(
    form: str, heads: int, task: str, seeds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient, "SHORT", 4 if "long" in form else 24)
    wide = config(f"model.n_heads={heads}", "train.dtype=float64", task, *FORMS[form])
    stack = stack_of(wide, seeds)
    # Wide weights: with those of an untrained model the softmax is nearly uniform and a wrong gradient would hide.
    stack.weights.normal_(std=0.4, generator=torch.Generator().manual_seed(1))
    batches = [TrainBatches(build_task(wide.task), seed, 7)[1] for seed in seeds]
    inputs, targets = (torch.stack([getattr(b, part) for b in batches]) for part in ("inputs", "targets"))
    assert stack.analytic is not None
    stack.analytic(inputs.flip(0), targets.flip(0))  # its buffers are used again
    stack.gradients.fill_(7.0)
    if "pos_emb" in str(stack.parameters):
        stack.views(stack.gradients)["positions.pos_emb.weight"].zero_()
    by_hand, by_hand_gradients = stack.analytic(inputs, targets), stack.gradients.clone()
    losses = torch.stack([plain_loss(stack, *rows) for rows in enumerate(zip(inputs, targets, strict=True))])
    theirs = dict(zip(stack.parameters, torch.autograd.grad(losses.sum(), stack.leaves), strict=True))
    assert torch.allclose(by_hand[0], losses, atol=1e-12)
    for name, mine in stack.views(by_hand_gradients).items():
        assert torch.allclose(mine, theirs[name], atol=1e-11), name
        # Keys shifted by one constant change no score: their bias has no gradient. All else has.
        assert float(theirs[name].abs().max()) > 1e-6, name
    by_autograd = stack.by_autograd(inputs, targets)
    assert torch.equal(by_hand[1], by_autograd[1])
    assert torch.allclose(by_hand_gradients[: stack.size], stack.gradients[: stack.size], atol=1e-11)


def plain_loss(stack: Stack, slot: int, rows: tuple[Tensor, Tensor]) -> Tensor:
    """Compute one model's loss with torch's own functions from the stack's parameters."""
    model, inputs, targets = unstack(stack.model, slot), *rows
    logits = torch.func.functional_call(model, {n: p[slot] for n, p in stack.parameters.items()}, inputs)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)


@pytest.mark.parametrize("hidden", [0.0, 0.4, 0.9])
def test_answers_are_cross_entropys_with_its_gradient(hidden: float) -> None:
    M, B, T, V = 3, 4, 6, 11
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(M, B, T, V, generator=generator, dtype=torch.float64).mul_(4).requires_grad_()
    targets = torch.randint(V, (M, B, T), generator=generator)
    targets[torch.rand(M, B, T, generator=generator) < hidden] = IGNORE
    targets[:, 0, 0] = 3  # each model has an answer
    answers = CrossEntropy(torch.empty(M, B * T, V, dtype=torch.float64), lambda _, s, d: torch.full(s, 7, dtype=d))
    for _ in range(2):  # its buffers are used again
        loss, accuracy = answers(logits.detach().flatten(1, 2), targets)
    for m in range(M):
        theirs = F.cross_entropy(logits[m].flatten(0, 1), targets[m].flatten(), ignore_index=IGNORE)
        (backward,) = torch.autograd.grad(theirs, logits)
        assert torch.allclose(loss[m], theirs, atol=1e-12)
        assert torch.allclose(answers.d_logits[m], backward[m].flatten(0, 1), atol=1e-12)
        right = [i == t for i, t in zip(logits[m].argmax(-1).flatten(), targets[m].flatten(), strict=True) if t >= 0]
        assert float(accuracy[m]) == pytest.approx(sum(map(int, right)) / len(right), abs=1e-12)


DROPPING = {
    "bare": [],
    "block": ["residual=true", "norm=layernorm", "d_mlp=20", "n_layers=2", "positions=learned"],
    "grouped": ["n_kv_heads=2", "positions=alibi", "residual=true"],
    "uniform": ["attention=uniform", "n_kv_heads=2"],
    "linear": ["attention=linear"],
    "long rows": ["residual=true"],  # long by a patch
    "long rows of narrow heads": ["d_head=1"],  # whose models are computed one by one
}


@pytest.mark.parametrize("seeds", SEEDS, ids=len)
@pytest.mark.parametrize("form", DROPPING)
def test_dropout_drops_what_autograd_drops(form: str, seeds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient, "SHORT", 4 if "long" in form else 24)
    settings = config("n_heads=6", "train.dtype=float64", "dropout=0.3", *DROPPING[form])
    check_against_autograd(settings, seeds)


def check_against_autograd(settings: Config, seeds: list[int]) -> None:
    """Compare losses, accuracies and gradients of two roads that draw the same numbers for dropout."""
    stack = stack_of(settings, seeds)
    stack.weights[: stack.size].normal_(std=0.4, generator=torch.Generator().manual_seed(1))
    batches = [TrainBatches.of(build_task(settings.task), settings.train)[seed] for seed in seeds]
    inputs, targets = (torch.stack([getattr(b, part) for b in batches]) for part in ("inputs", "targets"))
    assert stack.analytic is not None
    found = []
    for road in (stack.analytic, stack.by_autograd, stack.analytic):
        for seed, generator in zip(seeds, stack.generators, strict=False):
            generator.manual_seed(seed)
        figures = road(inputs, targets)
        found.append((*figures, *stack.views(stack.gradients.clone()).values()))
    scale = max(1.0, *(float(g.abs().max()) for g in found[1]))
    for mine, theirs, again in zip(*found, strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-11 * scale)
        assert torch.equal(mine, again)
    if stack.generators:  # the next draws
        assert not torch.allclose(stack.analytic(inputs, targets)[0], found[0][0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("change", ["train.dtype=bfloat16", "model.encoder_layers=1"])
def test_any_other_model_is_left_to_autograd(change: str) -> None:
    plain, other = config("d_mlp=20", "residual=true"), config("d_mlp=20", "residual=true", change)
    task = build_task(plain.task)
    assert has_analytic_gradient(build_model(plain, task), plain.train.dtype)
    assert not has_analytic_gradient(build_model(other, task), other.train.dtype)


class OwnScheme(RopePositions):
    """A scheme that the written gradient does not know."""


class OwnNorm(LayerNorm):
    """A norm that it does not know."""


def test_parts_that_it_does_not_know_are_left_to_autograd() -> None:
    settings = config("positions=rope", "norm=layernorm", "d_mlp=20", "residual=true", "n_heads=6")
    task = build_task(settings.task)
    for change in range(4):
        model = build_model(settings, task)
        assert model.blocks[0].mlp is not None
        if change == 1:
            model.positions = OwnScheme(10, 4)
        elif change == 2:
            model.blocks[0].mlp_norm = OwnNorm(24)
        elif change == 3:
            model.blocks[0].mlp.activation = F.silu
        assert has_analytic_gradient(model, "float32") == (change == 0)


def test_the_tables_gradient_is_the_same_by_the_road_of_a_gpu() -> None:
    settings, seeds = config("positions=learned"), [4, 9]
    batches = [TrainBatches(build_task(settings.task), seed, 7)[1] for seed in seeds]
    inputs, targets = (torch.stack([getattr(b, part) for b in batches]) for part in ("inputs", "targets"))
    stack = stack_of(settings, seeds)
    assert stack.analytic is not None
    stack.analytic(inputs, targets)
    wanted = stack.gradients.clone()
    ((_, layout),) = stack.analytic._layouts[inputs.shape]
    layout.embedding.index_add_is_deterministic = False
    stack.gradients.fill_(7.0)
    stack.analytic(inputs, targets)
    assert torch.allclose(stack.gradients[: stack.size], wanted[: stack.size], atol=1e-7)


@pytest.mark.parametrize("pieces", [1, 2, 1000])
def test_attention_in_pieces_is_the_same_attention(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config("n_layers=2", "residual=true")
    batch = TrainBatches(build_task(settings.task), 4, 7)[1]
    whole = stack_of(settings, [4])
    assert whole.analytic is not None
    whole.analytic(batch.inputs[None], batch.targets[None])
    monkeypatch.setattr(attention, "WEIGHTS", 10 * 10 * max(1, 7 * 3 // pieces))
    tiled = stack_of(settings, [4])
    assert tiled.analytic is not None
    tiled.analytic(batch.inputs[None], batch.targets[None])
    assert torch.equal(tiled.gradients, whole.gradients)


STACKED = {
    "llama": ["positions=rope", "d_head=6", "n_kv_heads=1", "norm=rmsnorm", "d_mlp=20", "mlp=swiglu", "residual=true"],
    "linear": ["attention=linear", "positions=rope", "d_head=10", "rope_layout=half"],
    "alibi": ["positions=alibi", "n_kv_heads=1", "tie_embeddings=true"],
    "dropout": ["dropout=0.3", "d_mlp=20", "residual=true"],
    "long rows with dropout": ["dropout=0.3", "residual=true"],
}


@pytest.mark.parametrize(
    ("T", "D", "heads", "batch", "M"), [(10, 24, 3, 7, 4), (7, 12, 2, 33, 9), (5, 18, 6, 1, 3), (13, 28, 4, 61, 5)]
)
@pytest.mark.parametrize("form", [*STACKED, "bare", "block", "long rows"])
def test_a_models_bits_do_not_depend_on_its_stack(
    form: str, T: int, D: int, heads: int, batch: int, M: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient, "SHORT", 4 if "long" in form else 24)
    sizes = [f"task.seq_len={T}", f"d_model={D}", f"n_heads={heads}", f"batch_size={batch}", "name=shift"]
    settings, seeds = config(*sizes, *(FORMS | STACKED)[form]), list(range(M))
    stack = stack_of(settings, seeds)
    stack.weights[: stack.size].normal_(std=0.4, generator=torch.Generator().manual_seed(1))
    batches = [TrainBatches(build_task(settings.task), seed, batch)[1] for seed in seeds]
    inputs, targets = (torch.stack([getattr(b, part) for b in batches]) for part in ("inputs", "targets"))
    assert stack.analytic is not None
    for seed, generator in zip(seeds, stack.generators, strict=False):
        generator.manual_seed(seed)
    losses, accuracies = stack.analytic(inputs, targets)
    together = stack.views(stack.gradients)
    for slot in seeds:
        alone = stack.keep([slot])
        assert alone.analytic is not None
        for generator in alone.generators:
            generator.manual_seed(slot)
        loss, accuracy = alone.analytic(inputs[slot : slot + 1], targets[slot : slot + 1])
        assert (loss, accuracy) == (losses[slot], accuracies[slot])
        for name, own in alone.views(alone.gradients).items():
            assert torch.equal(own[0], together[name][slot]), name
