"""Two trainings of one model on the same batches, a few steps of each in turns, with both clocks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import Config
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.tasks.base import TrainBatches
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.stack import Stack, learning_rate

Batches = Sequence[tuple[Tensor, Tensor]]  # ids and targets, each (B, T)
Pause = Callable[..., None]  # to be called with the losses of the steps since the last call


class Other(Protocol):
    """A training by other means: its number of parameters, and `run`, which calls pause after every step or so."""

    parameters: int

    def run(self, batches: Batches, pause: Pause) -> None: ...


@dataclass(frozen=True)
class Work:
    """What both sides do: a config of ours, and how many steps are taken between two looks at the clock, how often."""

    name: str
    settings: Sequence[str]
    chunk: int = 20
    rounds: int = 24

    @property
    def steps(self) -> int:
        """Count the steps, those of the first turn included, which is not timed."""
        return self.chunk * (self.rounds + 1)

    @property
    def config(self) -> Config:
        """Read the config; its schedule spans the steps that are taken."""
        return load_config(None, [*self.settings, "train.epochs=1", f"train.steps_per_epoch={self.steps}"])

    def batches(self, seed: int | None = None) -> Batches:
        """Draw the batches, before any clock runs."""
        config = self.config
        drawn = TrainBatches(
            build_task(config.task), config.train.seed if seed is None else seed, config.train.batch_size
        )
        batches = [drawn[step] for step in range(1, self.steps + 1)]
        return [(batch.inputs.clone(), batch.targets.clone()) for batch in batches]


class Ours:
    """Our training step, on given batches; the loss is read after each."""

    def __init__(self, work: Work) -> None:
        self.config = work.config
        model = build_model(self.config, build_task(self.config.task))
        self.weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        self.parameters = sum(weight.numel() for weight in self.weights.values())
        self.stack = Stack([model], [self.config.train.seed], self.config.train, torch.device("cpu"))

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        """Make one update; returns the loss before it."""
        rate = learning_rate(self.config.train, self.stack.updates + 1)
        self.stack.step(inputs.unsqueeze(0), targets.unsqueeze(0), rate, checked=True)
        return float(self.stack.loss)


@dataclass(frozen=True)
class Result:
    """One row of the table: milliseconds a step of both, ratios of CPU and wall time, and the signs of equal work."""

    work: str
    other: str
    ms: tuple[float, float]
    cpu: tuple[float, float, float]  # quartiles of ours / theirs
    wall: tuple[float, float, float]
    threads: float  # CPU seconds of the other in a second of wall time: above 1 it used more than one thread
    parameters: tuple[int, int]
    first: tuple[float, float]  # loss of the first step
    last: tuple[float, float]  # mean loss of the last turn


class Turns:
    """The `pause` of the other side: after every `chunk` of its steps ours takes as many, on the same batches."""

    def __init__(self, ours: Callable[[Tensor, Tensor], float], batches: Batches, chunk: int) -> None:
        self.ours, self.batches, self.chunk = ours, batches, chunk
        self.losses: tuple[list[Any], list[Any]] = ([], [])
        self.spent: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
        self.since = clocks()

    def __call__(self, *losses: Any) -> None:
        self.losses[1].extend(losses)
        done = len(self.losses[1])
        if done % self.chunk:
            return
        self.spent[1].append(elapsed(self.since))
        start = clocks()
        for inputs, targets in self.batches[done - self.chunk : done]:
            self.losses[0].append(self.ours(inputs, targets))
        self.spent[0].append(elapsed(start))
        self.since = clocks()


def clocks() -> tuple[float, float]:
    """Read CPU and wall time, in seconds."""
    return time.process_time(), time.perf_counter()


def elapsed(since: tuple[float, float]) -> tuple[float, float]:
    """Tell what has passed on both clocks."""
    now = clocks()
    return now[0] - since[0], now[1] - since[1]


def compare(work: Work, name: str, build: Callable[[Config, dict[str, Tensor]], Other]) -> Result:
    """Train both, in turns, from the same weights on the same batches."""
    ours, batches = Ours(work), work.batches()
    other = build(work.config, {name: weight.clone() for name, weight in ours.weights.items()})
    turns = Turns(ours.step, batches, work.chunk)
    other.run(batches, turns)
    mine, theirs = (spent[1:] for spent in turns.spent)  # the first turn warms up, and compiles
    if len(mine) != work.rounds:
        raise SystemExit(f"{name} took {len(turns.losses[1])} steps, wanted {work.steps}")
    losses = [[float(value) for value in side] for side in turns.losses]
    return Result(
        work.name,
        name,
        (milliseconds(mine, work.chunk), milliseconds(theirs, work.chunk)),
        ratios(mine, theirs, 0),
        ratios(mine, theirs, 1),
        sum(cpu for cpu, _ in theirs) / sum(wall for _, wall in theirs),
        (ours.parameters, other.parameters),
        (losses[0][0], losses[1][0]),
        (statistics.mean(losses[0][-work.chunk :]), statistics.mean(losses[1][-work.chunk :])),
    )


def milliseconds(spent: Sequence[tuple[float, float]], steps: int) -> float:
    """Give the median CPU milliseconds of a step."""
    return statistics.median(cpu for cpu, _ in spent) / steps * 1e3


def ratios(ours: Sequence[tuple[float, float]], theirs: Sequence[tuple[float, float]], clock: int) -> tuple[Any, ...]:
    """Give the quartiles of ours over theirs, turn by turn, on one of the clocks."""
    return tuple(statistics.quantiles([a[clock] / b[clock] for a, b in zip(ours, theirs, strict=True)], n=4))


@torch.no_grad()
def load_in_order(model: torch.nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights into a module that has the same parameters in the same order."""
    parameters = list(model.parameters())
    shapes = [tuple(p.shape) for p in parameters], [tuple(w.shape) for w in weights.values()]
    if shapes[0] != shapes[1]:
        raise ValueError(f"wanted parameters of shapes {shapes[1]}, got {shapes[0]}")
    for parameter, weight in zip(parameters, weights.values(), strict=True):
        parameter.copy_(weight)


def count(model: torch.nn.Module) -> int:
    """Count a module's parameters."""
    return sum(parameter.numel() for parameter in model.parameters())
