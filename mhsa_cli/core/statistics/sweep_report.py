"""From the trials of a sweep to what they show: each group over its seeds, and neighbours against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from mhsa_cli.core.statistics.estimates import paired_difference, quartiles, wilson
from mhsa_cli.records.labels import in_order, set_order
from mhsa_cli.records.sweep import MEASURES, GroupStats, Measure, PairStats, SweepReport, TrialResult


def report(cells: Sequence[Mapping[str, str]], trials: Sequence[TrialResult], goal: float, seed: int) -> SweepReport:
    """Sum up a sweep. `cells` are the overrides of each group, `goal` an accuracy (0..1), `seed` the bootstrap's.

    Pairs are groups that differ in one key by neighbouring values, compared seed by seed. A trial that failed
    counts as one that did not succeed; one that is missing or was stopped is not counted. Pairs need both finished.
    Raises: ValueError for a trial of no cell, or two of one cell and seed.
    """
    by_cell: list[dict[int, TrialResult]] = [{} for _ in cells]
    for trial in trials:
        if not 0 <= trial.cell < len(cells) or trial.seed in by_cell[trial.cell]:
            raise ValueError(f"found trial {trial.run} of cell {trial.cell}, seed {trial.seed}: no such, or a second")
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
        # A trial that did not finish never got there, and has no final loss to speak of.
        steps_to_goal=quartiles([trial.steps_to_goal if trial.is_finished else None for trial in trials]),
        final_loss=quartiles([trial.final_loss if trial.is_finished else None for trial in trials]),
        label_sets=sorted(sets.items(), key=lambda item: (-item[1], set_order(item[0]))),
    )


def neighbours(cells: Sequence[Mapping[str, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield the cells (first, second) that differ in `key` alone, with no value of it between theirs.

    Numbers are put in their order, 1 2 4 8; other values stay in the order of the grid.
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
