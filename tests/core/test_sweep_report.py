"""A sweep summed up: which groups are neighbours, what counts as success, and what is left out of a pair."""

from __future__ import annotations

import itertools

import pytest

from mhsa_cli.core.statistics import neighbours, quartiles, report, wilson
from mhsa_cli.records.labels import Label, Role, set_words
from mhsa_cli.records.sweep import TrialResult
from mhsa_cli.renderers.pictures.sweep_words import NO_DIFFERENCE, ONE_SEED, pair_words

SPREAD, SHARP, COPY = Label("near-uniform"), Label("focused"), Label("offset", Role.SHOWN, 6)
HEADS = [{"model.n_heads": text} for text in ("1", "2", "4")]


def trial(cell: int, seed: int, steps: int | None = 50, loss: float | None = 0.01, **changes: object) -> TrialResult:
    facts = {"final_accuracy": 1.0, "seconds": 1.5, "status": "finished", "labels": [SPREAD] * 2, **changes}
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
    group = report(HEADS[:2], trials, 0.9, seed=1).groups[1]
    assert group.overrides == {"model.n_heads": "2"}
    assert (group.models, group.k, group.n) == (3, 2, 4) and group.wilson95 == wilson(2, 4)
    assert group.steps_to_goal == quartiles([40, 60, None, None])  # the failed one's figures do not count
    assert group.final_loss == quartiles([0.02, 0.5, 0.03, None])
    assert group.label_sets == [((COPY, COPY), 2), ((COPY, SPREAD), 1)]


def test_a_failed_trial_is_no_success_even_where_it_was_good() -> None:
    found = report(HEADS[:1], [trial(0, 1), trial(0, 2, status="failed")], 0.9, seed=1)
    assert (found.groups[0].k, found.groups[0].n, found.groups[0].models) == (1, 2, 1)
    assert found.trials[1].status == "failed" and found.goal == 0.9 and found.pairs == []
    empty = report(HEADS[:1], [], 0.9, seed=1).groups[0]
    assert (empty.n, empty.wilson95, empty.final_loss, empty.label_sets) == (0, (0.0, 1.0), (None,) * 3, [])


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


def test_pairs_in_words() -> None:
    trials = [
        *(trial(0, s, 100 + 3 * s, 0.02) for s in range(8)),
        *(trial(1, s, 100 - 30 + 2 * s, 0.02 + (0.001 if s % 2 else -0.001)) for s in range(8)),
        *(trial(2, s, 200, 0.5) for s in range(8)),
    ]
    found = report(HEADS, trials, 0.9, seed=1)
    assert [(p.first, p.second, p.key, p.measure) for p in found.pairs] == [
        (a, b, "model.n_heads", measure) for a, b in ((0, 1), (1, 2)) for measure in ("steps", "loss")
    ]
    assert found.pairs[0].difference.mean == -33.5  # -30 - s, s = 0..7
    said = [pair_words(found, pair) for pair in found.pairs]
    assert said[0].startswith("2 heads need 3") and said[0].endswith(
        " fewer steps to 90% accuracy than 1 head (8 seeds)"
    )
    assert said[1].startswith(f"2 heads vs. 1 head, final loss: {NO_DIFFERENCE}, -0.00")
    assert " more steps to 90% accuracy than 2 heads (8 seeds)" in said[2]
    assert said[3] == "4 heads end about 0.48 nats higher than 2 heads (8 seeds)"


def test_one_head_takes_a_singular_and_other_keys_their_names() -> None:
    cells = [{"model.n_heads": h, "train.lr": lr} for h, lr in (("2", "1e-3"), ("1", "1e-3"), ("1", "5e-3"))]
    trials = [trial(c, s, steps) for c, steps in enumerate((60, 20, 10)) for s in range(6)]
    found = report(cells, trials, 0.875, seed=1)
    said = [pair_words(found, pair) for pair in found.pairs if pair.measure == "steps"]
    assert said == [
        "at lr=1e-3: 2 heads need about 40 more steps to 87.5% accuracy than 1 head (6 seeds)",
        "at n_heads=1: lr=5e-3 needs about 10 fewer steps to 87.5% accuracy than lr=1e-3 (6 seeds)",
    ]


def test_what_is_left_out_of_a_pair_is_said() -> None:
    trials = [
        *(trial(0, s, 50) for s in range(10)),
        *(trial(1, s, 20, loss=0.005) for s in range(6)),
        trial(1, 6, None),
        trial(1, 7, 1, loss=None, status="failed"),  # and seeds 8 and 9 were never run
    ]
    found = report(HEADS[:2], trials, 0.9, seed=1)
    steps, loss = found.pairs
    assert (steps.difference.n, steps.unfinished, steps.unreached) == (6, 3, 1)
    assert pair_words(found, steps) == (
        "2 heads need about 30 fewer steps to 90% accuracy than 1 head "
        "(6 seeds; 3 excluded: unfinished trial; 1 excluded: goal not reached)"
    )
    assert (loss.difference.n, loss.unfinished, loss.unreached) == (7, 3, 0)


def test_one_seed_and_none() -> None:
    found = report(HEADS[:2], [trial(0, 1, None), trial(1, 1)], 0.9, seed=1)
    steps, loss = found.pairs
    assert (loss.difference.n, steps.difference.n, steps.unreached) == (1, 0, 1)
    assert ONE_SEED in pair_words(found, loss) and ONE_SEED not in pair_words(found, steps)


def test_trials_that_are_in_no_cell_or_twice_are_refused() -> None:
    for wrong in ([trial(2, 1)], [trial(-1, 1)], [trial(0, 1), trial(0, 1)]):
        with pytest.raises(ValueError, match="no such cell, or a second"):
            report(HEADS[:2], wrong, 0.9, seed=1)


def test_a_trial_without_a_result_is_not_counted() -> None:
    trials = [trial(0, 1), trial(0, 2, None, None, status="stopped"), trial(1, 1, None, None, status="missing")]
    first, second = report(HEADS[:2], trials, 0.9, seed=1).groups
    assert (first.models, first.k, first.n, first.wilson95) == (1, 1, 1, wilson(1, 1))
    assert first.steps_to_goal == (50, 50, 50)
    assert (second.models, second.n, second.wilson95) == (0, 0, (0.0, 1.0))
