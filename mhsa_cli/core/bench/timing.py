"""Clocks: the time of a call, of the steps of a training, and the memory that a call needs at its peak."""

from __future__ import annotations

import contextlib
import ctypes
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import torch

from mhsa_cli.core.statistics.estimates import quartiles
from mhsa_cli.records.bench import Spread

ROUND = 0.01  # seconds between two looks at the clock, at least
ROUNDS = 3  # of them, at least
PATIENCE = 4.0  # seconds; what takes longer is not done again


def clock(device: torch.device) -> float:
    """Read the clock, in seconds, once all work on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter()


def spread(values: Sequence[float]) -> Spread:
    """Give the quartiles of at least one finite value: (25 %, median, 75 %)."""
    return cast("Spread", quartiles(values))


def call_seconds(work: Callable[[], object], device: torch.device, seconds: float) -> list[float]:
    """Time a call again and again for about `seconds`, at least ROUNDS times; the caller has warmed it up."""
    found: list[float] = []
    while not found or (max(found) <= PATIENCE and (len(found) < ROUNDS or sum(found) < seconds)):
        start = clock(device)
        work()
        found.append(clock(device) - start)
    return found


class StepClock:
    """Time the steps of a training from `start()` on: to be asked after each; says True when enough is known.

    `rounds` has, for each thread count, the seconds a step of its rounds. Thread counts take turns, round by round;
    the first step after a change of threads takes about twice its time and is not counted.
    Where a single step takes longer than PATIENCE the first one is all there is, for the first count alone.
    """

    def __init__(self, seconds: float, device: torch.device, threads: Sequence[int]) -> None:
        self.seconds, self.device, self.threads = seconds, device, threads
        self.rounds: dict[int, list[float]] = {count: [] for count in threads}
        self._steps = self._left = 1  # of the round that runs
        self._round = 0
        self._changed = False  # the threads, before the step that runs

    def start(self) -> None:
        """Begin to count."""
        torch.set_num_threads(self.threads[0])
        self._start = self._since = clock(self.device)

    def __call__(self) -> bool:
        self._left -= 1
        if self._left:
            return False
        now = clock(self.device)
        if self._changed and now - self._since <= PATIENCE:
            self._changed, self._left, self._since = False, self._steps, now
            return False
        step = (now - self._since) / (1 if self._changed else self._steps)
        count = self.threads[self._round % len(self.threads)]
        if self._round == 0:  # one step that loads what there is to load
            self._start = now
        elif self._round <= len(self.threads):  # and a round of each thread count that wakes its threads
            self._steps = max(self._steps, math.ceil(ROUND / max(step, 1e-9)))
        if self._round > len(self.threads) or step > PATIENCE:
            self.rounds[count].append(step)
        self._round += 1
        if len(self.threads) > 1:
            torch.set_num_threads(self.threads[self._round % len(self.threads)])
            self._changed = True
        self._left, self._since = 1 if self._changed else self._steps, clock(self.device)
        enough = now - self._start >= self.seconds and all(len(found) >= ROUNDS for found in self.rounds.values())
        return enough or step > PATIENCE


def peak_bytes(work: Callable[[], object], device: torch.device) -> float | None:
    """Measure the most memory that a call held beyond what was held before; None where the system does not tell.

    The call must have been made before: glibc's first large blocks are laid out more wastefully than the later ones.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return float(torch.cuda.max_memory_allocated(device) - before)
    if device.type != "cpu":
        return None
    try:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).malloc_trim(0)  # give back what was freed, or the call would use it again unseen
        Path("/proc/self/clear_refs").write_text("5")  # forget the earlier peak (Linux)
        held = _status("VmRSS")
        work()
        return max(0.0, _status("VmHWM") - held)
    except (OSError, StopIteration, ValueError):
        return None


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * int(next(line for line in lines if line.startswith(key)).split()[1])
