"""What several seeds show, and no more: intervals, quartiles with runs that never got there, paired differences."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from mhsa_cli.core import make_sure_of_memory
from mhsa_cli.records.sweep import LEAST_PAIRS, Difference, Quartiles

_TIE = 1e-9  # a mean that is the goal but for its last bits is the goal


def wilson(k: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Give the interval of a share of which `k` in `n` were seen: the p with abs(k/n - p) <= z sqrt(p (1-p) / n).

    `z` = 1.959964 is 95 %. No trials show nothing: (0, 1).
    Raises: ValueError unless 0 <= k <= n. Source: Wilson 1927.
    """
    if not 0 <= k <= n:
        raise ValueError(f"found {k} of {n}, wanted 0 <= k <= n")
    if n == 0:
        return 0.0, 1.0
    centre = k + z * z / 2
    half = z * math.sqrt(k * (n - k) / n + z * z / 4)
    # The ends are exact where they must be: rounding may not put 0 of 5 above nothing.
    low = 0.0 if k == 0 else max(0.0, (centre - half) / (n + z * z))
    high = 1.0 if k == n else min(1.0, (centre + half) / (n + z * z))
    return low, high


def quartiles(values: Sequence[float | None]) -> Quartiles:
    """Give the 25 %, 50 % and 75 % points, linear between the two nearest values (numpy's default).

    None and what is not finite count as infinity, as the steps of a run that never got there do; a point that
    lies at or next to infinity is None.
    """
    ranked = sorted(math.inf if value is None or not math.isfinite(value) else float(value) for value in values)
    low, middle, high = (_quantile(ranked, part) for part in (0.25, 0.5, 0.75))
    return low, middle, high


def _quantile(ranked: Sequence[float], part: float) -> float | None:
    if not ranked:
        return None
    place = part * (len(ranked) - 1)
    below = math.floor(place)
    share = place - below
    low, high = ranked[below], ranked[min(below + 1, len(ranked) - 1)]
    if math.isinf(low) or (math.isinf(high) and share > 0):
        return None
    return low if share == 0 else low * (1 - share) + high * share  # high - low could overflow


def paired_difference(
    a: Mapping[int, float | None], b: Mapping[int, float | None], seed: int, draws: int = 2000
) -> Difference:
    """Bootstrap the mean of b - a over the seeds that have a finite value in both, at 95 %.

    The percentile interval, with its tails set by Student's t as small samples need: of equals with 6 seeds the plain
    one would exclude 0 in 16 of 100 cases, this one in 8. Below `LEAST_PAIRS` pairs there is none.
    Source: Efron and Tibshirani 1993; the tails, Hesterberg 2015 ("expanded percentile").
    """
    pairs = ((a[key], b[key]) for key in sorted(a.keys() & b.keys()))
    found = [
        second - first
        for first, second in pairs
        if first is not None and second is not None and math.isfinite(first) and math.isfinite(second)
    ]
    n = len(found)
    if n == 0:
        return Difference(None, None, None, 0)
    mean = math.fsum(found) / n
    if n < LEAST_PAIRS:
        return Difference(mean, None, None, n)
    draw = random.Random(seed).random  # the same numbers in every version of Python
    means = sorted(math.fsum(found[int(draw() * n)] for _ in range(n)) / n for _ in range(draws))
    tail = _tail(n)
    low, high = _quantile(means, tail), _quantile(means, 1 - tail)
    return Difference(mean, low, high, n)


def _tail(n: int) -> float:
    """Give the share of draws to leave out on each side so that 95 % hold for a mean of `n`, not of many."""
    make_sure_of_memory("scipy")
    from scipy.special import ndtr, stdtrit

    return float(ndtr(math.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.025)))


def steps_to_goal(steps: Sequence[int], accuracies: Sequence[float | None], goal: float, window: int = 8) -> int | None:
    """Find the first step from which `window` recorded batches in a row average at least `goal`, else None.

    One lucky batch is not learning; a gap (None, NaN) is below every goal.
    Raises: ValueError for a window below 1 or lists of different lengths.
    """
    if window < 1 or len(steps) != len(accuracies):
        raise ValueError(f"found window {window}, {len(steps)} steps and {len(accuracies)} accuracies")
    numbers = [math.nan if value is None else value for value in accuracies]
    for start in range(len(numbers) - window + 1):
        if math.fsum(numbers[start : start + window]) >= (goal - _TIE) * window:
            return steps[start]
    return None
