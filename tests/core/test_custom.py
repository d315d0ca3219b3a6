"""Custom attention in a stack: called with each model's weights, with seeded draws and torch's gradient."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import Config
from mhsa_cli.core.heads.capture import capture, head_maps, head_weights
from mhsa_cli.core.heads.random_baseline import Limits, null_lifts
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.model.custom import CustomAttention, CustomBlock, Sizes
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, TrainBatches, build_task
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.stack import Stack, stack_models, unstack
from mhsa_cli.errors import UsageError
from mhsa_cli.records.claims import Claim
from mhsa_cli.records.heads import Verdict

SETTINGS = ["task.name=copy", "vocab_size=13", "seq_len=8", "d_model=12", "n_heads=3", "n_layers=2", "residual=true"]


class Ours(CustomBlock):
    """Attention as a user might write it."""

    def __init__(self, sizes: Sizes, p: float = 0.0) -> None:
        super().__init__()
        self.n_heads = sizes.n_heads
        self.qkv = nn.Linear(sizes.d_model, 3 * sizes.d_model)
        self.out = nn.Linear(sizes.d_model, sizes.d_model)
        self.dropout = nn.Dropout(p)
        self.kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x)[0]

    def attend(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.n_heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(D // self.n_heads)
        weights = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf).softmax(-1)
        self.kept = weights  # with its graph: torch copies no such tensor
        return self.out((self.dropout(weights) @ v).transpose(1, 2).reshape(B, T, D)), weights


def custom(p: float = 0.0) -> CustomAttention:
    return CustomAttention("mine.py:Ours", Path("mine.py"), "0" * 64, lambda sizes: Ours(sizes, p))


def config(*more: str) -> Config:
    return load_config(None, [*SETTINGS, "model.attention=mine.py:Ours", *more], files=False)


def pair(*more: str) -> tuple[TransformerLM, TransformerLM, Task]:
    """One model with custom and one with built-in attention, of equal weights."""
    wanted = config(*more)
    task = build_task(wanted.task)
    mine = build_model(wanted, task, custom=custom())
    plain = wanted.model_copy(update={"model": wanted.model.model_copy(update={"attention": "softmax"})})
    ours = build_model(plain, task)
    given = dict(mine.named_parameters())
    for name, parameter in ours.named_parameters():
        there = name.replace("qkv_proj", "inner.block.qkv").replace("out_proj", "inner.block.out")
        parameter.data.copy_(given[there].data)
    return mine, ours, task


def rows(task: Task, *lead: int) -> Tensor:
    return torch.randint(task.vocab_size, (*lead, task.seq_len), generator=torch.Generator().manual_seed(1))


def test_it_says_what_ours_says_with_the_same_weights_and_its_maps_are_ours() -> None:
    mine, ours, task = pair()
    ids = rows(task, 5)
    torch.testing.assert_close(mine(ids), ours(ids))
    for one, other in zip(capture(mine.eval(), ids), capture(ours.eval(), ids), strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(head_weights(mine, ids), head_weights(ours, ids), strict=True):
        torch.testing.assert_close(one, other)
    maps, others = head_maps(mine, task, 3, 0), head_maps(ours, task, 3, 0)
    torch.testing.assert_close(torch.tensor(maps.weights), torch.tensor(others.weights))


def seen(verdict: Verdict) -> list[Claim]:
    return [claim for claim in verdict.claims if claim.predicate == "rows trained on"]


def test_its_rows_that_were_trained_on_are_counted_as_ours() -> None:
    mine, ours, task = pair()
    trained = TrainBatches(task, 3, 64), 400
    found, other = (head_report(one.eval(), task, 3, lambda: Limits({}, {}), trained).verdict for one in (mine, ours))
    assert seen(found) == seen(other) != []
    assert found.inputs == other.inputs


def test_its_heads_are_scored_as_ours_and_what_they_cause_is_left_out() -> None:
    mine, ours, task = pair()
    found, other = (head_report(model.eval(), task, 3, lambda: Limits({}, {})) for model in (mine, ours))
    assert found.verdict.pattern_matters is None and found.verdict.joint_delta_nats is None
    assert found.verdict.loss_nats == pytest.approx(other.verdict.loss_nats, rel=1e-5)
    assert seen(found.verdict) == seen(other.verdict) == []
    for one, two in zip(found.heads, other.heads, strict=True):
        assert one.scores.keys() == two.scores.keys() and one.scores
        for name, score in one.scores.items():
            assert score.lift == pytest.approx(two.scores[name].lift, abs=1e-5)
        assert one.uniform_delta_nats is None and one.shapley_nats is None
        assert one.evidence[-1].predicate == "effect not measured"
        assert one.evidence[-1].evidence["why"].predicate == "custom attention"


def test_a_step_of_a_stack_is_a_step_of_ours() -> None:
    mine, ours, task = pair()
    train = config("train.dtype=float64").train
    ids, targets = rows(task, 1, 5), rows(task, 1, 5)
    stacks = [Stack([model], [7], train, torch.device("cpu")) for model in (mine, ours)]
    for _ in range(3):
        for stack in stacks:
            stack.step(ids, targets, 1e-2)
    torch.testing.assert_close(stacks[0].loss, stacks[1].loss)
    own, other = (dict(unstack(stack.model).named_parameters()) for stack in stacks)
    torch.testing.assert_close(own["tok_emb.weight"], other["tok_emb.weight"])
    torch.testing.assert_close(own["blocks.0.attn.inner.block.qkv.weight"], other["blocks.0.attn.qkv_proj.weight"])


def test_in_a_stack_each_model_is_called_with_its_own_weights() -> None:
    task = build_task(config().task)
    models = [build_model(config(), task, seed, custom()) for seed in (1, 2)]
    ids = rows(task, 2, 5)
    stacked = stack_models(models)(ids)
    for slot, model in enumerate(models):
        assert torch.equal(stacked[slot], model(ids[slot]))
    assert not torch.equal(stacked[0], stacked[1])


def test_its_own_draws_come_from_the_seed_and_the_step_alone() -> None:
    task = build_task(config().task)
    ids, targets = rows(task, 1, 5), rows(task, 1, 5)

    def losses(seed: int, noise: int) -> list[float]:
        torch.manual_seed(noise)
        model = build_model(config(), task, 3, custom(0.5))
        stack = Stack([model], [seed], config().train, torch.device("cpu"))
        found = []
        for _ in range(3):
            torch.rand(noise)
            stack.step(ids, targets, 0.0)
            found.append(float(stack.loss))
        return found

    first = losses(7, 1)
    assert len(set(first)) == 3, "every step draws anew"
    assert first == losses(7, 5) != losses(8, 1)


def test_building_and_running_it_leave_torchs_generator_alone() -> None:
    task = build_task(config().task)
    torch.manual_seed(4)
    before = torch.get_rng_state()
    model = build_model(config(), task, custom=custom(0.5))
    model.train()(rows(task, 3))
    assert torch.equal(before, torch.get_rng_state())


def test_a_model_that_was_called_can_be_copied_with_what_it_kept() -> None:
    task = build_task(config().task)
    model = build_model(config(), task, custom=custom())
    first = model(rows(task, 3))
    again = copy.deepcopy(model)
    assert torch.equal(again(rows(task, 3)), first)
    with torch.no_grad():
        next(again.blocks.parameters()).zero_()
    assert not torch.equal(again(rows(task, 3)), model(rows(task, 3))), "the copy has its own weights"


def test_random_heads_are_drawn_by_its_own_constructor() -> None:
    mine, _, task = pair()
    ((_, found),) = null_lifts(mine, task)
    assert found and all(len(lift.lift) >= 200 and float(lift.lift.std()) > 0 for lift in found.values())


def test_a_config_alone_never_builds_it() -> None:
    with pytest.raises(UsageError, match="not imported by itself"):
        build_model(config(), build_task(config().task))


class DropsScores(Ours):
    """Applies dropout to scores, not weights; masked scores are `fill`."""

    def __init__(self, sizes: Sizes, fill: float) -> None:
        super().__init__(sizes, sizes.dropout)
        self.fill = fill

    def attend(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.n_heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(D // self.n_heads)
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), self.fill)
        weights = self.dropout(scores).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(B, T, D)), weights


@pytest.mark.parametrize(("fill", "says"), [(-math.inf, "NaN or infinity in training"), (-1e9, "sees the future")])
@pytest.mark.parametrize("T", [3, 40])
def test_scores_that_are_dropped_are_refused_before_training(fill: float, says: str, T: int) -> None:
    def made() -> CustomAttention:
        return CustomAttention("mine.py:Ours", Path("mine.py"), "0" * 64, lambda sizes: DropsScores(sizes, fill))

    with pytest.raises(UsageError, match=says):
        made().findings(Sizes(12, 3, T, 0.1, True))
    assert made().findings(Sizes(12, 3, T, 0.0, True)).has_weights
    assert custom(0.1).findings(Sizes(12, 3, T, 0.1, True)).has_weights
