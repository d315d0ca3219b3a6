"""The report of a sweep: each setting over its seeds, and neighbouring settings compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from mhsa_cli.core.statistics import fisher_test, holm, median_of, signed_rank_test, wilson
from mhsa_cli.records.claims import LEVEL, Status
from mhsa_cli.records.labels import Label, in_order, set_order
from mhsa_cli.records.sweep import (
    LEAST_VALUES,
    MEASURES,
    Bounds,
    FormedStats,
    GroupStats,
    LabelShare,
    Measure,
    Median,
    OwnRange,
    OwnStats,
    PairStats,
    SweepReport,
    TrialResult,
)
from mhsa_cli.records.timeline import Interval
from mhsa_cli.records.training import EvalRecord, StepRecord

WINDOW = 8  # recorded batches in a row that must average the goal
MOST_LABELS = 4  # of a group whose onsets are reported
_TIE = 1e-9  # a mean that equals the goal up to rounding reaches it


def reached(records: Sequence[object], goal: float) -> int | None:
    """Find the step at which a run reached its goal; None if it did not.

    That is the first step from which WINDOW recorded batches in a row average the goal, or that of the first evaluation
    which shows it, whichever is earlier.
    """
    batches = [(record.step, record.accuracy) for record in records if isinstance(record, StepRecord)]
    shown = [r.step for r in records if isinstance(r, EvalRecord) and r.accuracy >= goal]
    sums = [math.fsum(accuracy for _, accuracy in batches[i : i + WINDOW]) for i in range(len(batches) - WINDOW + 1)]
    first = next((place for place, total in enumerate(sums) if total >= (goal - _TIE) * WINDOW), None)
    return min([*shown[:1], *([] if first is None else [batches[first][0]])], default=None)


def last_watched(total: int, every: int) -> int:
    """Return the last step from which WINDOW batches, recorded `every` so many steps, are in a training of `total`."""
    return max(0, total - (WINDOW - 1) * every)


def report(cells: Sequence[Mapping[str, str]], trials: Sequence[TrialResult], goal: float) -> SweepReport:
    """Summarise a sweep: `cells` are the overrides of each group, `goal` is an accuracy (0..1).

    Pairs are groups that differ in one key by neighbouring values, compared seed by seed where both trials have a
    result. Differences are stated at 5% over all comparisons of the report.
    Raises: ValueError for a trial of no cell, or two of one cell and seed.
    """
    by_cell: list[dict[int, TrialResult]] = [{} for _ in cells]
    for trial in trials:
        if not 0 <= trial.cell < len(cells) or trial.seed in by_cell[trial.cell]:
            raise ValueError(f"trial {trial.run} of cell {trial.cell}, seed {trial.seed}: no such cell, or a second")
        by_cell[trial.cell][trial.seed] = trial
    groups = [_group(overrides, list(own.values()), goal) for overrides, own in zip(cells, by_cell, strict=True)]
    pairs = [
        _pair(first, second, key, measure, by_cell, groups)
        for first, second, key in neighbours(cells)
        for measure in MEASURES
    ]
    return SweepReport(groups, _corrected(pairs), trials, goal)


def _group(overrides: Mapping[str, str], trials: Sequence[TrialResult], goal: float) -> GroupStats:
    finished = [trial for trial in trials if trial.is_finished]
    ended = [trial for trial in trials if trial.has_result]
    watched = max((trial.watched for trial in trials), default=0)
    k = sum(trial.final_accuracy is not None and trial.final_accuracy >= goal for trial in finished)
    sets = Counter(in_order(trial.labels) for trial in finished) if any(t.labels for t in finished) else Counter()
    return GroupStats(
        overrides=overrides,
        models=len(finished),
        k=k,
        n=len(ended),
        wilson95=wilson(k, len(ended)),
        steps_to_goal=_kaplan_meier([_steps(trial, watched, trial.steps_to_goal) for trial in ended]),
        watched=watched,
        final_loss=median_of([_loss(trial) for trial in ended]),
        label_sets=sorted(sets.items(), key=lambda item: (-item[1], set_order(item[0]))),
        formed=_formed(finished),
        pending=sum(trial.is_pending for trial in trials),
        shares=_shares(finished),
        own_scores=_own_scores(finished),
    )


def _shares(trials: Sequence[TrialResult]) -> list[LabelShare]:
    """Count the models with each circuit and each label, the most frequent first; at the end those without labels."""
    if not any(trial.labels for trial in trials):
        return []
    known = [trial.formed.circuit for trial in trials if trial.formed is not None]
    labels = Counter(label for trial in trials for label in set(trial.labels))
    counts: list[tuple[Label | None, int, int, bool]] = [
        (Label.from_id(circuit), known.count(circuit), len(known), True) for circuit in sorted({*known} - {""})
    ]
    for label in sorted(in_order(labels), key=lambda label: -labels[label]):
        counts.append((label, labels[label], len(trials), False))
    without = sum(not trial.labels for trial in trials)
    counts += [(None, without, len(trials), False)] if without else []
    return [LabelShare(label, k, n, wilson(k, n), circuit) for label, k, n, circuit in counts]


def _own_scores(trials: Sequence[TrialResult]) -> list[OwnStats]:
    """Summarise the user's own scores over models."""
    found = []
    for name in dict.fromkeys(name for trial in trials for name in trial.own_scores):
        ranges = [trial.own_scores[name] for trial in trials if name in trial.own_scores]

        def known(part: str, ranges: Sequence[OwnRange] = ranges) -> list[float]:
            return [value for one in ranges if (value := getattr(one, part)) is not None]

        def middle(part: str) -> Median:
            return median_of([(value, value) for value in known(part)])

        chance = [median(known(part)) if known(part) else None for part in ("uniform", "null_low", "null")]
        found.append(OwnStats(name, middle("smallest"), middle("largest"), *chance))
    return found


def _steps(trial: TrialResult, watched: int, latest: float | None = None) -> Bounds:
    """Return what is known of the steps to the goal up to the step `watched`; later, only an evaluation can show it.

    `latest`: it was reached by then. A trial that diverged before its goal never reaches it; one that ended before its
    last step was watched for less.
    """
    watched = watched if trial.ended_by is None else min(watched, trial.watched)
    if trial.steps_to_goal is not None and trial.steps_to_goal <= watched:
        return trial.steps_to_goal, trial.steps_to_goal
    if latest is not None:
        return watched, latest
    return (watched if trial.is_finished or trial.steps_to_goal is not None else math.inf), math.inf


def _kaplan_meier(steps: Sequence[Bounds]) -> Median:
    """Compute the median of steps; the lower of two in the middle if the other is not known (Kaplan and Meier 1958)."""
    found = median_of(steps)
    low, high = sorted(steps)[(len(steps) - 1) // 2] if steps else (0.0, 1.0)
    return replace(found, estimate=low) if found.estimate is None and low == high else found


def _loss(trial: TrialResult) -> Bounds:
    """Return the final loss; that of a trial that diverged is infinite."""
    loss = trial.final_loss if trial.is_finished else None
    return (math.inf, math.inf) if loss is None or not math.isfinite(loss) else (loss, loss)


def _formed(trials: Sequence[TrialResult]) -> list[FormedStats]:
    """Summarise when labels formed, the most frequent first, and where the loss dropped most."""
    formed = [trial.formed for trial in trials if trial.formed is not None]
    models, counts = len(formed), Counter(label for one in formed for label in one.onsets)
    found = []
    for circuit in sorted({one.circuit for one in formed} - {""}):
        own = [one.onsets.get(circuit) for one in formed if one.circuit == circuit]
        found.append(FormedStats(Label.from_id(circuit), len(own), models, _when(own), True))
    for label, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_LABELS]:
        onsets = [one.onsets[label] for one in formed if label in one.onsets]
        found.append(FormedStats(Label.from_id(label), count, models, _when(onsets)))
    if found:
        drops = [one.drop for one in formed if one.drop is not None]
        step = median_of([(drop.step, drop.step) for drop in drops]).estimate
        found.append(FormedStats(None, len(drops), models, replace(_when([d.interval for d in drops]), estimate=step)))
    return found


def _when(steps: Sequence[Interval | None]) -> Median:
    """Compute the median of moments between two snapshots each, estimated from the middle between them."""
    known = [step for step in steps if step is not None]
    middles = [(step.low + step.high) / 2 for step in known]
    estimate = median_of([(middle, middle) for middle in middles]).estimate
    return replace(median_of([(step.low, step.high) for step in known]), estimate=estimate)


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


def _pair(
    first: int,
    second: int,
    key: str,
    measure: Measure,
    by_cell: Sequence[Mapping[int, TrialResult]],
    groups: Sequence[GroupStats],
) -> PairStats:
    """Compare two groups by one measure, without the correction for the number of comparisons."""
    mine, other = by_cell[first], by_cell[second]
    both = [seed for seed in mine.keys() & other.keys() if mine[seed].has_result and other[seed].has_result]
    unfinished = len(mine.keys() | other.keys()) - len(both)
    pending = groups[first].pending + groups[second].pending > 0
    bare = PairStats(first, second, key, measure, 1.0, 1.0, Status.NOT_MEASURED, None, None, None, unfinished, pending)
    if measure == "success":
        counts = (groups[first].k, groups[first].n), (groups[second].k, groups[second].n)
        (k1, n1), (k2, n2) = counts
        p, sign = fisher_test(*counts), (k2 * n1 > k1 * n2) - (k2 * n1 < k1 * n2)
        return replace(bare, p=p, status=_status(sign, n1 * n2 > 0 and not pending), counts=counts)
    # Up to a step that both were watched for: else the shorter training would hide differences of one sign alone.
    watched = min(groups[first].watched, groups[second].watched)
    values = [
        [_loss(own[seed]) if measure == "loss" else _steps(own[seed], watched) for own in (mine, other)]
        for seed in both
    ]
    found = [_minus(b, a) for a, b in values]
    p, middle = signed_rank_test(found), median_of(found)
    exact = all(low == high and math.isfinite(low) for pair in values for low, high in pair)
    mean = math.fsum(low for low, _ in found) / len(found) if found and exact else None
    sign = 0 if middle.low is None or middle.high is None else (middle.low > 0) - (middle.high < 0)
    status = _status(sign, len(found) >= LEAST_VALUES and not pending)
    return replace(bare, p=p, status=status, difference=middle, mean=mean)


def _minus(one: Bounds, other: Bounds) -> Bounds:
    """Return the bounds of a difference: two runs that both diverged do not differ."""
    if one == other == (math.inf, math.inf):
        return 0.0, 0.0
    low, high = one[0] - other[1], one[1] - other[0]
    return -math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high


def _status(sign: int, measured: bool) -> Status:
    """Return what a comparison shows if its test holds."""
    if not measured:
        return Status.NOT_MEASURED
    return Status.SHOWN if sign > 0 else Status.OPPOSITE if sign < 0 else Status.NOT_SHOWN


def _corrected(pairs: Sequence[PairStats]) -> list[PairStats]:
    """Correct the measured comparisons of a report for their number; what does not hold then is not shown."""
    measured = [place for place, pair in enumerate(pairs) if pair.status is not Status.NOT_MEASURED]
    found = [replace(pair, adjusted=1.0) for pair in pairs]
    for place, adjusted in zip(measured, holm([pairs[place].p for place in measured]), strict=True):
        status = pairs[place].status if adjusted <= LEVEL else Status.NOT_SHOWN
        found[place] = replace(pairs[place], adjusted=adjusted, status=status)
    return found
