"""Laws of the statistics: the quadratic, other libraries, coverage, and the ends where nothing can be said."""

from __future__ import annotations

import itertools
import math
import random
from statistics import median

import numpy as np
import pytest

from mhsa_cli.core.statistics import EXACT, fisher_test, holm, median_of, quartiles, signed_rank_test, wilson
from mhsa_cli.records.claims import LEVEL
from mhsa_cli.records.sweep import LEAST_VALUES, Bounds, Median
from tests.benchmarks.sweep_statistics import DISTRIBUTIONS, coverage, false_differences

Z = 1.959964


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 5), (3, 7), (15, 16), (16, 16), (64, 128), (999, 1000)])
def test_wilson_solves_its_quadratic_and_agrees_with_scipy(k: int, n: int) -> None:
    ends = wilson(k, n)
    for p in ends:
        assert (k / n - p) ** 2 == pytest.approx(Z**2 * p * (1 - p) / n, abs=1e-12)
    from scipy.stats import binomtest  # a second to import, and these tests are collected by every worker

    theirs = binomtest(k, n).proportion_ci(method="wilson")
    assert ends == pytest.approx((theirs.low, theirs.high), abs=1e-6)
    assert 0 <= ends[0] <= k / n <= ends[1] <= 1
    assert wilson(n - k, n) == pytest.approx((1 - ends[1], 1 - ends[0]), abs=1e-12)


def test_wilson_by_hand_and_at_the_ends() -> None:
    assert [round(end, 3) for end in wilson(15, 16)] == [0.717, 0.989]
    assert wilson(1, 2, z=1.0) == pytest.approx((0.5 - math.sqrt(3) / 6, 0.5 + math.sqrt(3) / 6))
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 7)[0] == 0.0 and wilson(7, 7)[1] == 1.0
    for k, n in ((-1, 3), (4, 3), (1, 0)):
        with pytest.raises(ValueError, match=f"found {k} of {n}"):
            wilson(k, n)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_wilson_covers_the_truth_about_as_often_as_it_says(p: float) -> None:
    n = 16
    chance = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    covered = sum(chance[k] for k in range(n + 1) if wilson(k, n)[0] <= p <= wilson(k, n)[1])
    assert 0.92 < covered < 0.985


@pytest.mark.parametrize("n", range(1, 14))
def test_quartiles_are_those_of_numpy(n: int) -> None:
    draw = random.Random(n)
    values = [draw.choice([draw.gauss(0, 5), float(draw.randrange(4))]) for _ in range(n)]
    assert quartiles(values) == pytest.approx(tuple(np.quantile(values, [0.25, 0.5, 0.75])), rel=1e-12, abs=1e-12)


def test_a_run_that_never_got_there_counts_as_infinity() -> None:
    assert quartiles([]) == (None, None, None)
    assert quartiles([7]) == (7, 7, 7)
    assert quartiles([None]) == (None, None, None)
    assert quartiles([3, None, 1, 2, None]) == (2, 3, None)  # ranks 1 and 2 are finite, rank 3 is not
    assert quartiles([None, 1, None, 2]) == (1.75, None, None)  # the median lies between 2 and infinity
    assert quartiles([1, 2, 3, math.inf]) == (1.75, 2.5, None)
    assert quartiles([1, 2, 3, math.nan, 4]) == (2, 3, 4)  # rank 3 itself: what lies beyond does not matter
    assert quartiles([1e308, -1e308])[1] == 0  # no overflow on the way


def known(values: list[float]) -> list[Bounds]:
    return [(value, value) for value in values]


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 8, 12, 20, 101])
def test_a_median_has_the_order_statistics_that_cover_it_just_often_enough(n: int) -> None:
    values = sorted(random.Random(n).gauss(3, 2) for _ in range(n))
    found = median_of(known(random.Random(1).sample(values, n)))
    assert found.estimate == pytest.approx(median(values)) and found.n == n
    below = [sum(math.comb(n, k) for k in range(rank)) / 2**n for rank in range(n // 2 + 1)]  # P(fewer than rank)
    rank = max(rank for rank, chance in enumerate(below) if chance <= LEVEL / 2)
    assert (found.low, found.high) == ((None, None) if n < LEAST_VALUES else (values[rank - 1], values[n - rank]))


def test_medians_at_the_ends() -> None:
    assert median_of([]) == Median(None, None, None, 0)
    assert median_of(known([4.0, 4.0])) == Median(4.0, None, None, 2)
    assert median_of(known([1e308, -1e308])).estimate == 0
    assert median_of([(2.0, 4.0)] * 7) == Median(None, 2.0, 4.0, 7)
    beyond, inf = [(9.0, math.inf)] * 4, math.inf
    assert median_of([*known([3, 5, 4]), *beyond]) == Median(None, 3, inf, 7)  # the fourth of seven is beyond 9
    assert median_of([*known([3, 5, 4, 2]), *beyond[:3]]) == Median(5, 2, inf, 7)
    assert median_of([(-inf, inf)] * 8) == Median(None, -inf, inf, 8)
    assert median_of([*known([3.0]), *[(inf, inf)] * 7]) == Median(inf, 3.0, inf, 8)


@pytest.mark.parametrize("n", [6, 9, 20])
def test_what_is_known_less_exactly_only_widens_the_interval(n: int) -> None:
    """Runs that were stopped before their goal: never a statement that the same runs, trained on, contradict."""
    draw = random.Random(n)
    for _ in range(60):
        values = [draw.lognormvariate(0, 1) for _ in range(n)]
        end = draw.choice(values)
        cut = [(value, value) if value <= end else (end, math.inf) for value in values]
        whole, found = median_of(known(values)), median_of(cut)
        assert whole.low is not None and whole.high is not None
        assert found.low is not None and found.low <= whole.low
        assert found.high in (math.inf, whole.high)
        assert found.estimate in (None, whole.estimate)


@pytest.mark.parametrize("n", [7, 9, 13])
def test_a_median_of_stopped_runs_is_that_of_kaplan_and_meier(n: int) -> None:
    from scipy.stats import CensoredData, ecdf

    draw, end, reached = random.Random(n), 1.4, 0
    for _ in range(20):
        values = [draw.lognormvariate(0, 1) for _ in range(n)]
        found = median_of([(value, value) if value <= end else (end, math.inf) for value in values])
        curve = ecdf(CensoredData.right_censored([min(value, end) for value in values], [v > end for v in values])).sf
        half = [time for time, alive in zip(curve.quantiles, curve.probabilities, strict=True) if alive < 0.5]
        theirs = half[0] if half and half[0] < end else None  # ours has several values beyond the end
        assert found.estimate == theirs
        reached += theirs is not None
    assert 0 < reached < 20


@pytest.mark.parametrize("n", [1, 5, 6, 9, 20, EXACT + 1, 400])
def test_the_signed_rank_test_is_that_of_scipy(n: int) -> None:
    from scipy.stats import wilcoxon

    draw = random.Random(n)
    for shift in (0.0, 0.2, -1.5):
        values = [draw.gauss(shift, 1) for _ in range(n)]
        method = "exact" if n <= EXACT else "approx"
        theirs = wilcoxon(values, method=method, correction=n > EXACT).pvalue
        assert signed_rank_test(known(values)) == pytest.approx(theirs, rel=1e-9)
        assert signed_rank_test(known([-value for value in values])) == pytest.approx(theirs, rel=1e-9)


def test_with_ties_zeros_and_unknown_values_all_signs_are_counted() -> None:
    values = [1.0, 1.0, -1.0, 2.0, 0.0, 3.0, 3.0]
    ranks = [3.0, 3.0, 3.0, 5.0, 6.5, 6.5]  # 0 has rank 1, and no sign
    sums = [sum(itertools.compress(ranks, signs)) for signs in itertools.product((0, 1), repeat=6)]
    for sign in (1, -1):
        bounds = [(sign * value, sign * value) for value in values]
        assert signed_rank_test(bounds) == pytest.approx(2 * sum(one >= 24 for one in sums) / 2**6)
    assert signed_rank_test([]) == signed_rank_test(known([0.0] * 9)) == 1.0
    assert signed_rank_test([(0.5, math.inf)] * 8) == signed_rank_test([(-math.inf, -2.0)] * 8) == 2 / 2**8
    assert signed_rank_test([(-1.0, math.inf)] * 20) == signed_rank_test([(-math.inf, math.inf)] * 9) == 1.0
    unknown = [*known([1.0, 3.0, -2.0]), (1.5, math.inf)]
    assert signed_rank_test(unknown) == signed_rank_test(known([1, 3, -2, 1.5])) == 0.625
    assert signed_rank_test([*known([1, 3, -2]), (-math.inf, -1.5)]) == signed_rank_test(known([1, 3, -2, -1.5]))
    pairs = [sign * size for size in range(1, 52) for sign in (1.0, -1.0)]
    assert len(pairs) > EXACT and signed_rank_test(known(pairs)) == 1.0


def test_signed_ranks_are_counted_by_hand_for_small_samples() -> None:
    from scipy.stats import rankdata

    draw = random.Random(6)
    for _ in range(20):
        values = [float(draw.randint(-2, 4)) for _ in range(7)]
        ranks = [rank for rank, value in zip(rankdata([abs(v) for v in values]), values, strict=True) if value]
        above = sum(rank for rank, value in zip(ranks, filter(None, values), strict=True) if value > 0)
        sums = [sum(itertools.compress(ranks, signs)) for signs in itertools.product((0, 1), repeat=len(ranks))]
        p = 2 * min(sum(one >= above for one in sums), sum(one <= above for one in sums)) / len(sums)
        assert signed_rank_test(known(values)) == pytest.approx(min(1.0, p))


def test_fisher_is_that_of_scipy_and_equal_shares_show_nothing() -> None:
    from scipy.stats import fisher_exact

    for first, second in itertools.product([(0, 8), (3, 8), (8, 8), (0, 0), (5, 12), (12, 12)], repeat=2):
        table = [[k, n - k] for k, n in (first, second)]
        assert fisher_test(first, second) == pytest.approx(fisher_exact(table).pvalue)
    assert fisher_test((8, 8), (0, 8)) == pytest.approx(2 / math.comb(16, 8))


def test_holm_by_hand_and_against_its_definition() -> None:
    assert holm([]) == []
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.9]) == [1.0, 1.0]
    draw = random.Random(4)
    for size in (1, 2, 7, 14):
        values = [draw.random() ** 4 for _ in range(size)]
        adjusted = holm(values)
        for level in (0.01, 0.05, 0.2):
            left, rejected = sorted(values), set[float]()
            while left and left[0] <= level / len(left):  # step down
                rejected.add(left.pop(0))
            assert {p for p, corrected in zip(values, adjusted, strict=True) if corrected <= level} == rejected


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_intervals_cover_the_truth(name: str) -> None:
    for n in (6, 12):
        assert coverage(name, n, tries=300) >= 0.93


def test_equal_settings_differ_in_few_sweeps() -> None:
    assert false_differences(settings=8, seeds=12, tries=60) <= 0.08
