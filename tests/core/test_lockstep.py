"""Lockstep training: each run is bit for bit the run alone, whatever happens to the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor

from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import Config
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.lockstep import Group, records_of
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.records.training import EvalRecord, FailRecord, Record, SaveRecord, StepRecord
from tests.core.test_engine import poison_gradient

CPU = torch.device("cpu")
BARE = ["task.name=copy", "vocab_size=13", "seq_len=6", "d_model=20", "n_heads=2", "batch_size=5"]
RICH = ["n_layers=2", "residual=true", "norm=rmsnorm", "d_mlp=28", "dropout=0.1", "positions=learned", "grad_clip=0.7"]
FORMS = {"bare": BARE, "rich": BARE + RICH}


def configs(form: str, seeds: Sequence[int], *more: str) -> list[Config]:
    short = ["epochs=2", "steps_per_epoch=7", "eval_sequences=9", "save_every=7", *more]
    return [load_config(None, [*FORMS[form], *short, f"seed={seed}"]) for seed in seeds]


def collect(
    wanted: Sequence[Config], resume: Sequence[Mapping[str, bytes]] | None = None
) -> tuple[Group, list[list[Record | FailRecord]]]:
    group = Group(wanted, build_task(wanted[0].task), CPU, resume=resume)
    found: list[list[Record | FailRecord]] = [[] for _ in wanted]
    for run, record in group.records():
        found[run].append(record)
    return group, found


@pytest.mark.parametrize("form", FORMS)
def test_every_run_of_a_group_is_the_run_alone(form: str) -> None:
    wanted = configs(form, [3, 8, 5])
    group, found = collect(wanted)
    for run, config in enumerate(wanted):
        alone = Group([config], build_task(config.task), CPU)
        records = list(records_of(alone))
        assert weights_sha256(group.model(run)) == weights_sha256(alone.model(0))
        figures = [r for r in records if not isinstance(r, SaveRecord | SnapshotRecord)]
        assert [r for r in found[run] if not isinstance(r, SaveRecord | SnapshotRecord)] == figures
        for mine, own in zip(saves(found[run]), saves(records), strict=True):
            assert mine == own
        heads = [(r.step, r.maps) for r in found[run] if isinstance(r, SnapshotRecord)]
        assert heads == [(r.step, r.maps) for r in records if isinstance(r, SnapshotRecord)]


def saves(records: Sequence[Record | FailRecord]) -> list[SaveRecord]:
    return [r for r in records if isinstance(r, SaveRecord)]


def test_a_resumed_group_goes_on_as_if_it_had_never_stopped() -> None:
    wanted = configs("rich", [4, 2])
    whole, found = collect(wanted)
    middle = [next(s.files for s in saves(records) if s.step == 7) for records in found]
    again, later = collect(wanted, middle)
    for run in range(2):
        assert weights_sha256(again.model(run)) == weights_sha256(whole.model(run))
        steps = [r for r in found[run] if isinstance(r, StepRecord) and r.step > 7]
        assert [r for r in later[run] if isinstance(r, StepRecord)] == steps


def test_no_step_is_evaluated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    real = Stack.evaluate

    def evaluate(stack: Stack, inputs: Tensor, targets: Tensor) -> tuple[list[float], list[float]]:
        measured.append(stack.updates)
        return real(stack, inputs, targets)

    monkeypatch.setattr(Stack, "evaluate", evaluate)
    wanted = configs("bare", [4, 2])
    _, found = collect(wanted)
    assert measured == [0, 7, 14]
    measured.clear()
    _, later = collect(wanted, [next(s.files for s in saves(records) if s.step == 7) for records in found])
    assert measured == [7, 14]
    for before, after in zip(found, later, strict=True):
        told = [r for r in after if isinstance(r, EvalRecord)]
        assert told == [r for r in before if isinstance(r, EvalRecord) and r.step >= 7] and len(told) == 2


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_run_that_is_not_finite_ends_and_the_others_do_not_notice(value: float) -> None:
    wanted = configs("rich", [3, 8, 5])
    expected, _ = collect(wanted)
    group = Group(wanted, build_task(wanted[0].task), CPU)

    poison_gradient(group.stack, lambda: torch.tensor([1.0, value, 1.0]) if group.step == 4 else 1.0)
    found: list[list[Record | FailRecord]] = [[] for _ in wanted]
    for run, record in group.records():
        found[run].append(record)
    fails = [r for r in found[1] if isinstance(r, FailRecord)]
    assert [f.step for f in fails] == [4] and "train.lr" in fails[0].hint
    assert fails[0].message.startswith(
        f"step 5: the gradient of {list(group.stack.parameters)[-1]} is not finite (loss "
    )
    assert saves(found[1])[-1].step == 4 and found[1][-1] is fails[0]
    for run in (0, 2):
        assert weights_sha256(group.model(run)) == weights_sha256(expected.model(run))
        assert [r.step for r in found[run] if isinstance(r, StepRecord)] == list(range(1, 15))
        assert not any(isinstance(r, FailRecord) for r in found[run])


@pytest.mark.parametrize(
    ("at", "told"), [(4, 5), (7, 7), (14, 14)], ids=["by the next step", "at a save", "at the end"]
)
def test_a_weight_that_is_not_finite_is_never_saved(at: int, told: int) -> None:
    wanted = configs("rich", [3, 8, 5])
    expected, _ = collect(wanted)

    def spoil() -> bool:  # asked after every step, before its checkpoint
        if group.step == at and len(group.runs) == 3:
            group.stack.parameters["lm_head.bias"].data[1, 2] = math.nan
        return False

    group = Group(wanted, build_task(wanted[0].task), CPU, stop=spoil)
    found: list[list[Record | FailRecord]] = [[] for _ in wanted]
    for run, record in group.records():
        found[run].append(record)
    last = found[1][-1]
    assert isinstance(last, FailRecord) and last.message == f"step {told}: a weight of lm_head.bias is not finite"
    assert [s.step for s in saves(found[1])] == [step for step in (0, 7) if step < at]
    for run in (0, 2):
        assert weights_sha256(group.model(run)) == weights_sha256(expected.model(run))


def test_runs_of_different_shape_are_no_group() -> None:
    pair = [*configs("bare", [1]), *configs("bare", [2], "lr=1e-3")]
    with pytest.raises(ValueError, match="seeds only"):
        Group(pair, build_task(pair[0].task), CPU)
