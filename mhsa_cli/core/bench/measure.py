"""Benchmarks of this machine: training steps, stacks of models, threads, attention by length, and start-up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from mhsa_cli.config.estimate import estimate
from mhsa_cli.config.schema import SCHEMES, Config
from mhsa_cli.config.threads import cores
from mhsa_cli.core.bench.timing import PATIENCE, StepClock, call_seconds, clock, peak_bytes, spread
from mhsa_cli.core.heads.capture import weight_blocks
from mhsa_cli.core.model.transformer import TransformerLM, build
from mhsa_cli.core.processor import cpu_name
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training.lockstep import Group, records_of
from mhsa_cli.core.training.stack import autocast, parameter_dtype
from mhsa_cli.records import bench
from mhsa_cli.records.bench import BenchRecord, NotMeasured, Spread
from mhsa_cli.text import plural

LARGEST = 4e9  # bytes of the largest stack measured
VOCAB = 64  # ids in the attention benchmarks
WORTH = 0.8  # more threads are recommended if they reduce a step to this share of its time
MIDDLE: dict[str, dict[str, Any]] = {
    "task": {"seq_len": 64},
    "model": {"d_model": 64, "n_heads": 8, "n_layers": 2, "d_mlp": 256, "residual": True, "norm": "layernorm"},
    "train": {"batch_size": 128},
}


@dataclass(frozen=True)
class Effort:
    """The extent of a benchmark: seconds per figure, stack sizes, row lengths, number of start-ups."""

    seconds: float
    stacks: Sequence[int]
    lengths: Sequence[int]
    imports: int


EFFORTS = {"full": Effort(1.2, (1, 16, 64), (64, 256, 1024, 4096), 3), "quick": Effort(0.2, (1, 16), (64, 512), 1)}


def measure(config: Config, device: torch.device, effort: Effort) -> Iterator[BenchRecord]:
    """Measure everything, yielding each record as soon as it is known, the machine first."""
    before = torch.get_num_threads()
    try:
        yield machine(config, device)
        sizes = bench_sizes(config)
        for name, size in sizes.items():
            yield from step_speeds(name, size, device, effort.seconds)
        yield from stack_speeds(sizes["config"], device, effort)
        torch.set_num_threads(config.train.threads)
        yield from attention_speeds(config, device, effort)
        yield import_speed(effort.imports)
    finally:
        torch.set_num_threads(before)


def machine(config: Config, device: torch.device) -> bench.Machine:
    """Describe the machine that the figures depend on."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return bench.Machine(cpu_name(), cores(), str(device), gpu, str(torch.__version__), config.train.threads)


def bench_sizes(config: Config) -> dict[str, Config]:
    """Return the sizes whose step is measured: the config, the default size at batch 64, and a middle size."""
    kept = {key: getattr(config.train, key) for key in ("device", "threads", "dtype")}
    lesson = changed(Config(), {"train": kept | {"batch_size": 64}})
    middle = changed(Config(), {**MIDDLE, "train": {**kept, **MIDDLE["train"]}})
    endless: dict[str, Any] = {"epochs": 1, "steps_per_epoch": 10**9, "eval_sequences": 1, "log_every": 10**9}
    endless |= {"eval_every": None, "save_every": None}
    sizes = {"config": config, "lesson B=64": lesson, "middle": middle}
    return {name: changed(size, {"train": endless}) for name, size in sizes.items()}


def changed(config: Config, updates: Mapping[str, Mapping[str, Any]]) -> Config:
    """Copy a config with changed values in its sections."""
    sections = {name: getattr(config, name).model_copy(update=values) for name, values in updates.items()}
    return config.model_copy(update=sections)


def step_seconds(
    config: Config, models: int, device: torch.device, seconds: float, threads: Sequence[int]
) -> tuple[dict[int, Spread], int]:
    """Train `models` models for about `seconds`, alternating thread counts: seconds per step of each, and parameters.

    Raises: NonFiniteError if the loss does not stay finite.
    """
    task, tick = build_task(config.task), StepClock(seconds, device, threads)
    seeds = [changed(config, {"train": {"seed": (config.train.seed + i) % 2**63}}) for i in range(models)]
    group = Group(seeds, task, device, stop=tick, watch=False)
    tick.start()
    for _ in records_of(group):
        pass
    return {count: spread(values) for count, values in tick.rounds.items() if values}, group.stack.size // models


def step_speeds(name: str, config: Config, device: torch.device, seconds: float) -> Iterator[BenchRecord]:
    """Measure the training step of one size: on a CPU with one thread, the config's number and all cores."""
    m, train, T = config.model, config.train, build_task(config.task).seq_len
    counts = sorted({1, train.threads, cores()}) if device.type == "cpu" else [train.threads]
    counts.sort(key=lambda count: count != train.threads)  # the config's number first
    found, parameters = step_seconds(config, 1, device, seconds * len(counts), counts)
    size = {"batch_size": train.batch_size, "seq_len": T, "d_model": m.d_model, "n_heads": m.n_heads}
    size |= {"n_layers": m.n_layers, "d_mlp": m.d_mlp}
    missing = [count for count in sorted(counts) if count not in found]
    counts = sorted(found)  # only one where a step takes very long
    best = counts[0]
    for count in counts[1:]:
        best = count if found[count][1] <= WORTH * found[best][1] else best
    for count in counts:
        rate = 1 / found[count][1]
        tokens = rate * train.batch_size * T
        yield bench.StepSpeed(name, size, parameters, count, milliseconds(found[count]), rate, tokens, count == best)
    slow = max(values[1] for values in found.values())
    for count in missing:
        yield NotMeasured("steps", f"{name}, {plural(count, 'thread')}", f"a step takes about {slow:.0f} s")


def milliseconds(seconds: Spread) -> Spread:
    """Convert seconds to milliseconds."""
    low, middle, high = (1e3 * value for value in seconds)
    return low, middle, high


def stack_speeds(config: Config, device: torch.device, effort: Effort) -> Iterator[BenchRecord]:
    """Measure stacks of the config; those that need too much memory or time are reported as not measured."""
    threads, single = config.train.threads, 0.0
    size = estimate(config.task, config.model, config.train)
    for models in effort.stacks:
        needed = models * (size.weights + size.maps + size.stream)
        if models > 1 and needed > LARGEST:
            yield NotMeasured("stacks", f"{models} models", f"needs about {needed / 1e9:.0f} GB")
            continue
        if models * single > PATIENCE:
            yield NotMeasured("stacks", f"{models} models", f"a step would take about {models * single:.0f} s")
            continue
        found, _ = step_seconds(config, models, device, effort.seconds, [threads])
        single = found[threads][1] / models
        yield bench.StackSpeed(models, milliseconds(found[threads]), models / found[threads][1])


def attention_speeds(config: Config, device: torch.device, effort: Effort) -> Iterator[BenchRecord]:
    """Measure the implementations of one attention block of the config's form and dtype, on a row of T tokens."""
    for path in PATHS:
        before = 0.0
        for T in effort.lengths:
            if 16 * before > PATIENCE:
                yield NotMeasured("attention", f"{path}, T={T}", f"a call could take {16 * before:.0f} s")
                break
            work = PATHS[path](config, T, device)
            start = clock(device)
            work()
            before = clock(device) - start  # includes lazy loading
            found = spread(call_seconds(work, device, effort.seconds / 4))
            extra = peak_bytes(work, device)
            yield bench.AttentionSpeed(path, T, milliseconds(found), None if extra is None else extra / 1e6)


def _one_block(config: Config, T: int, device: torch.device) -> TransformerLM:
    """Build a model of one block for T tokens, without MLP and dropout."""
    plain = config.model.model_copy(
        update={"n_layers": 1, "encoder_layers": 0, "d_mlp": 0, "dropout": 0.0, "max_seq_len": T}
    )
    model = build(plain, vocab_size=VOCAB, max_seq_len=T, generator=torch.Generator().manual_seed(0))
    return model.to(device, parameter_dtype(config.train))


def one_pass(kind: str, config: Config, T: int, device: torch.device) -> Callable[[], object]:
    """Prepare the forward and backward pass of one block over T tokens, with the fused kernel or linear attention."""
    model: dict[str, Any] = {"attention": kind}
    if kind == "linear":  # it supports neither windows nor biases
        biased = SCHEMES[config.model.positions] == "bias"
        model |= {"window": None, "positions": "none" if biased else config.model.positions}
    config = changed(config, {"model": model})
    block, dtype = _one_block(config, T, device).attention[0], parameter_dtype(config.train)
    x = torch.randn(1, T, config.model.d_model, generator=torch.Generator().manual_seed(1)).to(device, dtype)
    leaves = list(block.parameters())

    def work() -> object:
        with autocast(config.train.dtype, device):
            y = block(x)
        return torch.autograd.grad(y.sum(), leaves, materialize_grads=True)

    return work


def every_weight(config: Config, T: int, device: torch.device) -> Callable[[], object]:
    """Prepare the computation of all attention weights of a row of T tokens, in blocks of queries."""
    model = _one_block(config, T, device).eval()
    ids = torch.randint(VOCAB, (1, T), generator=torch.Generator().manual_seed(1)).to(device)

    def work() -> object:
        with autocast(config.train.dtype, device):
            return [None for _ in weight_blocks(model, ids)]

    return work


PATHS: dict[str, Callable[[Config, int, torch.device], Callable[[], object]]] = {
    "fused": partial(one_pass, "softmax"),
    "linear": partial(one_pass, "linear"),
    "weights": every_weight,
}


def import_speed(rounds: int) -> bench.ImportSpeed | NotMeasured:
    """Measure `import torch` in new processes."""
    code = "import time; start = time.perf_counter(); import torch; print(time.perf_counter() - start)"
    command = [sys.executable, "-P", "-c", code]  # -P: ignore a torch.py in the current folder
    try:
        texts = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(rounds)]
        return bench.ImportSpeed(spread([float(text) for text in texts]))
    except (OSError, subprocess.SubprocessError, ValueError):
        return NotMeasured("import_torch", "import torch", "no second Python process could be started")
