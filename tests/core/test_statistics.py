"""Laws of the statistics: the quadratic, other libraries, coverage, and the ends where nothing can be said."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from mhsa_cli.core.statistics import paired_difference, quartiles, steps_to_goal, wilson
from mhsa_cli.records.claims import Status
from mhsa_cli.records.sweep import LEAST_PAIRS, Difference, Measure
from mhsa_cli.renderers.pictures.sweep_words import NO_DIFFERENCE, ONE_SEED, difference_words

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


def seeds(values: list[float | None]) -> dict[int, float | None]:
    return {100 + i: value for i, value in enumerate(values)}


def test_equal_samples_differ_by_nothing() -> None:
    same = seeds([4.0, 8.0, 1.0, 3.0, 9.0, 2.0, 7.0])
    assert paired_difference(same, same, 1) == Difference(0.0, 0.0, 0.0, 7)
    assert paired_difference(same, same, 1).status is Status.NOT_SHOWN


def test_pairs_are_by_seed_and_the_sign_is_second_minus_first() -> None:
    first = {5: 10.0, 1: 20.0, 2: 30.0, 3: 40.0, 8: 50.0, 9: 60.0, 7: None, 4: 1.0}
    second = {9: 57.0, 8: 47.0, 3: 37.0, 2: 27.0, 1: 17.0, 5: 7.0, 7: 3.0, 6: 1.0}
    assert paired_difference(first, second, 3) == Difference(-3.0, -3.0, -3.0, 6)
    back = paired_difference(second, first, 3)
    assert back == Difference(3.0, 3.0, 3.0, 6)


def test_the_interval_is_the_same_for_the_same_seed_and_moves_with_the_values() -> None:
    draw = random.Random(8)
    a = seeds([draw.gauss(0, 1) for _ in range(11)])
    b = seeds([draw.gauss(1, 1) for _ in range(11)])
    one = paired_difference(a, b, 5)
    assert one == paired_difference(dict(reversed(a.items())), b, 5) != paired_difference(a, b, 6)
    assert one.low is not None and one.mean is not None and one.high is not None and one.low < one.mean < one.high
    scaled = paired_difference({s: 4.0 * v for s, v in a.items()}, {s: 4.0 * v + 32 for s, v in b.items()}, 5)  # type: ignore[operator]
    assert (scaled.low, scaled.high) == pytest.approx((4 * one.low + 32, 4 * one.high + 32))


@pytest.mark.parametrize(("n", "least"), [(LEAST_PAIRS, 0.88), (16, 0.9)])
def test_the_interval_covers_the_truth(n: int, least: float) -> None:
    """The plain percentile interval covers 84 % with 6 pairs: too few, and the bound here is above it."""
    draw = random.Random(12)
    tries, hits = 600, 0
    for trial in range(tries):
        a = seeds([draw.gauss(0, 2) for _ in range(n)])
        b = seeds([value + draw.gauss(3, 1) for value in a.values()])  # type: ignore[operator]
        found = paired_difference(a, b, trial, draws=300)
        hits += found.low <= 3 <= found.high  # type: ignore[operator]
    assert least < hits / tries < 0.99


def test_too_few_pairs_have_no_interval() -> None:
    for n in range(1, LEAST_PAIRS):
        found = paired_difference(seeds([2.0] * n), seeds([5.0] * n), 0)
        assert found == Difference(3.0, None, None, n)
    assert paired_difference({}, {1: 2.0}, 0) == Difference(None, None, None, 0)
    assert paired_difference({1: math.inf, 2: math.nan}, {1: 2.0, 2: 2.0}, 0).n == 0
    assert paired_difference(seeds([2.0] * LEAST_PAIRS), seeds([5.0] * LEAST_PAIRS), 0).low == 3.0


@pytest.mark.parametrize(
    ("low", "high", "measure", "said"),
    [
        (-60.4, -33.6, "steps", "34 to 60 fewer steps"),
        (33.6, 60.4, "steps", "34 to 60 more steps"),
        (-3.25, -0.25, "steps", "0.25 to 3.2 fewer steps"),
        (-40.2, -39.8, "steps", "about 40 fewer steps"),
        (-9.6, -120, "steps", "9.6 to 120 fewer steps"),
        (-0.00341, -0.0021, "loss", "0.0021 to 0.0034 nats lower"),
        (0.5, 1.25, "loss", "0.5 to 1.2 nats higher"),
        (-60, 1, "steps", f"{NO_DIFFERENCE}, -60 to +1 steps"),
        (0, 5, "steps", f"{NO_DIFFERENCE}, 0 to +5 steps"),
        (-5, 0, "loss", f"{NO_DIFFERENCE}, -5 to 0 nats"),
    ],
)
def test_a_difference_in_words(low: float, high: float, measure: Measure, said: str) -> None:
    assert difference_words(Difference((low + high) / 2, min(low, high), max(low, high), 16), measure) == said


def test_without_an_interval_the_number_of_seeds_decides_what_is_written() -> None:
    said = [difference_words(Difference(None if n == 0 else -5.0, None, None, n), "steps") for n in (0, 1, 4)]
    assert said[1] == ONE_SEED and len(set(said)) == 3 and "4 seeds" in said[2] and "6" in said[2]


def test_steps_to_goal_by_hand() -> None:
    steps = [3, 6, 9, 12, 15, 18]
    rising = [0.0, 0.5, 1.0, 0.5, 1.0, 1.0]
    assert steps_to_goal(steps, rising, 0.75, window=2) == 6  # 0.5 and 1.0: exactly the target
    assert steps_to_goal(steps, rising, 0.76, window=2) == 15
    assert steps_to_goal(steps, rising, 1.0, window=2) == 15
    assert steps_to_goal(steps, rising, 1.0, window=1) == 9
    assert steps_to_goal(steps, rising, 0.6, window=6) == 3  # 4.0 / 6 = 0.667
    assert steps_to_goal(steps, rising, 0.7, window=6) is None
    assert steps_to_goal(steps, [1.0] * 6, 0.5, window=7) is None  # too few batches to know
    assert steps_to_goal([], [], 0.5) is None
    assert steps_to_goal(steps, rising, 0.0, window=3) == 3


def test_ties_do_not_hang_on_the_last_bits() -> None:
    steps = list(range(1, 21))
    for target in (0.1, 0.3, 0.7, 0.9, 0.95):
        for window in (3, 7, 8, 10):
            assert steps_to_goal(steps, [target] * 20, target, window=window) == 1
            mixed = [target + (0.05 if i % 2 else -0.05) for i in range(20)]
            assert steps_to_goal(steps, mixed, target, window=window) == (1 if window % 2 == 0 else 2)
    assert steps_to_goal(steps, [0.9 - 1e-6] * 20, 0.9) is None


def test_a_gap_is_below_every_target() -> None:
    holed: list[float | None] = [1.0, None, 1.0, 1.0, math.nan, 1.0, 1.0, 1.0]
    assert steps_to_goal(range(1, 9), holed, 0.0, window=3) == 6
    assert steps_to_goal(range(1, 9), holed, 0.0, window=4) is None


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 steps and 3 accuracies"):
        steps_to_goal([1, 2], [0.5] * 3, 0.5)
    with pytest.raises(ValueError, match="window 0"):
        steps_to_goal([1], [1.0], 0.5, window=0)
