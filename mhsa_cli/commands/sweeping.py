"""The work of a sweep: its trials in chunks that train as stacks, here or in processes of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

from mhsa_cli.commands.signals import StopSignal
from mhsa_cli.commands.trials import Trial, train_chunk
from mhsa_cli.config.load import Config
from mhsa_cli.runs.sweepdir import SweepDir

MAX_STACK = 64  # models that train together: more gains nothing and holds more memory
STACK_NUMBERS = 2**27  # logits of all their evaluation rows, 512 MB with what is made of them


def chunks(trials: Sequence[Trial], jobs: int) -> list[list[Trial]]:
    """Put trials that differ in their seeds alone together, as many as train well as one stack, enough for all jobs."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        train = trial.config.train.model_copy(update={"seed": 0})
        alike = trial.config.model_copy(update={"train": train})
        groups.setdefault(alike.model_dump_json(), []).append(trial)
    found = []
    for group in groups.values():
        size = min(largest_stack(group[0].config), max(1, -(-len(group) // jobs)))
        found += [group[i : i + size] for i in range(0, len(group), size)]
    return found


def largest_stack(config: Config) -> int:
    """Count the models of a config that fit into memory together."""
    task, rows = config.task, min(256, config.train.eval_sequences)
    size = getattr(task, "vocab_size", 256)
    return max(1, min(MAX_STACK, STACK_NUMBERS // (max(rows, config.train.batch_size) * task.seq_len * size)))


def train_all(sweep: SweepDir, trials: Sequence[Trial], jobs: int, target: float, stop: StopSignal) -> Iterator[int]:
    """Train what is missing; yields how many trials each finished chunk had."""
    work = chunks(trials, jobs)
    if jobs == 1 or len(work) == 1:
        for chunk in work:
            if stop():
                return
            yield train_chunk(sweep.path, chunk, target, stop)
        return
    yield from _in_processes(sweep.path, work, jobs, target, stop)


def _in_processes(path: Path, work: Iterable[list[Trial]], jobs: int, target: float, stop: StopSignal) -> Iterator[int]:
    """Train chunks in processes of their own; once a stop is wanted nothing new begins."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting, running = list(reversed(list(work))), set[Future[int]]()
        while running or (waiting and not stop()):
            while waiting and len(running) < jobs and not stop():
                running.add(pool.submit(_train_alone, path, waiting.pop(), target))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def _train_alone(path: Path, chunk: list[Trial], target: float) -> int:
    """Train a chunk in this process, which a signal stops as it stops the command itself."""
    with StopSignal() as stop:
        return train_chunk(path, chunk, target, stop)
