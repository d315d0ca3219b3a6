"""The time of a sweep, extrapolated from training some of its shapes for a moment."""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.estimate import estimate
from mhsa_cli.config.schema import Config
from mhsa_cli.config.threads import cores
from mhsa_cli.core.bench.measure import changed
from mhsa_cli.core.bench.stack_time import stack_seconds, stack_that_is_quick
from mhsa_cli.core.heads.random_baseline import null_limits
from mhsa_cli.core.tasks import TrainBatches
from mhsa_cli.core.training.overlap import rows_sha256, seen_in_training
from mhsa_cli.jobs.custom_attention import build_custom_models
from mhsa_cli.jobs.own_task import make_task
from mhsa_cli.jobs.train import prepare_device
from mhsa_cli.jobs.trained_run import measure_model
from mhsa_cli.records.sweep import SweepTime

SECONDS = 2.0  # after which no further shape is measured
STEPPING, FEW = 0.5, 5  # seconds of training steps of all shapes together, for so many shapes
MEASURED = 8  # models in a measured stack at most: beyond, its time grows with their number
SAVING = 0.05  # seconds to write a trial's files through to the disk, which is not tried
# Settings that change no step's cost.
FREE = {"seed": 0, "lr": 1e-3, "schedule": "constant", "warmup_steps": 0, "weight_decay": 0.0, "betas": (0.9, 0.999)}


class _Cost(NamedTuple):
    """Seconds of a chunk: for each model in training, for the chunk itself, and for each trial's results."""

    training: float
    chunk: float
    results: float

    def of(self, trials: int) -> float:
        return self.chunk + trials * (self.training + self.results)


def sweep_time(configs: Sequence[Config], sizes: Sequence[int], seeds: int, slots: int, start: float) -> SweepTime:
    """Estimate the seconds in which `slots` processes train `seeds` trials of each config, as stacks of its size.

    Shapes are measured until SECONDS have passed; the others are interpolated by their estimated work. `start` is what
    a process takes to load torch.
    """
    began = time.perf_counter()
    shapes: dict[Config, tuple[Config, int]] = {}
    for config, size in zip(configs, sizes, strict=True):
        shapes.setdefault(_shape(config), (config, size))
    order = _spread_out(sorted(shapes, key=_work))
    measured: dict[float, _Cost] = {}  # by work
    known: dict[Config, _Cost] = {}
    for shape in order:
        if known and time.perf_counter() - began > SECONDS:
            break
        known[shape] = measured[_work(shape)] = _measure(*shapes[shape], STEPPING / min(len(order), FEW))
    count = len(known)
    known |= {shape: _interpolated(measured, _work(shape)) for shape in order[count:]}
    chunks = []
    for config, size in zip(configs, sizes, strict=True):
        cost = known[_shape(config)]
        chunks += [cost.of(min(size, seeds - first)) for first in range(0, seeds, size)]
    busy = max(1.0, slots * configs[0].train.threads / cores())  # more processes than cores wait for each other
    starts = start if slots == 1 else 2 * start  # that of the command, and those of its processes side by side
    return SweepTime(starts + busy * _longest(chunks, slots), len(shapes), count)


def _spread_out(shapes: Sequence[Config]) -> list[Config]:
    """Order sorted shapes so that any first few are spread over all of them: the last, the first, the middle, ..."""
    order: dict[Config, None] = {}
    step = max(1, len(shapes) - 1)
    while step:
        order |= dict.fromkeys(shapes[::-1][::step])
        step //= 2
    return list(order)


def _interpolated(measured: Mapping[float, _Cost], work: float) -> _Cost:
    """Interpolate between the measured costs of less and of more work; below the least, in proportion."""
    costs = {0.0: _Cost(0.0, 0.0, 0.0), **measured}  # the most work is measured first
    below, above = max(w for w in costs if w <= work), min(w for w in costs if w >= work)
    share = 0.0 if below == above else (work - below) / (above - below)
    pairs = zip(costs[below], costs[above], strict=True)
    return _Cost(*(low + share * (high - low) for low, high in pairs))


def _shape(config: Config) -> Config:
    """Return the config without what changes no cost."""
    return changed(config, {"train": FREE})


def _work(config: Config) -> float:
    """Estimate the work of a trial, up to a factor: its steps times the numbers that a step touches."""
    size = estimate(config.task, config.model, config.train)
    return (config.total_steps + 1) * (size.weights + size.maps + size.stream)


def _measure(config: Config, size: int, seconds: float) -> _Cost:
    """Train a stack of a shape for a moment, and measure one trial's results."""
    device, task = prepare_device(config), make_task(config)
    models = stack_that_is_quick(config, min(size, MEASURED))
    seeds = [(config.train.seed + i) % 2**63 for i in range(models)]
    configs = [changed(config, {"train": {"seed": seed}}) for seed in seeds]
    attention = config.model.attention if is_file(config.model.attention) else None
    built = build_custom_models(configs, task, attention)
    training, model = stack_seconds(configs, task, device, seconds, built)
    began = time.perf_counter()
    limits = null_limits(model, task)
    middle = time.perf_counter()
    train, total = config.train, config.total_steps
    measure_model(config, task, model, total, lambda: limits)
    seen_in_training(TrainBatches.of(task, train), total, train.eval_sequences)
    rows_sha256(task, train.seed, train.eval_sequences)
    end = time.perf_counter()
    return _Cost(training / models, middle - began, end - middle + SAVING)


def _longest(chunks: Sequence[float], slots: int) -> float:
    """Return when the last chunk ends, each given in its order to the first free slot."""
    ends = [0.0] * slots
    for seconds in chunks:
        heapq.heapreplace(ends, ends[0] + seconds)
    return max(ends)
