"""What a number of seeds can show: other libraries' p-values, Holm's steps, and reports of drawn sweeps."""

from __future__ import annotations

import itertools
import math

import pytest

from mhsa_cli.core.power import DRAWS, chance_to_show, most_successes, seed_power, success_p
from mhsa_cli.core.statistics import signed_rank_test
from mhsa_cli.records.claims import LEVEL
from mhsa_cli.records.sweep import LEAST_VALUES, least_for_ranks
from tests.benchmarks.sweep_statistics import power


@pytest.mark.parametrize("n", [1, 2, 5, 8, 13])
def test_p_values_are_those_of_fisher_and_of_the_signed_ranks(n: int) -> None:
    from scipy.stats import fisher_exact

    for k in range(n + 1):
        assert success_p(n, k) == pytest.approx(fisher_exact([[n, 0], [k, n - k]]).pvalue, rel=1e-9)
    least = signed_rank_test([(0.5, 0.5)] * n)
    for m in (1, 3, 21, 1000):
        assert (n >= least_for_ranks(m)) == (n >= LEAST_VALUES and m * least <= LEVEL)


def test_the_least_seeds_by_hand() -> None:
    # 20 m <= 2^(n - 1) and 40 m <= C(2n, n): 2^9 = 512, C(10, 5) = 252, C(12, 6) = 924
    for settings, ranks, success in ((2, 7, 4), (8, 10, 6), (11, 11, 7)):
        found = seed_power([{"a": str(number)} for number in range(settings)], 8)
        assert found is not None and found.comparisons == 3 * (settings - 1)
        assert (found.least_for_ranks, found.least_for_success) == (ranks, success)


def test_the_most_successes_are_the_last_that_pass() -> None:
    for n, m in itertools.product(range(1, 40), (3, 21, 300)):
        passing = [k for k in range(n) if m * success_p(n, k) <= LEVEL]
        assert most_successes(n, m) == (passing[-1] if passing else None)
    assert (most_successes(50_000, 3) or 0) > 49_900  # no number is too large to compute with


def test_power_is_the_share_of_drawn_reports_that_show_one_standard_deviation() -> None:
    assert chance_to_show(9, 21) == 0.0 < chance_to_show(12, 21) < chance_to_show(5000, 21) == 1
    for n in (8, 20):  # a report may show a little more: Holm's first step is the strictest
        simulated = power(2, n, 300)
        assert abs(chance_to_show(n, 3) - simulated) < 4 * math.sqrt(0.25 / DRAWS)


def test_pairs_are_neighbours_in_one_setting() -> None:
    found = seed_power([{"a": str(a), "b": b} for a in (1, 2, 4) for b in "xy"], 12)
    assert found is not None and (found.pairs, found.comparisons) == (2 * 2 + 3, 3 * 7)
    assert found.most_successes == most_successes(12, 21) == 4
    assert seed_power([{}], 12) is None and seed_power([{"a": "1", "b": "x"}, {"a": "2", "b": "y"}], 12) is None
