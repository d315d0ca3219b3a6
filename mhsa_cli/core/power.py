"""What a number of seeds can show, before anything is trained: least p-values against Holm's correction, and power."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import count

from mhsa_cli.core.statistics import median_of, signed_rank_test
from mhsa_cli.core.sweep_report import neighbours
from mhsa_cli.records.claims import LEVEL
from mhsa_cli.records.sweep import LEAST_VALUES, MEASURES, ROUNDING, SeedPower, least_for_ranks

DRAWS, MOST = 200, 400  # simulated sweeps, and seeds in one: with more, the power is at least as large


def seed_power(cells: Sequence[Mapping[str, str]], seeds: int) -> SeedPower | None:
    """Compute what `seeds` of each cell can show between neighbours; None if no two cells are compared."""
    pairs = sum(1 for _ in neighbours(cells))
    if not pairs:
        return None
    comparisons = comparisons_of(pairs, seeds)
    return SeedPower(
        seeds=seeds,
        pairs=pairs,
        comparisons=comparisons,
        least_for_ranks=least_for_ranks(comparisons_of(pairs, LEAST_VALUES)),
        least_for_success=next(n for n in count(1) if most_successes(n, comparisons_of(pairs, n)) is not None),
        most_successes=most_successes(seeds, comparisons),
    )


def comparisons_of(pairs: int, n: int) -> int:
    """Count the comparisons that n seeds allow: of success alone below LEAST_VALUES."""
    return pairs * (len(MEASURES) if n >= LEAST_VALUES else 1)


def most_successes(n: int, comparisons: int) -> int | None:
    """Return how many of n successes pass Holm's first step against n of n, by Fisher's test; None: not even 0."""
    shown = bisect_right(range(n), LEVEL * (1 + ROUNDING), key=lambda k: comparisons * success_p(n, k))
    return shown - 1 if shown else None


def success_p(n: int, successes: int) -> float:
    """Compute the two-sided p-value of Fisher's exact test for n of n successes against `successes` of n."""
    if successes == n:
        return 1.0
    # The table and its mirror image; all others with these sums are likelier.
    return min(1.0, 2 * math.exp(_log_comb(n, successes) - _log_comb(2 * n, n + successes)))


def _log_comb(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def chance_to_show(n: int, comparisons: int) -> float:
    """Estimate how often n seeds show that normal runs differ by one standard deviation, at Holm's first step."""
    if n < least_for_ranks(comparisons):
        return 0.0
    draw, shown = random.Random(0), 0
    for _ in range(DRAWS):
        differences = [draw.gauss(1, math.sqrt(2)) for _ in range(min(n, MOST))]
        values = [(value, value) for value in differences]
        shown += comparisons * signed_rank_test(values) <= LEVEL and (median_of(values).low or 0.0) > 0
    return shown / DRAWS
