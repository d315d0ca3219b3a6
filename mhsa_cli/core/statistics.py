"""Intervals that assume no distribution, exact tests, and Holm's correction."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from mhsa_cli.core import make_sure_of_memory
from mhsa_cli.records.claims import LEVEL
from mhsa_cli.records.sweep import Bounds, Median

EXACT = 100  # values, up to which a p is that of all signs


def wilson(k: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Compute the Wilson score interval of a proportion, k of n: all p with abs(k/n - p) <= z sqrt(p (1-p) / n).

    `z` = 1.959964 is 95%. (0, 1) for n = 0. Raises: ValueError unless 0 <= k <= n. Source: Wilson 1927.
    """
    if not 0 <= k <= n:
        raise ValueError(f"found {k} of {n}, wanted 0 <= k <= n")
    if n == 0:
        return 0.0, 1.0
    centre = k + z * z / 2
    half = z * math.sqrt(k * (n - k) / n + z * z / 4)
    # Exact at the ends, where rounding could put the bound of 0 of 5 above 0.
    low = 0.0 if k == 0 else max(0.0, (centre - half) / (n + z * z))
    high = 1.0 if k == n else min(1.0, (centre + half) / (n + z * z))
    return low, high


def quartiles(values: Sequence[float | None]) -> tuple[float | None, float | None, float | None]:
    """Compute the 25%, 50% and 75% quantiles with linear interpolation, as numpy's default.

    None and non-finite values count as infinity, as the steps of a run that never reached its goal. A quantile at or
    next to infinity is None.
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


def median_of(values: Sequence[Bounds]) -> Median:
    """Compute the median of values that each lie between two bounds, and its 95% interval from order statistics.

    Known values have equal bounds, (step, inf) is a run that has not reached its goal by a step. The interval holds the
    true median in at least 95% of samples from any distribution, and a value that is known less exactly only widens it.
    Source: Thompson 1936.
    """
    n = len(values)
    if n == 0:
        return Median(None, None, None, 0)
    lows, highs = sorted(low for low, _ in values), sorted(high for _, high in values)
    least, most = (ranked[(n - 1) // 2] / 2 + ranked[n // 2] / 2 for ranked in (lows, highs))
    rank = _rank(n)
    low, high = (lows[rank - 1], highs[n - rank]) if rank else (None, None)
    return Median(least if least == most else None, low, high, n)


def _rank(n: int) -> int:
    """Return the rank of the order statistic at which the interval of a median begins; 0 if n is too small."""
    make_sure_of_memory("scipy")
    from scipy.special import bdtr

    return bisect_right(range(n // 2), LEVEL / 2, key=lambda below: float(bdtr(below, n, 0.5)))


def signed_rank_test(values: Sequence[Bounds]) -> float:
    """Test that values, each between two bounds, are distributed alike above and below 0: the two-sided p.

    A value counts as its bound nearer to 0, and as 0 if its sign is unknown; zeros keep their ranks and have no sign.
    Exact, with ties, up to EXACT values; beyond, by the normal approximation. Source: Wilcoxon 1945; zeros, Pratt 1959.
    """
    numbers = [low if low > 0 else high if high < 0 else 0.0 for low, high in values]
    sizes = sorted(map(abs, numbers))  # ranks are doubled: those of ties are means
    ranks = {size: bisect_left(sizes, size) + bisect_right(sizes, size) + 1 for size in sizes}
    signed = [ranks[abs(number)] for number in numbers if number]
    above, total = sum(ranks[number] for number in numbers if number > 0), sum(signed)
    largest = max(above, total - above)
    if len(signed) > EXACT:
        spread = math.sqrt(sum(rank * rank for rank in signed))
        return min(1.0, 2 * NormalDist().cdf((total - 2 * largest + 2) / spread))
    chances = np.zeros(total + 1)  # of each sum of ranks above 0, with signs drawn at random
    chances[0] = 1.0
    for rank in signed:
        chances /= 2
        chances[rank:] += chances[:-rank].copy()
    return min(1.0, 2 * float(chances[largest:].sum()))


def fisher_test(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Test that two proportions, each k of n, are equal: the two-sided p. Source: Fisher 1935."""
    (k1, n1), (k2, n2) = first, second
    if k1 * n2 == k2 * n1:  # equal, or one has no trial: SciPy need not be loaded
        return 1.0
    make_sure_of_memory("scipy")
    from scipy.stats import fisher_exact

    return float(fisher_exact([[k, n - k] for k, n in (first, second)]).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number: at most one in twenty families of true nulls has one of 0.05 or less.

    Source: Holm 1979.
    """
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, (len(p_values) - rank) * p_values[place])
        adjusted[place] = min(1.0, largest)
    return adjusted
