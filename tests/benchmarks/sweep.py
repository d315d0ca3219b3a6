"""Print what a sweep of 64 models costs beside 64 processes that each train one as a lesson does, and what it holds.

python tests/benchmarks/sweep.py [CONFIG]       default: configs/copy.yaml; some minutes

A sweep is one `mhsa sweep` from start to end: training, evaluation, heads measured, every folder written. A lesson is
`lesson_loop.py`: it trains and does nothing else. Of the 64 lessons 4 are run, in turns with the sweep, and the mean is
multiplied. CPU time is that of the processes with all that they started, one thread each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
MODELS, STEPS, ROUNDS = 64, 300, 2
LESSONS = 4  # lessons really run beside one sweep
SIZES = (1, 16, 64, 256)


class Cost(NamedTuple):
    """CPU and wall seconds of processes, and the largest one's peak memory in MB."""

    cpu: float
    wall: float
    peak: float


def cost(*commands: Sequence[str]) -> Cost:
    """Run commands at the same time, until the last one ends."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    quiet = subprocess.DEVNULL
    began, cpu, peak = time.monotonic(), 0.0, 0.0
    children = [subprocess.Popen(c, stdout=quiet, stderr=subprocess.PIPE, env=environment) for c in commands]
    for child, command in zip(children, commands, strict=True):
        assert child.stderr is not None
        said = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {child.returncode}:\n{said.decode()}")
        cpu, peak = cpu + used.ru_utime + used.ru_stime, max(peak, used.ru_maxrss / 1000)
    return Cost(cpu, time.monotonic() - began, peak)


def sweep(config: str, models: int, batch_size: int, jobs: int = 1) -> Cost:
    """Run one sweep into a folder that is thrown away."""
    settings = ["train.epochs=3", f"train.steps_per_epoch={STEPS // 3}", f"train.batch_size={batch_size}"]
    with tempfile.TemporaryDirectory() as runs:
        options = ["--config", config, "--seeds", str(models), "--jobs", str(jobs), "--runs", runs]
        return cost([sys.executable, "-m", "mhsa_cli", "sweep", *settings, *options])


def lesson(batch_size: int) -> list[str]:
    """Give the command of one lesson."""
    return [sys.executable, str(HERE / "lesson_loop.py"), str(STEPS), str(batch_size)]


def compare_cpu(config: str, batch_size: int) -> None:
    """Print the ratio of CPU times, in rounds of two lessons, a sweep, two lessons."""
    ratios = []
    for _ in range(ROUNDS):
        before = [cost(lesson(batch_size)).cpu for _ in range(LESSONS // 2)]
        ours = sweep(config, MODELS, batch_size).cpu
        theirs = statistics.mean(before + [cost(lesson(batch_size)).cpu for _ in range(LESSONS // 2)])
        ratios.append(theirs * MODELS / ours)
        print(
            f"B={batch_size:<3} CPU   {MODELS} models x {STEPS} steps {ours:6.1f} s   a lesson {theirs:5.2f} s, "
            f"{MODELS} of them {theirs * MODELS:6.1f} s   {ratios[-1]:5.1f} times less",
            flush=True,
        )


def compare_wall(config: str, batch_size: int) -> None:
    """Print the ratio of wall times: a sweep in two jobs, and lessons one after another and two at a time."""
    one = lesson(batch_size)
    before = [cost(one).wall, cost(one, one).wall / 2]
    ours = sweep(config, MODELS, batch_size, jobs=2).wall
    after = [cost(one).wall, cost(one, one).wall / 2]
    row, pairs = (statistics.mean(both) * MODELS for both in zip(before, after, strict=True))
    print(
        f"B={batch_size:<3} wall  {MODELS} models in two jobs {ours:6.1f} s   {MODELS} lessons in a row {row:6.1f} s: "
        f"{row / ours:4.1f} times less   two at a time {pairs:6.1f} s: {pairs / ours:4.1f} times less",
        flush=True,
    )


def print_memory(config: str) -> None:
    """Print the peak memory of sweeps of several sizes."""
    for models in SIZES:
        found = sweep(config, models, 16)
        print(f"M={models:<3} peak memory {found.peak:5.0f} MB   CPU {found.cpu:6.1f} s", flush=True)


def main() -> None:
    """Print ratios, then memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", metavar="CONFIG", default=str(HERE.parents[1] / "configs" / "copy.yaml"))
    config = parser.parse_args().config
    for batch_size in (16, 64):
        compare_cpu(config, batch_size)
        compare_wall(config, batch_size)
    print_memory(config)


if __name__ == "__main__":
    main()
