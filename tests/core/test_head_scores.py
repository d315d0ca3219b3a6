"""Lifts and shapes of heads: perfect and uniform heads, plain loops, small cases by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mhsa_cli.core.heads import scores
from mhsa_cli.core.heads.capture import run_with_activations
from mhsa_cli.core.heads.probe import Probe, build_probe, evenly_spaced, gaps_to_test, repeated_blocks
from mhsa_cli.core.heads.scores import concat_heads, gap_lifts, lifts, positionality, shape, target_mass
from mhsa_cli.core.heads.targets import (
    SCORES,
    at_distance,
    duplicates,
    first_token,
    followers,
    offset_uniforms,
    target_weights,
)
from mhsa_cli.core.model.attention import causal_window, uniform_weights
from mhsa_cli.core.tasks.base import Batch
from tests.core.handmade import FAR, MODELS, Attended, Period, T, V, handmade, induction
from tests.core.noise import small
from tests.core.reference import draw

OWN = list(MODELS)


def probe_of(ids: Tensor, window: int | None = None) -> Probe:
    length = ids.size(1)
    visible = causal_window(length, length, window)
    found_targets = {
        name: target_weights(score.target(ids), visible) for name, score in SCORES.items() if name != "offset"
    }
    found = {name: one for name, one in found_targets.items() if one is not None}
    return Probe(Batch(ids, ids), ids, visible, found, offset_uniforms(visible), "by hand")


def measured(kind: str, task: Attended, rows: int = 12) -> dict[str, float]:
    """Lifts of the last head of a hand-built model on a task's rows."""
    model = MODELS[kind]()
    probe = build_probe(model, task, seed=5, rows=rows)
    assert probe is not None
    found = lifts(concat_heads(run_with_activations(model, probe.ids).weights), probe)
    return {name: float(one.lift[-1]) for name, one in found.items()}


@pytest.mark.parametrize("kind", OWN)
def test_a_perfect_head_scores_one_on_its_own_target_and_little_elsewhere(kind: str) -> None:
    found = measured(kind, Attended(kind))
    assert set(found) == set(SCORES)
    assert found.pop(kind) == pytest.approx(1.0, abs=1e-6)
    assert max(found.values()) < 0.3


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("name", list(SCORES))
def test_a_uniform_head_scores_zero_on_every_target(name: str, window: int | None) -> None:
    model = handmade("uniform", window=window)
    probe = build_probe(model, Attended("self"), seed=5, rows=12)
    assert probe is not None
    found = lifts(concat_heads(run_with_activations(model, probe.ids).weights), probe)[name]
    assert abs(float(found.lift[0])) < 1e-6
    assert float(found.mass[0]) == pytest.approx(float(found.uniform[0]), abs=1e-6) and float(found.uniform[0]) > 0


@pytest.mark.parametrize("task", [Attended("induction"), Period(6)], ids=["random rows", "blocks"])
def test_the_direction_tells_induction_from_duplicate(task: Attended) -> None:
    there, back = measured("induction", task), measured("duplicate", task)
    assert there["induction"] == pytest.approx(1.0, abs=1e-6) and there["duplicate"] < 0
    assert back["duplicate"] == pytest.approx(1.0, abs=1e-6) and back["induction"] < 0


def test_the_best_offset_is_named_by_its_distance() -> None:
    model = handmade("offset", "period 9", "previous")
    probe = build_probe(model, Attended("offset"), seed=5, rows=6)
    assert probe is not None
    found = lifts(concat_heads(run_with_activations(model, probe.ids).weights), probe)["offset"]
    assert found.distance is not None and found.distance[:2].tolist() == [FAR, 8]
    assert found.lift[:2].tolist() == pytest.approx([1.0, 1.0], abs=1e-6)
    assert float(found.lift[2]) < 0.1  # one back is the previous-token score's


def test_distances_leave_enough_queries() -> None:
    """One or two queries are too few for a label."""
    assert list(offset_uniforms(causal_window(16, 16))) == list(range(2, 13))
    assert list(offset_uniforms(causal_window(16, 16, 4))) == [2, 3]  # further back nothing is seen
    assert list(offset_uniforms(causal_window(5, 5))) == [2, 3]
    assert offset_uniforms(causal_window(3, 3)) == {}


@pytest.mark.parametrize(("length", "window"), [(16, None), (16, 4), (7, 1), (7, 2), (7, 7)])
def test_the_uniform_mass_of_a_distance_is_that_of_its_target(length: int, window: int | None) -> None:
    """Two computations: from the diagonal alone, and as for every other target."""
    visible, ids = causal_window(length, length, window), torch.zeros(1, length, dtype=torch.long)
    wanted = {d: target_weights(at_distance(d)(ids), visible) for d in range(2, length - max(2, length // 4) + 1)}
    found = offset_uniforms(visible)
    assert list(found) == [d for d, one in wanted.items() if one is not None]
    for d, chance in found.items():
        assert chance == pytest.approx(wanted[d].uniform, abs=1e-7)  # type: ignore[union-attr]


# Plain loops over rows, heads, queries and keys: the definitions again, without a tensor operation.


# By the row's ids, a query, and a distance: the keys of each score.
KEYS_OF: dict[str, Callable[[list[int], int, int], set[int]]] = {
    "previous": lambda row, q, d: {q - 1},
    "self": lambda row, q, d: {q},
    "first": lambda row, q, d: {0} if q >= 1 else set(),
    "offset": lambda row, q, d: {q - d},
    "duplicate": lambda row, q, d: {k for k in range(q) if row[k] == row[q]},
    "induction": lambda row, q, d: {j + 1 for j in range(q) if row[j] == row[q] and j + 1 <= q},
}


def test_every_score_has_its_definition() -> None:
    assert set(KEYS_OF) == set(SCORES)


def loop_lift(weights: Tensor, ids: Tensor, head: int, name: str, window: int | None, distance: int = 0) -> float:
    mass, chance = [], []
    for b, row in enumerate(ids.tolist()):
        for q in range(len(row)):
            sees = {k for k in range(q + 1) if window is None or q - k < window}
            keys = KEYS_OF[name](row, q, distance) & sees
            if keys and keys != sees:
                mass.append(sum(float(weights[b, head, q, k]) for k in keys))
                chance.append(len(keys) / len(sees))
    s, u = sum(mass) / len(mass), sum(chance) / len(chance)
    return (s - u) / (1 - u)


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("name", list(SCORES))
def test_lifts_are_those_of_plain_loops(name: str, window: int | None) -> None:
    ids = torch.randint(3, (4, 7), generator=torch.Generator().manual_seed(1))
    visible = causal_window(7, 7, window)
    weights = draw(4, 2, 7, 7).mul(2).masked_fill(~visible, -math.inf).softmax(-1)
    found = lifts(weights, probe_of(ids, window))[name]
    for head in range(2):
        if name == "offset":
            every = {d: loop_lift(weights, ids, head, name, window, d) for d in range(2, 4 if window else 6)}
            best = max(every, key=lambda d: every[d])
            assert found.distance is not None and int(found.distance[head]) == best
            wanted = every[best]
        else:
            wanted = loop_lift(weights, ids, head, name, window)
        assert float(found.lift[head]) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("window", [None, 4])
def test_shapes_are_those_of_plain_loops(window: int | None) -> None:
    visible = causal_window(7, 7, window)
    weights = draw(3, 2, 7, 7).mul(2).masked_fill(~visible, -math.inf).softmax(-1)
    found, bound = shape(weights, visible), positionality(weights, visible)
    for head in range(2):
        entropy, alike, sure, same = [], [], [], []
        for q in range(1, 7):
            sees = [k for k in range(q + 1) if window is None or q - k < window]
            mean = [sum(float(weights[b, head, q, k]) for b in range(3)) / 3 for k in sees]
            for b in range(3):
                row = [float(weights[b, head, q, k]) for k in sees]
                entropy.append(-sum(p * math.log(p) for p in row) / math.log(len(sees)))
                alike.append(1 - sum(abs(p - 1 / len(sees)) for p in row) / 2)
                sure.append(max(row))
                same.append(1 - sum(abs(p - m) for p, m in zip(row, mean, strict=True)) / 2)
        wanted = [sum(values) / len(values) for values in (entropy, alike, sure, same)]
        got = [float(x[head]) for x in (*found.values(), bound)]
        assert got == pytest.approx(wanted, abs=1e-6)


def test_shapes_of_an_even_a_sharp_and_a_changing_head() -> None:
    visible = causal_window(9, 9)
    even, sharp = uniform_weights(visible, torch.float32), torch.eye(9)
    found = shape(torch.stack([even, sharp]).expand(5, 2, 9, 9), visible)
    assert found["entropy"].tolist() == pytest.approx([1.0, 0.0], abs=1e-6)
    assert found["uniformity"][0] == pytest.approx(1.0, abs=1e-6)
    assert found["uniformity"][1] == pytest.approx(sum(1 / (q + 1) for q in range(1, 9)) / 8, abs=1e-6)
    assert found["confidence"].tolist() == pytest.approx([sum(1 / (q + 1) for q in range(1, 9)) / 8, 1.0], abs=1e-6)
    one_each = torch.zeros(2, 1, 9, 9)  # row 0 looks at the first token, row 1 at itself: half of each mean
    one_each[0, 0, :, 0], one_each[1, 0] = 1.0, torch.eye(9)
    assert float(positionality(one_each, visible)) == pytest.approx(0.5)
    assert float(positionality(one_each[:1].expand(4, 1, 9, 9), visible)) == pytest.approx(1.0)


def test_targets_and_rows_that_count_by_hand() -> None:
    """Four tokens a b a a: written out, independent of the code above."""
    ids, visible = torch.tensor([[5, 7, 5, 5]]), causal_window(4, 4)

    def sets(target: Tensor) -> list[list[int]]:
        return [row.nonzero().flatten().tolist() for row in target[0]]

    assert sets(duplicates(ids)) == [[], [], [0], [0, 2]]
    assert sets(followers(ids)) == [[], [], [1], [1, 3]]
    assert sets(at_distance(0)(ids)) == [[0], [1], [2], [3]]
    assert sets(first_token(ids)) == [[], [0], [0], [0]]
    assert sets(followers(torch.full((1, 4), 2))) == [[], [1], [1, 2], [1, 2, 3]]

    def chance(target: Tensor, window: int | None = None) -> float | None:
        found = target_weights(target, visible if window is None else causal_window(4, 4, window))
        return None if found is None else found.uniform

    assert chance(duplicates(ids)) == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert chance(at_distance(0)(ids)) == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 3)  # query 0 has no other: left out
    assert chance(first_token(ids), window=2) == pytest.approx(1 / 2)  # only query 1 still sees it
    assert chance(duplicates(ids), window=2) == pytest.approx(1 / 2)  # only query 3, and of its two keys the nearer
    assert chance(at_distance(0)(ids), window=1) is None and chance(duplicates(torch.tensor([[0, 1, 2, 3]]))) is None
    everything = torch.tensor([[True] * 4] * 4).tril().unsqueeze(0)
    assert chance(everything) is None  # no query has a choice to miss

    weights = torch.zeros(1, 1, 4, 4)
    weights[0, 0, 2, 0], weights[0, 0, 2, 2] = 0.75, 0.25  # 0.75 on the duplicate
    weights[0, 0, 3, 1], weights[0, 0, 3, 2] = 0.5, 0.5  # 0.5 on it
    found = lifts(weights, probe_of(ids))
    u = (1 / 3 + 1 / 2) / 2
    assert float(found["duplicate"].mass) == pytest.approx(0.625)
    assert float(found["duplicate"].lift) == pytest.approx((0.625 - u) / (1 - u))
    assert float(found["induction"].mass) == pytest.approx(0.25)


def test_scores_do_not_depend_on_threads() -> None:
    model, found = small(max_seq_len=13), []  # 160 rows: enough numbers that torch shares the work out
    probe = build_probe(model, Attended("self", vocab_size=17, seq_len=13), seed=2, rows=160)
    assert probe is not None
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            weights = concat_heads(run_with_activations(model, probe.ids).weights)
            figures = [one.lift for one in lifts(weights, probe).values()]
            looks = shape(weights, probe.visible).values()
            found.append(torch.cat([*figures, *looks, positionality(weights, probe.visible)]))
    finally:
        torch.set_num_threads(1)
    assert float((found[0] - found[1]).abs().max()) < 1e-6


def test_distances_to_try_are_not_those_trained_nor_what_divides_them() -> None:
    assert gaps_to_test(Period(6), T) == ([6], [4, 7, 10, 12])  # 2 and 3 divide 6; 5, 8, 9 and 11 lie between
    assert gaps_to_test(Attended("self"), T) == ([], [2, 5, 9, 12])
    assert gaps_to_test(Attended("self", vocab_size=4), T) == (
        [],
        [2, 3, 4],
    )  # a block has no more symbols than there are
    assert evenly_spaced([1, 2, 3]) == [1, 2, 3] and evenly_spaced(range(10)) == [0, 3, 6, 9]


def test_blocks_hold_distinct_symbols_again_and_again() -> None:
    rows = repeated_blocks(Period(6), 7, T, seed=1, rows=5)
    assert rows.shape == (5, T) and torch.equal(rows[:, 7:], rows[:, :-7]) and int(rows.max()) < V
    assert all(len(set(row)) == 7 for row in rows[:, :7].tolist())
    assert len({tuple(row) for row in rows.tolist()}) == 5


@pytest.mark.parametrize("room", [scores.MAX_WEIGHTS, 1])
def test_distances_scored_together_are_those_scored_one_by_one(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other computation: one pass and one target per distance, in every row."""
    monkeypatch.setattr(scores, "MAX_WEIGHTS", room)
    model, task, length = small(0, n_layers=2, residual=True), Period(6), 13
    found, visible = gap_lifts(model, task, seed=1), causal_window(length, length)
    assert len(found["trained"]) == 1 and len(found["unseen"]) == len(found["duplicate"]) == 4
    for name, part in (("induction", {**found["trained"], **found["unseen"]}), ("duplicate", found["duplicate"])):
        for gap, lift in part.items():
            ids = repeated_blocks(task, gap, length, seed=1)
            target = target_weights(SCORES[name].target(ids), visible)
            weights = concat_heads(run_with_activations(model, ids).weights)
            assert target is not None and len(lift) == 6
            wanted = (target_mass(weights, target) - target.uniform) / (1 - target.uniform)
            assert float((lift - wanted).abs().max()) < 1e-6


def test_only_content_finds_repeats_at_every_distance() -> None:
    found = gap_lifts(induction(), Period(6), seed=1)
    assert list(found["trained"]) == [6] and list(found["unseen"]) == [4, 7, 10, 12] == list(found["duplicate"])
    assert all(
        float(lift[1]) == pytest.approx(1.0, abs=1e-6) for lift in (*found["unseen"].values(), found["trained"][6])
    )
    assert all(float(lift[1]) < 0 for lift in found["duplicate"].values())
    fixed = gap_lifts(handmade("period 6"), Period(6), seed=1)
    assert float(fixed["trained"][6]) == pytest.approx(1.0, abs=1e-6)
    assert all(float(lift) < 0 for lift in fixed["unseen"].values())
