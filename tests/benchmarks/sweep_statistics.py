"""`python -m tests.benchmarks.sweep_statistics [TRIES]`: a sweep's report on simulated runs.

Coverage of its intervals, sweeps of equal settings that state a difference, and the power to show one.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable

from mhsa_cli.core.statistics import median_of, wilson
from mhsa_cli.core.sweep_report import report
from mhsa_cli.records.sweep import TrialResult

GOAL, WATCHED, STUCK = 0.9, 150, 4.0  # an accuracy, steps, nats
SEEDS = (6, 8, 12, 20)
Draw = Callable[[random.Random], tuple[float, bool]]  # of a run: its figure, and whether it is stuck


def _normal(draw: random.Random) -> tuple[float, bool]:
    return draw.gauss(0, 1), False


def _skewed(draw: random.Random) -> tuple[float, bool]:
    return draw.lognormvariate(0, 1), False


def _stuck(share: float) -> Draw:
    def run(draw: random.Random) -> tuple[float, bool]:
        stuck = draw.random() < share
        return draw.gauss(STUCK if stuck else 0.0, 0.1), stuck

    return run


DISTRIBUTIONS: dict[str, Draw] = {
    "normal": _normal,
    "lognormal": _skewed,
    "10% stuck": _stuck(0.1),
    "30% stuck": _stuck(0.3),
}


def truth(name: str, runs: int = 200_001) -> tuple[float, float]:
    """Return the median of a distribution, and the share of its runs that succeed."""
    if name in ("normal", "lognormal"):
        return (0.0 if name == "normal" else 1.0), 1.0
    draw = random.Random(5)
    values = sorted(DISTRIBUTIONS[name](draw)[0] for _ in range(runs))
    return values[runs // 2], 1 - int(name.partition("%")[0]) / 100


def trials(name: str, cell: int, seeds: int, draw: random.Random, shift: float = 0.0) -> list[TrialResult]:
    """Draw the runs of a setting: their loss, and steps to the goal that end unreached at WATCHED."""
    found = []
    for seed in range(seeds):
        loss, stuck = DISTRIBUTIONS[name](draw)
        steps = round(100 * math.exp(0.3 * draw.gauss(shift, 1)))
        reached = None if stuck or steps > WATCHED else steps
        accuracy = 0.5 if reached is None else 1.0
        run = TrialResult("", cell, seed, "finished", loss + shift, accuracy, reached, None, watched=WATCHED)
        found.append(run)
    return found


def coverage(name: str, n: int, tries: int) -> float:
    """Return how often the interval of the median difference between equal settings holds 0."""
    draw, hits = random.Random(f"{name} {n}"), 0
    for _ in range(tries):
        pairs = [DISTRIBUTIONS[name](draw)[0] - DISTRIBUTIONS[name](draw)[0] for _ in range(n)]
        found = median_of([(value, value) for value in pairs])
        hits += found.low is not None and found.high is not None and found.low <= 0 <= found.high
    return hits / tries


def coverage_of_one(name: str, n: int, tries: int) -> tuple[float, float]:
    """Return how often the interval of a median holds the true one, and that of success the true share."""
    draw, middle, share = random.Random(f"{name} {n} one"), *truth(name)
    hits = shares = 0
    for _ in range(tries):
        runs = [DISTRIBUTIONS[name](draw) for _ in range(n)]
        found = median_of([(value, value) for value, _ in runs])
        hits += found.low is not None and found.high is not None and found.low <= middle <= found.high
        low, high = wilson(sum(not stuck for _, stuck in runs), n)
        shares += low <= share <= high
    return hits / tries, shares / tries


def false_differences(settings: int, seeds: int, tries: int) -> float:
    """Return the share of sweeps of equal settings that state any difference: in steps, loss or success."""
    draw, names, stated = random.Random(settings * 1000 + seeds), list(DISTRIBUTIONS), 0
    for number in range(tries):
        runs = [run for cell in range(settings) for run in trials(names[number % len(names)], cell, seeds, draw)]
        found = report([{"train.lr": str(cell)} for cell in range(settings)], runs, GOAL)
        stated += any(pair.is_shown for pair in found.pairs)
    return stated / tries


def power(settings: int, seeds: int, tries: int) -> float:
    """Return how often one of so many settings whose loss is one s.d. higher is shown to differ from the one before."""
    draw, shown = random.Random(settings * 1000 + seeds + 1), 0
    for _ in range(tries):
        runs = [
            run
            for cell in range(settings)
            for run in trials("normal", cell, seeds, draw, shift=float(cell == settings - 1))
        ]
        found = report([{"train.lr": str(cell)} for cell in range(settings)], runs, GOAL)
        shown += any(pair.is_shown for pair in found.pairs if pair.second == settings - 1 and pair.measure == "loss")
    return shown / tries


def main(tries: int) -> None:
    """Print the tables of docs/explanation/statistics.md."""
    print(f"coverage of 95% intervals, {tries} simulations each: median difference / median / success")
    print(f"{'runs':>10}", *(f"{f'n={n}':>15}" for n in SEEDS))
    for name in DISTRIBUTIONS:
        cells = [(coverage(name, n, tries), *coverage_of_one(name, n, tries)) for n in SEEDS]
        print(f"{name:>10}", *(f"{' '.join(f'{share:.3f}' for share in each):>15}" for each in cells))
    print("\nsweeps of equal settings that state any difference")
    for settings in (2, 8):
        print(f"{settings} settings:", *(f"n={n} {false_differences(settings, n, tries):.3f}" for n in SEEDS))
    print("\nlosses one standard deviation apart: how often that is shown")
    for settings in (2, 8):
        print(f"{settings} settings:", *(f"n={n} {power(settings, n, tries):.2f}" for n in (10, 20, 40)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1500)
