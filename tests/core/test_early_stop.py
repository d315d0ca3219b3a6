"""train.stop_at and train.patience: where a training ends, alone, resumed and in a stack, to the bit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
import torch

from mhsa_cli.config.early_stop import read_goal
from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import Config, TrainConfig
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.early_stop import Waiting, ended_by
from mhsa_cli.core.training.lockstep import Group
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.records.training import EndRecord, EpochRecord, EvalRecord, FailRecord, Record, SaveRecord, StepRecord
from tests.settings import later_wins

BASE = ["task.name=copy", "vocab_size=11", "seq_len=6", "d_model=20", "n_heads=2", "batch_size=5", "dropout=0.1",
        "epochs=4", "steps_per_epoch=10", "eval_every=3", "eval_sequences=40", "save_every=7", "lr=0.02"]  # fmt: skip
Found = list[Record | FailRecord | EndRecord]


def made(*changes: str, seeds: Sequence[int] = (1,)) -> list[Config]:
    return [load_config(None, later_wins(*BASE, *changes, f"seed={seed}")) for seed in seeds]


def trained(
    configs: Sequence[Config], resume: Sequence[Mapping[str, bytes]] | None = None
) -> tuple[Group, list[Found]]:
    group = Group(configs, build_task(configs[0].task), torch.device("cpu"), resume=resume)
    found: list[Found] = [[] for _ in configs]
    for run, record in group.records():
        found[run].append(record)
    return group, found


def saves(found: Found) -> dict[int, Mapping[str, bytes]]:
    return {record.step: record.files for record in found if isinstance(record, SaveRecord)}


def evals(found: Found) -> list[EvalRecord]:
    return [record for record in found if isinstance(record, EvalRecord)]


def test_what_ends_a_training_by_hand() -> None:
    def ends(train: TrainConfig, losses: list[float]) -> list[str | None]:
        waiting, found = Waiting(), []
        for step, loss in enumerate(losses):
            record = EvalRecord(step, loss, 1 - loss / 4)
            found.append(ended_by(train, record, waiting))
            waiting = waiting.after(record)
            assert waiting.after(record) == waiting  # a resume evaluates the step again
        return found

    losses = [0.1, 3.0, 2.0, 2.0, 2.5, 1.0, math.nan, 1.0, 1.5]
    assert ends(TrainConfig(), losses) == [None] * 9
    assert ends(TrainConfig(patience=2), losses) == [None] * 4 + ["patience", None, None, *["patience"] * 2]
    assert ends(TrainConfig(patience=3), losses) == [None] * 8 + ["patience"]
    assert ends(TrainConfig(stop_at="loss=2"), losses) == [
        None,
        None,
        *["stop_at"] * 2,
        None,
        "stop_at",
        None,
        *["stop_at"] * 2,
    ]
    assert ends(TrainConfig(stop_at="accuracy=0.5", patience=1), losses)[2:5] == ["stop_at"] * 2 + ["patience"]


def beside(rule: str) -> tuple[str, ...]:
    """What is learned within a few steps, or has a loss that rises now and then."""
    return ("lr=0.2",) if "patience" in rule else ("task.name=repeat", "seq_len=5")


RULES = ["stop_at=accuracy=0.5", "stop_at=loss=1.2", "patience=1", "patience=2"]


@pytest.mark.parametrize("rule", RULES)
def test_a_training_ends_where_the_whole_one_shows_it_and_with_its_weights(rule: str) -> None:
    whole, (before,) = trained(made(*beside(rule)))
    group, (found,) = trained(made(*beside(rule), rule))
    key, _, value = rule.partition("=")
    curve = [record for record in evals(before) if record.step]
    if key == "stop_at":
        goal = read_goal(value)
        assert goal is not None
        step = next(record.step for record in curve if goal.holds(record.loss, record.accuracy))
    else:
        n = int(value)
        step = next(
            curve[i].step for i in range(n, len(curve))
            if min(one.loss for one in curve[i - n + 1 : i + 1]) >= min(one.loss for one in curve[: i - n + 1])
        )  # fmt: skip
    assert 3 <= step < 40 and group.step == step and found[-1] == EndRecord(step, key)
    assert list(saves(found))[-1] == step
    kinds = (StepRecord, EvalRecord, EpochRecord)
    until = [one for one in before if isinstance(one, kinds) and one.step <= step]
    assert [one for one in found if isinstance(one, kinds)] == until
    assert not whole.ended and weights_sha256(group.model(0)) == weights_sha256(group.ended[0][1])
    _, (short,) = trained(made(*beside(rule), f"save_every={step}"))
    assert saves(short)[step]["model.safetensors"] == saves(found)[step]["model.safetensors"]
    assert saves(short)[step]["optimizer.safetensors"] == saves(found)[step]["optimizer.safetensors"]


@pytest.mark.parametrize("rule", RULES)
def test_resumed_anywhere_it_ends_at_the_same_step_with_the_same_bytes(rule: str) -> None:
    configs = made("save_every=1", *beside(rule), rule)
    group, (found,) = trained(configs)
    last = group.step
    assert last < 40
    for step, files in saves(found).items():
        again, (rest,) = trained(configs, [files])
        assert again.step == last and rest[-1] == found[-1], step
        assert {**saves(found), **saves(rest)} == saves(found)
        kinds = (StepRecord, EvalRecord, EpochRecord)
        wanted = [
            one
            for one in found
            if isinstance(one, kinds) and (one.step > step or one.step == step > 0 and not isinstance(one, StepRecord))
        ]
        assert [one for one in rest if isinstance(one, kinds)] == wanted, step
        assert weights_sha256(again.model(0)) == weights_sha256(group.model(0))


@pytest.mark.parametrize("rule", ["stop_at=loss=1.3", "patience=1"])
def test_in_a_stack_each_run_ends_at_its_own_step_as_alone(rule: str) -> None:
    configs = made(rule, *beside(rule), seeds=(1, 2, 3, 4, 5))
    group, together = trained(configs)
    steps = {run: record.step for run, (record, _) in group.ended.items()}
    assert len(set(steps.values())) > 1  # else the test shows nothing
    for run, config in enumerate(configs):
        alone, (found,) = trained([config])
        assert _plain(together[run]) == _plain(found) and together[run][-1] == EndRecord(
            steps[run], rule.partition("=")[0]
        )
        assert weights_sha256(group.model(run)) == weights_sha256(alone.model(0))
        assert saves(together[run]) == saves(found)


def _plain(found: Found) -> Found:
    """Scores of heads over training agree to rounding only."""
    return [one for one in found if not isinstance(one, SnapshotRecord)]
