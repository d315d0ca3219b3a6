"""64 models for 300 steps: as one of our stacks, and by other means, each from building to the last loss."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from others.turns import clocks, elapsed, ratios
from torch import Tensor

from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import Config
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.tasks.base import TrainBatches
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.stack import Stack, learning_rate

MODELS, STEPS, ROUNDS = 64, 300, 3
MANY = f"{MODELS} models x {STEPS} steps of the bare block"


@dataclass(frozen=True)
class Many:
    """Seconds of CPU time of both, quartiles of the ratios, and the models' mean loss at the last step."""

    seconds: tuple[float, float]
    cpu: tuple[Any, ...]
    wall: tuple[Any, ...]
    losses: tuple[float, float]


def ours(config: Config, inputs: Tensor, targets: Tensor) -> float:
    """Build the models and train them; returns their mean loss at the last step."""
    task = build_task(config.task)
    models = [build_model(config, task, seed) for seed in range(MODELS)]
    stack = Stack(models, range(MODELS), config.train, torch.device("cpu"))
    for step, (rows, answers) in enumerate(zip(inputs, targets, strict=True), 1):
        stack.step(rows, answers, learning_rate(config.train, step), checked=True)
    return float(stack.loss.mean())


def compare_many(batch_size: int, train: Callable[[Config, dict[str, Tensor], Tensor, Tensor], Any]) -> Many:
    """Run both a few times in turns."""
    config = load_config(None, [f"train.batch_size={batch_size}", "train.epochs=1", f"train.steps_per_epoch={STEPS}"])
    task = build_task(config.task)
    drawn = [TrainBatches(task, seed, batch_size) for seed in range(MODELS)]
    steps = [[batches[step] for batches in drawn] for step in range(1, STEPS + 1)]
    inputs = torch.stack([torch.stack([batch.inputs for batch in row]) for row in steps])  # (steps, M, B, T)
    targets = torch.stack([torch.stack([batch.targets for batch in row]) for row in steps])
    mine, theirs, losses = [], [], (0.0, 0.0)
    for _ in range(ROUNDS):
        start = clocks()
        loss = ours(config, inputs, targets)
        mine.append(elapsed(start))
        start = clocks()
        models = [dict(build_model(config, task, seed).named_parameters()) for seed in range(MODELS)]
        weights = {name: torch.stack([model[name].detach() for model in models]) for name in models[0]}
        found = train(config, weights, inputs, targets)
        theirs.append(elapsed(start))
        losses = loss, float(found[-1].mean())
    seconds = [statistics.median(cpu for cpu, _ in side) for side in (mine, theirs)]
    return Many((seconds[0], seconds[1]), ratios(mine, theirs, 0), ratios(mine, theirs, 1), losses)
