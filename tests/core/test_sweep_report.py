"""A sweep summed up: which groups are neighbours, what counts as success, and what is left out of a pair."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest

from mhsa_cli.core.statistics import wilson
from mhsa_cli.core.sweep_report import last_watched, neighbours, reached, report
from mhsa_cli.records.claims import Status
from mhsa_cli.records.labels import Label, Role, set_words
from mhsa_cli.records.sweep import Formed, Measure, Median, PairStats, SweepReport, TrialResult
from mhsa_cli.records.timeline import Interval, LossDrop
from mhsa_cli.records.training import EvalRecord, StepRecord

SPREAD, SHARP, COPY = Label("near-uniform"), Label("focused"), Label("offset", Role.SHOWN, 6)
HEADS = [{"model.n_heads": text} for text in ("1", "2", "4")]


def trial(cell: int, seed: int, steps: int | None = 50, loss: float | None = 0.01, **changes: object) -> TrialResult:
    facts = {"final_accuracy": 1.0, "seconds": 1.5, "status": "finished", "labels": [SPREAD] * 2, "watched": 90}
    facts |= changes
    facts.setdefault("cause", "nonfinite" if facts["status"] == "failed" else None)
    return TrialResult(run=f"c{cell}-s{seed}", cell=cell, seed=seed, final_loss=loss, steps_to_goal=steps, **facts)  # type: ignore[arg-type]


def test_neighbours_differ_in_one_key_by_adjacent_values() -> None:
    cells = [
        {"model.n_heads": h, "train.lr": lr} for h, lr in itertools.product(["8", "1", "2"], ["5e-3", "0.1", "1e-3"])
    ]
    found = {
        (cells[a]["model.n_heads"], cells[a]["train.lr"], cells[b]["model.n_heads"], cells[b]["train.lr"], key)
        for a, b, key in neighbours(cells)
    }
    heads = {(a, lr, b, lr, "model.n_heads") for a, b in (("1", "2"), ("2", "8")) for lr in ("5e-3", "0.1", "1e-3")}
    rates = {(h, a, h, b, "train.lr") for a, b in (("1e-3", "5e-3"), ("5e-3", "0.1")) for h in ("8", "1", "2")}
    assert found == heads | rates


def test_neighbours_over_holes_and_words() -> None:
    cells = [{"a": "1", "b": "x"}, {"a": "1", "b": "y"}, {"a": "2", "b": "y"}, {"a": "4", "b": "x"}]
    # 1-4 are neighbours at b=x, where the grid has no 2; x and y stay in the order of the grid.
    assert list(neighbours(cells)) == [(0, 3, "a"), (1, 2, "a"), (0, 1, "b")]
    assert list(neighbours([{"k": "null"}, {"k": "4"}, {"k": "2"}])) == [(0, 1, "k"), (1, 2, "k")]
    assert list(neighbours([{}])) == list(neighbours([])) == []


def test_a_group_counts_its_trials() -> None:
    trials = [
        trial(1, 3, 40, 0.02, labels=[COPY] * 2),
        trial(1, 4, None, 0.5, final_accuracy=0.89, labels=[SPREAD, COPY]),
        trial(1, 5, 60, 0.03, final_accuracy=0.9, labels=[COPY] * 2),
        trial(1, 6, 20, 9.0, status="failed", final_accuracy=None, labels=[], message="NaN"),
        trial(0, 3),
    ]
    group = report(HEADS[:2], trials, 0.9).groups[1]
    assert group.overrides == {"model.n_heads": "2"}
    assert (group.models, group.k, group.n) == (3, 2, 4) and group.wilson95 == wilson(2, 4)
    # 20, before it diverged, 40, 60, and one that was watched up to step 90.
    assert group.steps_to_goal == Median(50, None, None, 4) and group.watched == 90
    assert group.final_loss == Median(0.265, None, None, 4)  # of 0.02, 0.03, 0.5, and one that diverged
    assert group.label_sets == [((COPY, COPY), 2), ((COPY, SPREAD), 1)]


def test_a_failed_trial_is_no_success_even_where_it_was_good() -> None:
    found = report(HEADS[:1], [trial(0, 1), trial(0, 2, status="failed")], 0.9)
    assert (found.groups[0].k, found.groups[0].n, found.groups[0].models) == (1, 2, 1)
    assert found.trials[1].status == "failed" and found.goal == 0.9 and found.pairs == []
    empty = report(HEADS[:1], [], 0.9).groups[0]
    assert (empty.n, empty.wilson95, empty.label_sets) == (0, (0.0, 1.0), []) and empty.final_loss.n == 0


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ([COPY] * 4, "4 x offset 6"),
        ([SPREAD, Label("previous", Role.SHOWN), SPREAD, SPREAD], "previous token, 3 x near uniform"),
        ([Label("offset", Role.SHOWN, 10), Label("offset", Role.SHOWN, 2)], "offset 2, offset 10"),
        ([SHARP, SPREAD, SHARP], "near uniform; 2 x focused, no known pattern"),
        (
            [Label("previous", Role.NO_EFFECT), Label("self", Role.SHOWN), COPY],
            "own position; offset 6; previous token pattern, no effect shown",
        ),
        ([], "no labels"),
    ],
)
def test_labels_of_a_model_as_text(labels: list[Label], text: str) -> None:
    assert {set_words(order) for order in itertools.permutations(labels)} == {text}


def pair_of(found: SweepReport, measure: Measure, second: int = 1) -> PairStats:
    return next(pair for pair in found.pairs if (pair.measure, pair.second) == (measure, second))


def test_pairs_by_hand() -> None:
    trials = [
        *(trial(0, s, 100 + 3 * s, 0.02, watched=300) for s in range(9)),
        *(trial(1, s, 70 + 2 * s, 0.02 + (0.001 if s % 2 else -0.001), watched=300) for s in range(9)),
        *(trial(2, s, 200, 0.5, watched=300) for s in range(9)),
    ]
    found = report(HEADS, trials, 0.9)
    assert [(p.first, p.second, p.key, p.measure) for p in found.pairs] == [
        (a, b, "model.n_heads", measure) for a, b in ((0, 1), (1, 2)) for measure in ("steps", "loss", "success")
    ]
    fewer, loss, success, more, higher, _ = found.pairs
    assert (fewer.difference, fewer.mean, fewer.status) == (Median(-34, -37, -31, 9), -34, Status.OPPOSITE)  # -30 - s
    assert fewer.p == 2 / 2**9 and fewer.adjusted == 6 * fewer.p
    assert (loss.status, success.status) == (Status.NOT_SHOWN, Status.NOT_SHOWN)
    assert success.counts == ((9, 9), (9, 9)) and success.difference is None
    assert (more.status, higher.status) == (Status.SHOWN, Status.SHOWN)


def test_eight_seeds_can_show_nothing_among_eight_settings_and_ten_can() -> None:
    cells = [{"train.lr": str(cell)} for cell in range(8)]
    for seeds, wanted in ((8, Status.NOT_SHOWN), (10, Status.SHOWN)):
        trials = [trial(cell, seed, 50 + 30 * (cell == 7) + seed) for cell in range(8) for seed in range(seeds)]
        steps = [pair for pair in report(cells, trials, 0.9).pairs if pair.measure == "steps"]
        assert [pair.status for pair in steps] == [*[Status.NOT_SHOWN] * 6, wanted]
        assert steps[-1].difference is not None and steps[-1].difference.low == 30  # alone, it excludes 0


def test_runs_that_did_not_reach_the_goal_count_as_later_than_they_were_watched() -> None:
    slow = [trial(1, s, 80 if s < 3 else None) for s in range(9)]
    found = pair_of(report(HEADS[:2], [*(trial(0, s, 40 + s) for s in range(9)), *slow], 0.9), "steps")
    # 40, 39, 38, and more than 90 - 43 = 47 ... 90 - 48 = 42; the rank of the interval is 2
    assert (found.difference, found.mean, found.status) == (Median(None, 39, math.inf, 9), None, Status.SHOWN)
    nobody = report(HEADS[:2], [trial(c, s, None) for c in (0, 1) for s in range(9)], 0.9)
    assert pair_of(nobody, "steps").difference == Median(None, -math.inf, math.inf, 9)
    assert pair_of(nobody, "steps").status is Status.NOT_SHOWN


def test_stuck_runs_are_compared_by_their_number() -> None:
    trials = [trial(c, s, 40 if c else None, final_accuracy=float(c)) for c in (0, 1) for s in range(8)]
    found = pair_of(report(HEADS[:2], trials, 0.9), "success")
    assert found.counts == ((0, 8), (8, 8)) and found.status is Status.SHOWN
    assert found.p == pytest.approx(2 / 12870) and found.adjusted == pytest.approx(6 / 12870)


def test_success_is_compared_by_its_share() -> None:
    few = [trial(0, s, 40) for s in range(12)]
    many = [trial(1, s, 40, final_accuracy=float(s < 14)) for s in range(40)]
    found = pair_of(report(HEADS[:2], [*few, *many], 0.9), "success")
    assert (found.counts, found.status, found.unfinished) == (((12, 12), (14, 40)), Status.OPPOSITE, 28)
    alone = pair_of(report(HEADS[:2], few, 0.9), "success")
    assert (alone.counts, alone.status) == (((12, 12), (0, 0)), Status.NOT_MEASURED)


def test_what_is_left_out_of_a_pair_is_counted() -> None:
    trials = [
        *(trial(0, s, 50) for s in range(10)),
        *(trial(1, s, 20, loss=0.005) for s in range(6)),
        trial(1, 6, None),
        trial(1, 7, 1, loss=None, status="failed"),  # diverged; seed 8 ran out of memory, and 9 was never run
        trial(1, 8, None, loss=None, status="failed", cause="memory"),
    ]
    found = report(HEADS[:2], trials, 0.9)
    steps, loss, success = found.pairs
    assert steps.difference == Median(-30, -49, math.inf, 8)  # -49, six of -30, and more than 90 - 50
    assert loss.difference == Median(-0.005, -0.005, math.inf, 8) and loss.mean is None
    assert (steps.unfinished, loss.unfinished, success.unfinished) == (2, 2, 2) and success.counts == ((10, 10), (7, 8))


def test_runs_that_diverge_end_above_all_others_and_are_alike() -> None:
    def pair(diverged: int, both: int = 0) -> PairStats:
        other = [trial(1, s, 40, loss=0.01 + s / 1e4) for s in range(diverged, 10)]
        bad = [trial(c, s, None, loss=None, status="failed") for c in (0, 1) for s in range(diverged) if c or s < both]
        good = [trial(0, s, 40, loss=0.01 + s / 1e4) for s in range(both, 10)]
        return pair_of(report(HEADS[:2], [*good, *other, *bad], 0.9), "loss")

    for diverged in (9, 10):
        assert pair(diverged).status is Status.SHOWN and pair(diverged).difference == Median(*[math.inf] * 3, 10)
    assert pair(6).status is Status.NOT_SHOWN  # four of ten are equal
    assert pair(10, both=10).difference == Median(0, 0, 0, 10) and pair(10, both=10).mean is None


def test_runs_that_diverge_never_reach_the_goal() -> None:
    bad = [trial(0, s, None, status="failed") for s in range(6)]
    found = report(HEADS[:1], [*bad, *(trial(0, s, 40) for s in (7, 8, 9))], 0.9)
    assert found.groups[0].steps_to_goal == Median(math.inf, 40, math.inf, 9)
    slow = [trial(1, s, None) for s in range(6)]  # later than step 90, or never too
    for first, second in ((bad, slow), (slow, bad)):
        trials = [replace(one, cell=cell) for cell, own in enumerate((first, second)) for one in own]
        found = report(HEADS[:2], trials, 0.9)
        assert pair_of(found, "steps").difference == Median(None, -math.inf, math.inf, 6)


def test_an_evaluation_after_the_last_window_shows_only_that_it_was_reached_by_then() -> None:
    late = [trial(0, s, 97 if s < 4 else 80 + s) for s in range(7)]
    assert report(HEADS[:1], late, 0.9).groups[0].steps_to_goal == Median(None, 84, 97, 7)


def test_trainings_of_different_lengths_are_compared_over_the_shorter() -> None:
    """Else what the shorter one hides is of one sign alone, and equal settings would differ."""
    draw, shown = random.Random(3), 0
    for _ in range(60):
        steps = [[round(100 * draw.expovariate(1)) for _ in range(40)] for _ in (0, 1)]
        trials = [
            trial(c, s, at if at <= end else None, watched=end)
            for c, end in ((0, 100), (1, 1000))
            for s, at in enumerate(steps[c])
        ]
        shown += pair_of(report(HEADS[:2], trials, 0.9), "steps").p <= 0.05
    assert shown <= 8


def test_nothing_is_compared_before_all_trials_have_a_result() -> None:
    """Those that diverge have theirs first; and who looks often finds something."""
    trials = [*(trial(0, s, 40) for s in range(9)), *(trial(1, s, 80, loss=0.5) for s in range(9))]
    assert pair_of(report(HEADS[:2], trials, 0.9), "steps").status is Status.SHOWN
    found = report(HEADS[:2], [*trials, trial(1, 9, None, None, status="running")], 0.9)
    assert {pair.status for pair in found.pairs} == {Status.NOT_MEASURED} and found.groups[1].pending == 1
    assert {(pair.p, pair.pending) for pair in found.pairs} >= {(1.0, True)} and found.groups[0].pending == 0


def test_only_comparisons_that_were_made_are_corrected_for() -> None:
    few = [trial(2, s, 80) for s in range(3)]
    trials = [*(trial(0, s, 40) for s in range(9)), *(trial(1, s, 80 + s) for s in range(9)), *few]
    found = report(HEADS, trials, 0.9)
    assert [pair.status for pair in found.pairs[3:5]] == [Status.NOT_MEASURED] * 2
    assert pair_of(found, "steps").adjusted == 4 * pair_of(found, "steps").p


@pytest.mark.parametrize("n", [0, 1, 5])
def test_too_few_seeds_show_nothing(n: int) -> None:
    found = report(HEADS[:2], [trial(c, s, 40 + 9 * c) for c in (0, 1) for s in range(n)], 0.9)
    assert [pair.status for pair in found.pairs[:2]] == [Status.NOT_MEASURED] * 2


def test_of_two_in_the_middle_the_known_one_is_the_median() -> None:
    trials = [trial(0, s, (35, 48, 70, 80, None, None, None, None)[s]) for s in range(8)]
    assert report(HEADS[:1], trials, 0.9).groups[0].steps_to_goal == Median(80, 35, math.inf, 8)
    assert report(HEADS[:1], trials[1:], 0.9).groups[0].steps_to_goal == Median(None, 48, math.inf, 7)


def test_when_labels_formed() -> None:
    def formed(low: int, circuit: str = "", **more: Interval | None) -> Formed:
        return Formed(
            {"induction:shown": Interval(low, low + 4), **more}, LossDrop(low + 1, 2.0, Interval(low, low + 9)), circuit
        )

    models = [formed(100 + 10 * s, "induction:shown" if s < 6 else "") for s in range(7)]
    models[2] = formed(120, "induction:shown", **{"previous:shown": None})
    found = report(HEADS[:1], [*(trial(0, s, formed=m) for s, m in enumerate(models)), trial(0, 9)], 0.9).groups[0]
    assert [(one.label and one.label.id, one.is_circuit, one.models) for one in found.formed] == [
        ("induction:shown", True, 6),
        ("induction:shown", False, 7),
        ("previous:shown", False, 1),
        (None, False, 7),
    ]
    assert {one.of for one in found.formed} == {7}
    assert found.formed[0].step == Median(127, 100, 154, 6)
    assert found.formed[1].step == Median(132, 100, 164, 7)
    assert found.formed[2].step.n == 0 and found.formed[3].step == Median(131, 100, 169, 7)


def test_shares_count_models_and_not_heads() -> None:
    circuit = Label("induction", Role.SHOWN)
    models = [
        trial(0, 3, labels=[COPY, COPY, SPREAD], formed=Formed({}, None, circuit.id)),
        trial(0, 4, labels=[SPREAD, COPY], formed=Formed({}, None)),
        trial(0, 5, labels=[]),
        trial(0, 6, labels=[SPREAD]),
        trial(0, 7, labels=[COPY], status="failed"),
    ]
    found = report(HEADS[:1], models, 0.9).groups[0].shares
    assert [(one.label, one.models, one.of, one.is_circuit) for one in found] == [
        (circuit, 1, 2, True),  # two of them say when their heads formed
        (SPREAD, 3, 4, False),
        (COPY, 2, 4, False),
        (None, 1, 4, False),
    ]
    assert all(one.wilson95 == wilson(one.models, one.of) for one in found)
    assert report(HEADS[:1], [trial(0, 3, labels=[])], 0.9).groups[0].shares == []


def test_the_median_trial_is_the_lower_of_two_in_the_middle() -> None:
    losses = {3: 0.5, 4: None, 5: 0.1, 6: 0.7, 8: 0.9}
    trials = [trial(0, seed, loss=loss) for seed, loss in losses.items()]
    found = report(HEADS[:2], [*trials, trial(0, 7, loss=0.6, status="failed"), trial(1, 3, loss=0.65)], 0.9)
    assert found.median_trial(0) == trials[3] and report(HEADS[:2], trials[:4], 0.9).median_trial(0) == trials[0]
    assert report(HEADS[:2], trials, 0.9).median_trial(1) is None


def test_a_goal_is_watched_for_up_to_the_last_window() -> None:
    assert [last_watched(160, 1), last_watched(160, 5), last_watched(4, 1)] == [153, 125, 0]
    batches = [StepRecord(step, 0.1, float(step >= 153), 0.01) for step in range(1, 161)]
    assert reached(batches, 0.9) == 153 and reached(batches[:-1], 0.9) is None


def test_a_goal_is_reached_by_eight_batches_or_by_an_evaluation() -> None:
    def batches(*accuracies: float) -> list[object]:
        return [StepRecord(3 * i + 1, 0.1, accuracy, 0.01) for i, accuracy in enumerate(accuracies)]

    rising = batches(*[0.5] * 5, *[0.9] * 8)
    assert reached(rising, 0.9) == 16 and reached(rising, 0.91) is None  # a mean that equals the goal reaches it
    assert reached(batches(*[0.9] * 7), 0.9) is None  # too few batches to know
    assert reached(batches(*[0.9] * 7, float("nan"), *[0.9] * 8), 0.9) == 25
    for goal in (0.04, 0.1, 0.3, 0.7, 0.9):  # which have no exact sums
        mixed = [goal + 0.05, goal - 0.05] * 4
        assert reached(batches(*mixed), goal) == 1 and reached(batches(*[goal - 1e-6] * 9), goal) is None
    shown, late = EvalRecord(12, 0.2, 0.9), EvalRecord(30, 0.2, 0.95)
    assert reached([*rising, late, shown], 0.95) == 30
    assert [reached([*rising, one], 0.9) for one in (shown, late)] == [12, 16]
    assert reached([EvalRecord(0, 4.0, 0.3), *batches(0.9)], 0.9) is None and reached([], 0.5) is None


def test_trials_that_are_in_no_cell_or_twice_are_refused() -> None:
    for wrong in ([trial(2, 1)], [trial(-1, 1)], [trial(0, 1), trial(0, 1)]):
        with pytest.raises(ValueError, match="no such cell, or a second"):
            report(HEADS[:2], wrong, 0.9)


def test_a_trial_without_a_result_is_not_counted() -> None:
    trials = [trial(0, 1), trial(0, 2, None, None, status="stopped"), trial(1, 1, None, None, status="missing")]
    first, second = report(HEADS[:2], trials, 0.9).groups
    assert (first.models, first.k, first.n, first.wilson95) == (1, 1, 1, wilson(1, 1))
    assert first.steps_to_goal == Median(50, None, None, 1)
    assert (second.models, second.n, second.wilson95) == (0, 0, (0.0, 1.0))


def test_a_trial_that_ended_early_was_watched_up_to_its_end() -> None:
    """Whether it would have reached the goal by the step of the other is not known; of a whole run it is: not."""
    for early, median in (({"ended_by": "patience", "watched": 30}, None), ({}, 50)):
        group = report(HEADS[:1], [trial(0, 1, 50), trial(0, 2, None, final_accuracy=0.2, **early)], 0.9).groups[0]
        assert (group.models, group.k, group.watched, group.steps_to_goal.estimate) == (2, 1, 90, median)
