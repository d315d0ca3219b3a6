"""Statistics over the seeds of a sweep: intervals, quartiles with censored runs, paired differences, and the report."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from mhsa_cli.core import make_sure_of_memory
from mhsa_cli.records.labels import in_order, set_order
from mhsa_cli.records.sweep import (
    LEAST_PAIRS,
    MEASURES,
    Difference,
    GroupStats,
    Measure,
    PairStats,
    Quartiles,
    SweepReport,
    TrialResult,
)

_TIE = 1e-9  # a mean that equals the goal up to rounding reaches it


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


def quartiles(values: Sequence[float | None]) -> Quartiles:
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


def paired_difference(
    a: Mapping[int, float | None], b: Mapping[int, float | None], seed: int, draws: int = 2000
) -> Difference:
    """Bootstrap the mean of b - a over the seeds with a finite value in both, at 95%; below LEAST_PAIRS no interval.

    The percentile interval with tails expanded by Student's t for small samples: for 6 equal pairs the plain interval
    excludes 0 in 16% of cases, this one in 8%.
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
    draw = random.Random(seed).random  # equal in every version of Python
    means = sorted(math.fsum(found[int(draw() * n)] for _ in range(n)) / n for _ in range(draws))
    tail = _tail(n)
    return Difference(mean, _quantile(means, tail), _quantile(means, 1 - tail), n)


def _tail(n: int) -> float:
    """Compute the share of draws to cut on each side for 95% coverage of a mean of `n`."""
    make_sure_of_memory("scipy")
    from scipy.special import ndtr, stdtrit

    return float(ndtr(math.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.025)))


def steps_to_goal(steps: Sequence[int], accuracies: Sequence[float | None], goal: float, window: int = 8) -> int | None:
    """Find the first step from which `window` recorded batches in a row average at least `goal`, else None.

    None and NaN are below every goal. Raises: ValueError for a window below 1 or lists of different lengths.
    """
    if window < 1 or len(steps) != len(accuracies):
        raise ValueError(f"found window {window}, {len(steps)} steps and {len(accuracies)} accuracies")
    numbers = [math.nan if value is None else value for value in accuracies]
    for start in range(len(numbers) - window + 1):
        if math.fsum(numbers[start : start + window]) >= (goal - _TIE) * window:
            return steps[start]
    return None


def report(cells: Sequence[Mapping[str, str]], trials: Sequence[TrialResult], goal: float, seed: int) -> SweepReport:
    """Summarise a sweep: `cells` are the overrides of each group, `goal` an accuracy (0..1), `seed` the bootstrap's.

    Pairs are groups that differ in one key by neighbouring values, compared seed by seed where both trials finished.
    A failed trial counts as no success; a missing or stopped one is not counted.
    Raises: ValueError for a trial of no cell, or two of one cell and seed.
    """
    by_cell: list[dict[int, TrialResult]] = [{} for _ in cells]
    for trial in trials:
        if not 0 <= trial.cell < len(cells) or trial.seed in by_cell[trial.cell]:
            raise ValueError(f"trial {trial.run} of cell {trial.cell}, seed {trial.seed}: no such cell, or a second")
        by_cell[trial.cell][trial.seed] = trial
    groups = [_group(overrides, list(own.values()), goal) for overrides, own in zip(cells, by_cell, strict=True)]
    return SweepReport(groups, list(_pairs(cells, by_cell, seed)), trials, goal)


def _group(overrides: Mapping[str, str], trials: Sequence[TrialResult], goal: float) -> GroupStats:
    finished = [trial for trial in trials if trial.is_finished]
    trials = [trial for trial in trials if trial.has_result]
    k = sum(trial.final_accuracy is not None and trial.final_accuracy >= goal for trial in finished)
    sets = Counter(in_order(trial.labels) for trial in finished) if any(t.labels for t in finished) else Counter()
    return GroupStats(
        overrides=overrides,
        models=len(finished),
        k=k,
        n=len(trials),
        wilson95=wilson(k, len(trials)),
        steps_to_goal=quartiles([trial.steps_to_goal if trial.is_finished else None for trial in trials]),
        final_loss=quartiles([trial.final_loss if trial.is_finished else None for trial in trials]),
        label_sets=sorted(sets.items(), key=lambda item: (-item[1], set_order(item[0]))),
    )


def neighbours(cells: Sequence[Mapping[str, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield the cells (first, second) that differ only in `key`, by neighbouring values of the grid.

    Numbers are sorted, 1 2 4 8; other values keep the order of the grid.
    """
    for key in cells[0] if cells else ():
        rows: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for number, overrides in enumerate(cells):
            rest = tuple((other, text) for other, text in overrides.items() if other != key)
            rows.setdefault(rest, []).append(number)
        for row in rows.values():
            numbers = [_as_number(cells[cell][key]) for cell in row]
            if all(number is not None for number in numbers):
                row = [cell for _, cell in sorted(zip(numbers, row, strict=True))]
            yield from ((first, second, key) for first, second in zip(row, row[1:], strict=False))


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _pairs(
    cells: Sequence[Mapping[str, str]], by_cell: Sequence[Mapping[int, TrialResult]], seed: int
) -> Iterator[PairStats]:
    for first, second, key in neighbours(cells):
        mine, other = by_cell[first], by_cell[second]
        both = [s for s in mine.keys() & other.keys() if mine[s].is_finished and other[s].is_finished]
        unfinished = len(mine.keys() | other.keys()) - len(both)
        for measure in MEASURES:
            a, b = ({s: _value(own[s], measure) for s in both} for own in (mine, other))
            difference = paired_difference(a, b, seed)
            yield PairStats(first, second, key, measure, difference, unfinished, len(both) - difference.n)


def _value(trial: TrialResult, measure: Measure) -> float | None:
    return trial.steps_to_goal if measure == "steps" else trial.final_loss
