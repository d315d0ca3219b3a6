"""The time that a stack trains, extrapolated from a few of its steps, an evaluation and its snapshots."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mhsa_cli.config.estimate import estimate
from mhsa_cli.config.schema import Config, TrainConfig
from mhsa_cli.core.bench.measure import changed
from mhsa_cli.core.bench.timing import PATIENCE, clock
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.training.lockstep import Group
from mhsa_cli.core.training.snapshots import Snapshots, map_steps, snapshot_steps

LEAST_STEPS = 3  # besides the first, which loads libraries
MOST = 2**28  # bytes of activations of a measured step or evaluation: some tenths of a second


def stack_that_is_quick(config: Config, most: int) -> int:
    """Return how many models of a config, up to `most`, take a step in some tenths of a second; at least 1."""
    return max(1, min(most, MOST // _activations(config, config.train.batch_size)))


def _activations(config: Config, rows: int) -> int:
    size = estimate(config.task, config.model, config.train.model_copy(update={"batch_size": rows}))
    return size.maps + size.stream


def stack_seconds(
    configs: Sequence[Config],
    task: Task,
    device: torch.device,
    seconds: float,
    models: Sequence[TransformerLM] | None = None,
) -> tuple[float, TransformerLM]:
    """Train a stack for about `seconds`; return the seconds of its whole training, and a model after those steps.

    The model is untrained if no loss stayed finite. A step longer than PATIENCE is not repeated, and of many rows of
    evaluation only some are measured.
    """
    train, total = configs[0].train, configs[0].total_steps
    rows = max(1, min(train.eval_sequences, MOST // (len(configs) * _activations(configs[0], 1))))
    times_rows = train.eval_sequences / rows
    configs = [changed(config, {"train": {"eval_sequences": rows}}) for config in configs]
    times = list[float]()  # of all steps, after each

    def now() -> float:
        return clock(device)

    def stop() -> bool:
        times.append(group.seconds)
        return group.seconds > PATIENCE or (group.seconds >= seconds and len(times) > LEAST_STEPS)

    began = now()
    group = Group(configs, task, device, models=models, stop=stop, wants_save=lambda _: False, watch=False, clock=now)
    built = now() - began  # with one evaluation of `rows`
    model = group.model(0)
    for _ in group.records():
        pass
    step = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else sum(times)
    if not group.runs:
        return built + total * step, model
    began = now()
    group.evaluate()
    evaluations = (now() - began) * ((1 + _evaluations(train)) * times_rows - 1)
    snapshots = _snapshot_seconds(group, device)
    return built + total * step + evaluations + snapshots, group.model(group.runs[0])


def _evaluations(train: TrainConfig) -> int:
    """Count the evaluations after the first: at the end of epochs, and every so many steps."""
    total, epoch = train.epochs * train.steps_per_epoch, train.steps_per_epoch
    every = train.eval_every or epoch
    return total // every + total // epoch - total // math.lcm(every, epoch)


def _snapshot_seconds(group: Group, device: torch.device) -> float:
    """Score as many snapshots as are scored together, and extrapolate to all of them."""
    began, snapshots = clock(device), Snapshots(group.stack, group.task)
    count, with_maps = len(snapshot_steps(group.total)), len(map_steps(group.total))
    built = clock(device) - began
    if not snapshots.probes:
        return built
    together = min(count, snapshots.room)
    began = clock(device)
    for number in range(together):
        snapshots.note(maps=number * with_maps // count != (number + 1) * with_maps // count)
    snapshots.flush()
    return built + (clock(device) - began) * count / together
