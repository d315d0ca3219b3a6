"""The time of a call, the time of training steps, and the peak memory of a call."""

from __future__ import annotations

import contextlib
import ctypes
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import torch

from mhsa_cli.core.statistics import quartiles
from mhsa_cli.records.bench import Spread

ROUND = 0.01  # the least seconds of a round
ROUNDS = 3  # the least number of rounds
PATIENCE = 4.0  # seconds; a longer measurement is not repeated


def clock(device: torch.device) -> float:
    """Read the clock, in seconds, after all work on the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter()


def spread(values: Sequence[float]) -> Spread:
    """Compute the quartiles of at least one finite value: (25%, median, 75%)."""
    return cast("Spread", quartiles(values))


def call_seconds(work: Callable[[], object], device: torch.device, seconds: float) -> list[float]:
    """Time a warmed-up call repeatedly for about `seconds`, at least ROUNDS times."""
    found: list[float] = []
    while not found or (max(found) <= PATIENCE and (len(found) < ROUNDS or sum(found) < seconds)):
        start = clock(device)
        work()
        found.append(clock(device) - start)
    return found


class StepClock:
    """Times training steps: call it after each step from `start()` on; True when enough rounds are measured.

    `rounds` holds the seconds per step of each round, by thread count. Thread counts alternate by round; the first step
    after a change takes about twice as long and is not counted. A step longer than PATIENCE ends the measurement.
    """

    def __init__(self, seconds: float, device: torch.device, threads: Sequence[int]) -> None:
        self.seconds, self.device, self.threads = seconds, device, threads
        self.rounds: dict[int, list[float]] = {count: [] for count in threads}
        self._steps = self._left = 1  # of the current round
        self._round = 0
        self._changed = False  # threads, before the current step

    def start(self) -> None:
        """Start the clock."""
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
        if self._round == 0:  # one step of lazy loading
            self._start = now
        elif self._round <= len(self.threads):  # and a warm-up round per thread count
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
    """Measure a call's peak memory in bytes, minus the memory before it; None where the system does not report it.

    The call must have run before: glibc's first large blocks waste more memory than later ones.
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
            ctypes.CDLL(None).malloc_trim(0)  # return freed memory, or the call would reuse it unnoticed
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak (Linux)
        held = _status("VmRSS")
        work()
        return max(0.0, _status("VmHWM") - held)
    except (OSError, StopIteration, ValueError):
        return None


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * int(next(line for line in lines if line.startswith(key)).split()[1])
