"""Models about whose heads it is easy to say something false, and what must and must not be said of them, as ids.

Weights are set by hand or by the compiler of programs; where a lie comes from training, a tiny model is trained.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Generator

from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import Config
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks.base import Batch, Task, stream_generator
from mhsa_cli.core.training.lockstep import Group, build_model, records_of
from mhsa_cli.records.labels import Role
from tests.core.compiler import Head, Job, Program, ProgramTask, Term, compiled
from tests.core.handmade import Period, handmade
from tests.core.noise import Noise
from tests.core.program_parts import (
    FIRST,
    MARK,
    PREVIOUS,
    STARTED,
    follows,
    mapped,
    signed,
    to,
    token_at,
)

Built = tuple[TransformerLM, Task]
Says = Mapping[str, tuple[str, ...]]  # by subject: "model", or a head's address


@dataclass(frozen=True)
class Liar:
    """A model and its task; the claims that must be made of it, those that must not, its heads' roles and labels.

    `training` is the batch size and the number of steps that the report is told.
    """

    name: str
    build: Callable[[], Built]
    says: Says = field(default_factory=dict)
    never: Says = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)
    training: tuple[int, int] | None = None


def by_hand(*heads: Head, answer: Callable[..., int | None], **settings: object) -> Callable[[], Built]:
    """One layer of heads as a program."""

    def build() -> Built:
        program = Program("liar", [heads], answer, **settings)  # type: ignore[arg-type]
        return compiled(program), ProgramTask(program)

    return build


def first_of(row: list[int], q: int) -> int | None:
    return row[0] if q else None


def weak_induction() -> Built:
    """An induction head with about half of its weight on the match."""
    soft = Job(
        "weak induction",
        [Term("token", "before", lambda i, j: 0.043 * (i == j)), Term("one", "position", lambda _, k: -2 * (k == 0))],
        lambda row, q: (),
    )
    program = Program("weak", [[MARK], [Head(soft)]], token_at(follows), length=23, n_symbols=13, blocks={"before": 13})
    return compiled(program), ProgramTask(program)


class Memory(Noise):
    """Random answers to a few fixed rows; evaluated on rows of its own or, if `held_out`, on others."""

    name = "memory"

    def __init__(self, seed: int = 0, held_out: bool = True, rows: int = 12) -> None:
        super().__init__(vocab_size=11, seq_len=9)
        self.chance_loss, self.chance_accuracy = 2.3979, 1 / 11
        self.kept = super().sample(stream_generator(seed, "memory", 0), rows)
        self.others = self.holds_back = held_out

    def sample(self, generator: Generator, rows: int) -> Batch:
        chosen = torch.randint(len(self.kept.inputs), (rows,), generator=generator)
        return Batch(self.kept.inputs[chosen], self.kept.targets[chosen])

    def held_out(self, generator: Generator, rows: int) -> Batch:
        return super().sample(generator, rows) if self.others else self.sample(generator, rows)


STEPS, BATCH = 120, 12


def settings(seed: int, *more: str, steps: int = STEPS) -> Config:
    model = ["model.d_model=24", "model.n_heads=3", "model.positions=learned", "model.residual=true"]
    train = ["train.lr=0.01", "train.epochs=1", f"train.steps_per_epoch={steps}", f"train.batch_size={BATCH}"]
    return load_config(None, [*model, *train, f"train.seed={seed}", *more])


def trained(task: Task, seed: int, *more: str, steps: int = STEPS) -> TransformerLM:
    """Train a small model on a task."""
    group = Group([settings(seed, *more, steps=steps)], task, torch.device("cpu"), watch=False)
    for _ in records_of(group):
        pass
    return group.model(0)


def wide(seed: int = 0) -> Built:
    """An untrained model whose weights are five times as large, on random answers."""
    task = Noise(vocab_size=11, seq_len=9)
    model = build_model(settings(seed, "model.n_layers=2"), task)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5.0)
    return model, task


def memorised(seed: int = 0, held_out: bool = True) -> Built:
    task = Memory(seed, held_out)
    return trained(task, seed), task


def counting_up(draw: random.Random, n: int, length: int) -> list[int]:
    """Rows that count up from a random symbol."""
    start = draw.randrange(n)
    return [(start + q) % n for q in range(length)]


LIARS = [
    Liar(  # together without effect, each alone with a large one
        "cancelling",
        by_hand(Head(PREVIOUS), Head(PREVIOUS, signed(-1)), answer=first_of),
        says={"model": ("heads cancel",)},
        never={"model": ("heads not labelled", "pattern matters")},
        roles={"L0.H0": Role.CANCELS, "L0.H1": Role.CANCELS},
    ),
    Liar(  # it writes against the answer: not idle
        "suppressing",
        by_hand(Head(PREVIOUS, signed(0.3)), Head(PREVIOUS, signed(-0.2)), answer=token_at(PREVIOUS.keys)),
        says={"L0.H1": ("suppresses", "negative share")},
        roles={"L0.H0": Role.SHOWN, "L0.H1": Role.SUPPRESSES},
    ),
    Liar(  # it writes for a wrong token
        "harmful",
        by_hand(Head(PREVIOUS, signed(0.3)), Head(FIRST, signed(0.2)), answer=token_at(PREVIOUS.keys)),
        says={"L0.H1": ("harmful",)},
        roles={"L0.H0": Role.SHOWN, "L0.H1": Role.HARMFUL},
    ),
    Liar(  # it parks on a start token, whose value is zero
        "sink reader",
        by_hand(
            Head(PREVIOUS),
            Head(FIRST, to("answer", lambda i, j: -2 * (i == j < 9))),
            answer=lambda row, q: row[q - 1] if q > 1 else None,
            **STARTED,
        ),
        says={"L0.H1": ("sink",)},
        labels={"L0.H1": "first"},
    ),
    Liar(  # the first token is the answer
        "sink copier",
        by_hand(Head(FIRST), answer=first_of),
        never={"L0.H0": ("sink",)},
        roles={"L0.H0": Role.SHOWN},
        labels={"L0.H0": "first"},
    ),
    Liar(  # its pattern has no effect, its output has
        "constant output",
        by_hand(
            Head(PREVIOUS, to("answer", lambda i, j: 2 * (i == j < 5))),
            Head(FIRST, to("answer", lambda _, j: j == 8, "one")),
            answer=lambda row, q: (row[q - 1] if row[q - 1] < 5 else 8) if q else None,
        ),
        says={"L0.H1": ("only output",)},
        never={"L0.H1": ("sink",)},
        roles={"L0.H0": Role.SHOWN, "L0.H1": Role.OUTPUT},
    ),
    Liar(  # on rows that count up, the token before the query's is the previous one
        "content on orderly rows",
        by_hand(
            Head(mapped(lambda i: (i - 1) % 17, "one less")),
            answer=lambda row, q: row[q - 1] if q else None,
            rows=counting_up,
            n_symbols=17,
        ),
        says={"L0.H0": ("depends on tokens",)},
        never={"L0.H0": ("positional", "partly positional")},
    ),
    Liar(  # blocks of one length: a distance passes for induction
        "offset on fixed lengths",
        lambda: (handmade("period 6"), Period(6)),
        says={"L0.H0": ("tested at other distances",)},
        never={"L0.H0": ("content-based", "weaker at other distances")},
        labels={"L0.H0": "offset:5"},
    ),
    Liar(  # it finds repeats at every distance, with half of its weight
        "weak induction",
        weak_induction,
        says={"L1.H0": ("weaker at other distances",)},
        never={"L1.H0": ("tested at other distances",)},
        roles={"L1.H0": Role.SHOWN},
    ),
    Liar(  # held-out rows have other answers
        "over-fitted",
        memorised,
        says={"model": ("below chance", "over-fitted", "attention harmful")},
        never={"model": ("not learned", "no effect shown", "rows trained on", "solved by")},
    ),
    Liar(  # every held-out row was trained on
        "memorised",
        lambda: memorised(held_out=False),
        says={"model": ("pattern matters", "rows trained on")},
        never={"model": ("not learned", "no effect shown", "over-fitted", "below chance")},
        training=(BATCH, STEPS),
    ),
    Liar(  # nothing was learned, and the weights are large
        "untrained and wide",
        lambda: wide(seed=1),
        says={"model": ("below chance", "attention harmful")},
        never={"model": ("no effect shown", "heads not labelled", "solved by", "works by", "over-fitted")},
    ),
]
