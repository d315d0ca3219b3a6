"""A task of one's own: held to what every task must do, and then the same as a built-in one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from mhsa_cli.config.load import load_config
from mhsa_cli.core.tasks import IGNORE, TASKS, Batch, TrainBatches, fixed_batch
from mhsa_cli.core.tasks.base import counted_chance, stream_generator
from mhsa_cli.core.tasks.own import OwnTask
from mhsa_cli.core.tasks.template import MyTask
from mhsa_cli.core.training.lockstep import Group, records_of
from mhsa_cli.core.training.overlap import seen_in_training, shared_rows
from mhsa_cli.errors import UsageError
from mhsa_cli.records.training import EvalRecord

SIZES = {"vocab_size": 9, "seq_len": 6}


class Copied:
    """The built-in copy task as somebody else would write it."""

    def __init__(self, vocab_size: int, seq_len: int) -> None:
        self.task = TASKS["copy"](vocab_size=vocab_size, seq_len=seq_len)

    def sample(self, generator: Generator, rows: int) -> tuple[Tensor, Tensor]:
        return tuple(self.task.sample(generator, rows))  # type: ignore[return-value]

    def source(self, inputs: Tensor) -> Tensor | None:
        return self.task.source(inputs)


def own(made_by: Any, **settings: Any) -> OwnTask:
    return OwnTask("mine.py:Mine", made_by, {**SIZES, **settings})


def test_it_trains_as_the_built_in_task_of_the_same_rows() -> None:
    config = load_config(None, ["task.name=copy", "task.vocab_size=9", "task.seq_len=6", "epochs=1", "d_model=8"])
    ends = []
    for task in (TASKS["copy"](**SIZES), own(Copied)):
        group = Group([config], task, torch.device("cpu"), watch=False)
        last = [record for record in records_of(group) if isinstance(record, EvalRecord)][-1]
        ends.append((last.loss, last.accuracy, group.facts(0)["parameters"]))
    assert ends[0] == ends[1]


def test_a_function_takes_its_settings_and_has_a_chance_level() -> None:
    def sums(generator: Generator, rows: int, *, vocab_size: int, extra: int = 1) -> tuple[Tensor, Tensor]:
        inputs = torch.randint(vocab_size, (rows, 3), generator=generator)
        targets = inputs.sum(1, keepdim=True) + extra
        return inputs, torch.cat([torch.full((rows, 2), IGNORE), targets % vocab_size], 1)

    task = own(sums, seq_len=3, extra=4)
    batch = task.draw(50, stream_generator(1, "test", 0))
    assert torch.equal(batch.targets[:, 2], (batch.inputs.sum(1) + 4) % 9)
    assert task.chance_accuracy == pytest.approx(1 / 9, abs=0.01)
    assert task.source(batch.inputs) is None and task.name == "Mine"
    assert counted_chance(task, 500)[0] == pytest.approx(task.chance_loss, abs=0.1)


class Base:
    """Right but for what a subclass does."""

    def sample(self, generator: Generator, rows: int) -> Any:
        inputs = torch.randint(9, (rows, 6), generator=generator)
        return inputs, inputs


class NoSample:
    pass


class OneTensor(Base):
    def sample(self, generator: Generator, rows: int) -> Any:
        return super().sample(generator, rows)[0]


class Floats(Base):
    def sample(self, generator: Generator, rows: int) -> Any:
        return tuple(ids.float() for ids in super().sample(generator, rows))


class Longer(Base):
    def sample(self, generator: Generator, rows: int) -> Any:
        inputs = torch.randint(9, (rows, 7), generator=generator)
        return inputs, inputs


class TooLarge(Base):
    def sample(self, generator: Generator, rows: int) -> Any:
        inputs, targets = super().sample(generator, rows)
        return inputs, targets + 3


class Global(Base):
    def sample(self, generator: Generator, rows: int) -> Any:
        return super().sample(torch.default_generator, rows)


class Constant(Base):
    def sample(self, generator: Generator, rows: int) -> Any:
        return super().sample(torch.Generator().manual_seed(3), rows)


class Unasked(Base):
    def sample(self, generator: Generator, rows: int) -> Any:
        inputs, _ = super().sample(generator, rows)
        return inputs, torch.full_like(inputs, IGNORE)


class Raises(Base):
    def sample(self, generator: Generator, rows: int) -> Any:
        raise KeyError("gone")


class OtherSize(Base):
    vocab_size = 8


class Ahead(Base):
    def source(self, inputs: Tensor) -> Tensor:
        return torch.ones(len(inputs), 6, 6, dtype=torch.bool)


class Elsewhere(Base):
    def source(self, inputs: Tensor) -> Tensor:
        return torch.ones(len(inputs), 6, 6, dtype=torch.bool).tril()


class OwnRowsOnly(Base):
    def sample(self, generator: Generator, rows: int) -> Any:
        inputs = torch.randint(8, (rows, 6), generator=generator)
        inputs[:, 3] = 8
        return inputs, inputs

    def source(self, inputs: Tensor) -> Tensor:
        assert (inputs[:, 3] == 8).all()
        return torch.eye(6, dtype=torch.bool).expand(len(inputs), 6, 6)


class Numbers(Base):
    def source(self, inputs: Tensor) -> Tensor:
        return inputs


class Unchanged(Base):
    def corrupt(self, inputs: Tensor) -> Tensor:
        return inputs


class OneChance(Base):
    chance = 0.5


class NoSpace(Base):
    def __init__(self, width: int) -> None:
        raise AssertionError


class Exits(Base):
    def sample(self, generator: Generator, rows: int) -> Any:
        raise SystemExit(0)


class MixedTargets(Base):
    def sample(self, generator: Generator, rows: int) -> Any:
        inputs, targets = super().sample(generator, rows)
        targets = targets.clone()
        targets[:, 0], targets[:, 1] = IGNORE, -1
        return inputs, targets


class OneRow(Base):
    def sample(self, generator: Generator, rows: int) -> Any:
        inputs = torch.full((rows, 6), 3)
        return inputs, inputs


class CorruptOutside(Base):
    def corrupt(self, inputs: Tensor) -> Tensor:
        return inputs + 1


class OneText(Base):
    def symbols(self, ids: list[int]) -> list[str]:
        return ["a"]


class NoMethod(Base):
    held_out = 0.2


class RaisingProperty(Base):
    @property
    def chance(self) -> float:
        raise RuntimeError("several\nlines")


def with_member(name: str, value: Any) -> type:
    return type("Odd", (Base,), {name: value})


ODD = [
    *(("note", 3), ("n_symbols", "many"), ("n_symbols", 10), ("separator", "x"), ("separator", 9)),
    *(("gaps", 3), ("gaps", [0]), ("goal_accuracy", "high"), ("goal_accuracy", 0), ("symbols", "abc"), ("source", 1)),
]


@pytest.mark.parametrize(("name", "value"), ODD)
def test_a_member_of_another_kind_is_refused_before_training(name: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        own(with_member(name, value))
    assert caught.value.code == "own-task" and name in caught.value.message


def test_a_property_that_raises_is_told_in_one_line() -> None:
    with pytest.raises(UsageError) as caught:
        own(RaisingProperty).chance_loss  # noqa: B018
    assert caught.value.code == "own-task" and "\n" not in caught.value.message


WRONG = [
    *(NoSample, OneTensor, Floats, Longer, TooLarge, Global, Constant, Unasked, Raises, OtherSize, Ahead, Elsewhere),
    *(Exits, MixedTargets, OneRow, CorruptOutside, OneText, NoMethod, OwnRowsOnly, Numbers, Unchanged, NoSpace),
]


@pytest.mark.parametrize("made_by", WRONG)
def test_what_no_task_may_do_is_refused_before_training(made_by: type) -> None:
    own(Base)
    with pytest.raises(UsageError) as caught:
        own(made_by)
    assert caught.value.code == "own-task"


def test_a_chance_level_that_is_said_is_taken() -> None:
    class Said(Base):
        chance = (1.5, 0.25)

    class Endless(Base):
        chance = (float("inf"), 0.25)

    assert (own(Said).chance_loss, own(Said).chance_accuracy) == (1.5, 0.25)
    for made_by in (OneChance, Endless):
        with pytest.raises(UsageError):
            own(made_by).chance_loss  # noqa: B018


def test_rows_that_are_held_out_are_not_those_of_training() -> None:
    class Split(Base):
        """The first symbol tells the part."""

        def sample(self, generator: Generator, rows: int, first: int = 0) -> Any:
            inputs = torch.randint(9, (rows, 6), generator=generator)
            inputs[:, 0] = first
            return inputs, inputs

        def held_out(self, generator: Generator, rows: int) -> Any:
            return self.sample(generator, rows, first=1)

    task = own(Split)
    assert set(fixed_batch(task, 3, "eval", 40).inputs[:, 0].tolist()) == {1}
    batches = TrainBatches(task, 3, 8)
    assert shared_rows(batches, 40) == 0 and seen_in_training(batches, 50, 40) is None
    few = own(Few, seq_len=3)
    batches = TrainBatches(few, 3, 8)
    assert shared_rows(batches, 40) == seen_in_training(batches, 50, 40) == 40


class Few:
    def sample(self, generator: Generator, rows: int) -> Any:
        inputs = torch.randint(2, (rows, 3), generator=generator)
        return inputs, inputs


def test_corrupted_rows_are_the_tasks_own() -> None:
    task = OwnTask("mine.py:MyTask", MyTask, {"vocab_size": 16, "seq_len": 8})
    batch = task.draw(30, stream_generator(1, "test", 0))
    found = task.corrupt(batch, stream_generator(2, "test", 0))
    assert torch.equal(found.inputs, (batch.inputs + 8) % 16) and torch.equal(found.targets, batch.targets)
    other = own(Base).corrupt(Batch(batch.inputs, batch.targets), stream_generator(2, "test", 0))
    assert not torch.equal(other.inputs, batch.inputs)


def test_the_marks_between_input_and_target_are_no_tokens_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("a _ | -> b\n__ a -> |\n")
    task = TASKS["rows"](rows=str(tmp_path / "own"), seq_len=5, eval_fraction=0.5)
    symbols = task.symbols(range(task.vocab_size))
    assert len(set(symbols)) == len(symbols) == 7 and symbols[-2:] == ["___", "||"]


def test_rows_of_a_file_are_split_without_an_overlap(tmp_path: Path) -> None:
    file = tmp_path / "sums.txt"
    file.write_text("".join(f"{a} + {b} -> {a + b}\n" for a in range(6) for b in range(7)) * 2)
    task = TASKS["rows"](rows=str(file), seq_len=5, eval_fraction=0.25)
    parts = [{tuple(row) for row in draw(stream_generator(1, "test", 0), 3000).inputs.tolist()}
             for draw in (task.sample, task.held_out)]  # fmt: skip
    assert not parts[0] & parts[1] and len(parts[1]) == round(42 * 0.25) and len(parts[0] | parts[1]) == 42
    batch = task.sample(stream_generator(1, "test", 0), 4)
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        a, plus, b, bar, padding = task.symbols(inputs)
        assert (plus, bar, padding) == ("+", "|", "_")
        assert [t if t == IGNORE else task.symbols([t])[0] for t in targets] == [
            IGNORE, IGNORE, IGNORE, str(int(a) + int(b)), IGNORE
        ]  # fmt: skip


def test_baselines_are_an_attribute_or_a_method() -> None:
    class Said(Base):
        baselines = {"unigram": 2, "bi[gram]": 0.5}

    class Asked(Base):
        def baselines(self) -> dict[str, float]:
            return {"unigram": 2.0, "bi[gram]": 0.5}

    assert own(Said).baselines == own(Asked).baselines == {"unigram": 2.0, "bi[gram]": 0.5}
    assert own(Base).baselines == TASKS["copy"](**SIZES).baselines == {}


@pytest.mark.parametrize(
    "said",
    [
        [1.0], {"a": "b"}, {"a": math.nan}, {"a": math.inf}, {"a": -0.1}, {"a": True}, {"": 1.0}, {3: 1.0},
        {"a" * 25: 1.0}, dict.fromkeys("abcde", 1.0),
    ],
)  # fmt: skip
def test_baselines_that_are_no_losses_are_refused(said: Any) -> None:
    task = own(type("Odd", (Base,), {"baselines": said}))
    with pytest.raises(UsageError) as caught:
        task.baselines  # noqa: B018
    assert caught.value.code == "own-task"


@pytest.mark.parametrize("goal", [0, 1.5, "high", math.nan])
def test_a_goal_is_a_share(goal: Any) -> None:
    with pytest.raises(UsageError):
        own(type("Odd", (Base,), {"goal_accuracy": goal}))
    assert own(type("Low", (Base,), {"goal_accuracy": 0.5})).goal_accuracy == 0.5
