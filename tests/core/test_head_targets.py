"""Lifts of heads on every target: perfect and uniform heads, plain loops, small cases by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mhsa_cli.core.heads.capture import run_with_activations
from mhsa_cli.core.heads.families import Numbers, distances_of, tokens_of
from mhsa_cli.core.heads.labels import COMMON, LIFT
from mhsa_cli.core.heads.probe import Probe, build_probe, probe_of
from mhsa_cli.core.heads.scores import concat_heads, lifts, scored_lifts
from mhsa_cli.core.heads.targets import (
    SCORES,
    at_distance,
    at_distances,
    duplicates,
    first_token,
    followers,
    same_token,
    target_keys,
    target_of,
    token,
)
from mhsa_cli.core.model.attention import causal_window, uniform_weights
from mhsa_cli.core.tasks import IGNORE, Batch, Task
from mhsa_cli.records.labels import TARGETS, Label, Role
from tests.core.handmade import FAR, MODELS, Attended, Period, handmade
from tests.core.reference import draw

OWN = list(MODELS)


class Marked(Task):
    """Any rows: symbol 2 is a separator, and the answer of a symbol is the next one, modulo 4."""

    vocab_size, seq_len, separator = 4, 7, 2

    def __init__(self) -> None: ...

    def source(self, inputs: Tensor) -> Tensor:
        return (inputs.unsqueeze(1) == (inputs.unsqueeze(2) + 1) % 4).tril()


def rows_of(ids: Tensor, window: int | None = None, scored: Tensor | None = None) -> Probe:
    length = ids.size(1)
    targets = ids if scored is None else ids.masked_fill(~scored, IGNORE)
    return probe_of(Marked(), Batch(ids, targets), ids, causal_window(length, length, window), "by hand")


def measured(kind: str, task: Attended, rows: int = 12) -> dict[str, float]:
    """Lifts of the last head of a hand-built model on a task's rows."""
    model = MODELS[kind]()
    probe = build_probe(model, task, seed=5, rows=rows)
    assert probe is not None
    found = lifts(concat_heads(run_with_activations(model, probe.ids).weights), probe)
    return {name: float(one.lift[-1]) for name, one in found.items()}


# Targets that a perfect head of another one meets as well: its own one place wider, or the same keys.
ALSO = {
    "previous": {"modulo"},
    "self": {"same", "modulo"},
    "first": {"offset"},
    "offset": {"modulo"},
    "duplicate": {"same"},
}


@pytest.mark.parametrize("kind", OWN)
def test_a_perfect_head_scores_one_on_its_own_target_and_little_elsewhere(kind: str) -> None:
    found = measured(kind, Attended(kind))
    assert set(found) == set(SCORES) - {"answer", "separator"}  # this task has neither
    assert found.pop(kind) == pytest.approx(1.0, abs=1e-6)
    assert max(lift for name, lift in found.items() if name not in ALSO.get(kind, ())) < LIFT


# One target of every name, on random rows of four symbols with a separator and an answer.
NAMED: dict[str, Numbers] = {name: Numbers(None, None, None) for name in SCORES} | {
    "offset": Numbers(2, None, None),
    "modulo": Numbers(1, 2, None),
    "token": Numbers(None, None, 3),
}


def random_rows(rows: int = 4, length: int = 7, symbols: int = 4) -> Tensor:
    return torch.randint(symbols, (rows, length), generator=torch.Generator().manual_seed(1))


def ideal(name: str, ids: Tensor, window: int | None = None) -> Tensor:
    """A head with all its weight on a target, spread over its keys, and uniform where there are none: (B, 1, T, T)."""
    visible = causal_window(ids.size(1), ids.size(1), window)
    keys = (target_of(name, NAMED[name], Marked())(ids) & visible).expand(len(ids), -1, -1)
    return uniform_weights(torch.where(keys.any(-1, keepdim=True), keys, visible), torch.float64).unsqueeze(1)


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("name", list(SCORES))
def test_the_ideal_head_of_a_target_scores_one_exactly(name: str, window: int | None) -> None:
    """Over all queries and over the scored ones."""
    ids, scored = random_rows(), torch.rand(4, 7, generator=torch.Generator().manual_seed(2)) < 0.5
    probe, weights = rows_of(ids, window, scored), ideal(name, ids, window)
    found = lifts(weights, probe)
    assert float(found[name].lift) == pytest.approx(1.0, abs=1e-15)
    assert scored_lifts(weights, probe, found)[name] == [pytest.approx(1.0, abs=1e-15)]
    if name in ("offset", "modulo", "token"):
        assert found[name].numbers(0) == NAMED[name]


def test_a_target_is_made_of_a_label_or_a_score() -> None:
    """Of every name, with its own numbers: the same keys as those that the scores use."""
    ids, task = random_rows(), Marked()
    assert list(SCORES) == list(TARGETS)
    for name, numbers in NAMED.items():
        label = Label(name, Role.SHOWN, *numbers)
        assert torch.equal(target_of(name, label, task)(ids), target_of(name, numbers, task)(ids))
    with pytest.raises(ValueError, match="number"):
        target_of("offset", Label("offset"), task)
    none = target_of("answer", Label("answer"), Attended("self"))(ids)  # a task without such keys
    assert none.shape == (1, 7, 7) and not none.any()
    assert not target_of("separator", Label("separator"), Attended("self"))(ids).any()


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("name", list(SCORES))
def test_a_uniform_head_scores_zero_on_every_target(name: str, window: int | None) -> None:
    ids, scored = random_rows(rows=6, length=9), torch.rand(6, 9, generator=torch.Generator().manual_seed(2)) < 0.5
    probe = rows_of(ids, window, scored)
    weights = uniform_weights(probe.visible, torch.float64).expand(6, 2, 9, 9)
    found = lifts(weights, probe)
    assert found[name].lift.tolist() == pytest.approx([0.0, 0.0], abs=1e-15)
    assert scored_lifts(weights, probe, found)[name] == pytest.approx([0.0, 0.0], abs=1e-15)
    assert found[name].mass.tolist() == pytest.approx(found[name].uniform.tolist(), abs=1e-15)
    assert 0 < float(found[name].uniform[0]) < 1


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


def test_a_distance_must_leave_a_quarter_of_the_queries_or_of_the_scored_ones() -> None:
    """Twelve tokens: 2 to 9 leave three queries or more, 10 and 11 two and one, all of them late."""

    def offsets(*late: int, window: int | None = None) -> list[int]:
        scored = torch.zeros(3, 12, dtype=torch.bool)
        scored[0, list(late)] = True
        enough = distances_of(causal_window(12, 12, window), scored).enough
        return [d for d in range(2, 12) if enough[d]]

    assert offsets(*range(12)) == list(range(2, 10))
    assert offsets(*range(4, 12)) == list(range(2, 11))  # 10 and 11 are a quarter of the eight scored
    assert offsets(11) == list(range(2, 12)) and offsets() == list(range(2, 10))
    assert offsets(11, window=4) == [2, 3]  # further back nothing is seen
    everything = torch.ones(1, 3, dtype=torch.bool)
    assert distances_of(causal_window(3, 3), everything).enough.tolist() == [True, True, True]
    assert distances_of(causal_window(12, 12), everything.new_ones(1, 12)).near == 9


def test_of_offsets_only_those_with_enough_queries_are_reported() -> None:
    far = torch.zeros(1, 1, 12, 12, dtype=torch.float64)
    far[0, 0] = uniform_weights(causal_window(12, 12), torch.float64)
    far[0, 0, 11] = torch.eye(12)[0]
    ids = torch.arange(12).unsqueeze(0)
    every = lifts(far, rows_of(ids))["offset"]
    only = lifts(far, rows_of(ids, scored=ids == 11))["offset"]
    assert every.distance is not None and int(every.distance) != 11 and float(every.lift) < 0.1
    assert only.numbers(0).distance == 11 and float(only.lift) == pytest.approx(1.0)
    for found in (every, only):
        assert found.by_distance is not None and list(found.by_distance) == list(range(2, 12))
        assert float(found.by_distance[11]) == pytest.approx(1.0)


# Plain loops over rows, heads, queries and keys: the definitions again, without a tensor operation.

# By the row's ids, a query, and the numbers of a family's member: the keys of each score.
KEYS_OF: dict[str, Callable[..., set[int]]] = {
    "previous": lambda row, q: {q - 1},
    "self": lambda row, q: {q},
    "first": lambda row, q: {0} if q >= 1 else set(),
    "offset": lambda row, q, d: {q - d},
    "duplicate": lambda row, q: {k for k in range(q) if row[k] == row[q]},
    "induction": lambda row, q: {j + 1 for j in range(q) if row[j] == row[q] and j + 1 <= q},
    "same": lambda row, q: {k for k in range(q + 1) if row[k] == row[q]},
    "modulo": lambda row, q, d, period: set(range(q - d, -1, -period)),
    "answer": lambda row, q: {k for k in range(q + 1) if row[k] == (row[q] + 1) % 4},
    "separator": lambda row, q: {k for k in range(q + 1) if row[k] == 2},
    "token": lambda row, q, v: {k for k in range(q + 1) if row[k] == v},
}


def members(name: str, ids: Tensor, window: int | None, scored: Tensor) -> list[tuple[int, ...]]:
    """The numbers of all members of a family that leave enough queries on seven tokens, by counting."""
    reach = 6 if window is None else window - 1  # the largest distance that is seen
    if name == "offset":
        late = [q for row in scored for q in range(1, 7) if row[q]]
        few = {d for d in range(2, 7) if 7 - d < 2 and sum(q >= d for q in late) < len(late) / 4}
        return [(d,) for d in range(2, reach + 1) if d not in few]
    if name == "modulo":  # two queries or more see q - d and q - d - period
        return [(d, p) for p in range(2, 7) for d in range(p) if d + p <= min(5, reach)]
    if name == "token":
        choice = [
            (row, q, sees) for row in ids.tolist() for q in range(7) if len({*(sees := seen(row, q, window))}) > 1
        ]
        return [(v,) for v in (0, 1, 3) if sum(v in sees for *_, sees in choice) >= len(choice) / 4]
    return [()]


def seen(row: list[int], q: int, window: int | None) -> list[int]:
    return [row[k] for k in range(q + 1) if window is None or q - k < window]


def loop_lift(
    weights: Tensor, ids: Tensor, head: int, name: str, window: int | None, numbers: tuple[int, ...], scored: Tensor
) -> tuple[float, float] | None:
    """The lift and the uniform mass over the queries in `scored`; None if none of them counts."""
    mass, chance = [], []
    for b, row in enumerate(ids.tolist()):
        for q in range(len(row)):
            sees = {k for k in range(q + 1) if window is None or q - k < window}
            keys = KEYS_OF[name](row, q, *numbers) & sees
            if keys and keys != sees and scored[b, q]:
                mass.append(sum(float(weights[b, head, q, k]) for k in keys))
                chance.append(len(keys) / len(sees))
    if not mass:
        return None
    s, u = sum(mass) / len(mass), sum(chance) / len(chance)
    return (s - u) / (1 - u), u


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("name", list(SCORES))
def test_lifts_are_those_of_plain_loops(name: str, window: int | None) -> None:
    """The best member of a family is that of a search over all; then the same over scored queries alone."""
    assert list(KEYS_OF) == list(SCORES)
    ids, visible = random_rows(), causal_window(7, 7, window)
    every, scored = (
        torch.ones(4, 7, dtype=torch.bool),
        torch.rand(4, 7, generator=torch.Generator().manual_seed(2)) < 0.5,
    )
    weights = draw(4, 3, 7, 7).mul(2).masked_fill(~visible, -math.inf).softmax(-1)
    found = lifts(weights, rows_of(ids, window, scored))
    among = scored_lifts(weights, rows_of(ids, window, scored), found)
    for head in range(3):
        each = {n: loop_lift(weights, ids, head, name, window, n, every) for n in members(name, ids, window, scored)}
        fits = {n: lift[0] for n, lift in each.items() if lift is not None and lift[1] < COMMON}
        if name in ("offset", "modulo", "token"):
            best = max(fits, key=lambda n: fits[n])
            assert tuple(n for n in found[name].numbers(head) if n is not None) == best
        else:
            best, fits = (), {n: lift[0] for n, lift in each.items() if lift is not None}
        assert float(found[name].lift[head]) == pytest.approx(fits[best], abs=1e-6)
        wanted = loop_lift(weights, ids, head, name, window, best, scored)
        assert wanted is not None and among[name][head] == pytest.approx(wanted[0], abs=1e-6)


def test_a_token_must_be_seen_by_a_quarter_of_the_queries_with_a_choice() -> None:
    """Nine tokens, of which the first query has no choice: 6 is seen by two of the eight others, 7 by one."""
    visible = causal_window(9, 9)
    ids = torch.tensor([[5, 1, 1, 1, 1, 1, 1, 6, 7]])
    found = tokens_of(ids, visible, besides=5)
    assert found.ids.tolist() == [1, 6] and found.seen_by.tolist() == [8, 2]
    assert float(found.uniform[1]) == pytest.approx((1 / 8 + 1 / 9) / 2)
    assert 5 in tokens_of(ids, visible, besides=None).ids.tolist()


def test_no_scored_query_gives_no_scored_lift() -> None:
    ids = torch.tensor([[0, 1, 0, 3]])
    probe = rows_of(ids, scored=torch.tensor([[True, True, False, False]]))
    weights = uniform_weights(probe.visible, torch.float32).expand(1, 1, 4, 4)
    found = scored_lifts(weights, probe, lifts(weights, probe))
    assert found["duplicate"] == [None]  # only query 2 repeats a symbol
    assert found["previous"] == [pytest.approx(0.0, abs=1e-6)]


def test_targets_and_rows_that_count_by_hand() -> None:
    """Four tokens a b a a: written out, independent of the code above."""
    ids, visible = torch.tensor([[5, 7, 5, 5]]), causal_window(4, 4)

    def sets(target: Tensor) -> list[list[int]]:
        return [row.nonzero().flatten().tolist() for row in target[0]]

    assert sets(duplicates(ids) & visible) == [[], [], [0], [0, 2]]
    assert sets(duplicates(ids)) == [[2, 3], [], [0, 3], [0, 2]]  # without a mask
    assert sets(followers(ids)) == [[], [], [1], [1, 3]]
    assert sets(at_distance(0)(ids)) == [[0], [1], [2], [3]]
    assert sets(first_token(ids)) == [[], [0], [0], [0]]
    assert sets(followers(torch.full((1, 4), 2))) == [[], [1], [1, 2], [1, 2, 3]]
    assert sets(same_token(ids) & visible) == [[0], [1], [0, 2], [0, 2, 3]]
    assert sets(token(5)(ids) & visible) == [[0], [0], [0, 2], [0, 2, 3]]
    assert sets(token(7)(ids)) == [[1]] * 4 and sets(token(7)(ids) & visible) == [[], [1], [1], [1]]
    assert sets(at_distances(1, 2)(ids)) == [[], [0], [1], [0, 2]]
    assert sets(at_distances(0, 3)(ids)) == [[0], [1], [2], [0, 3]] and sets(at_distance(9)(ids)) == [[]] * 4

    def chance(target: Tensor, window: int | None = None) -> float | None:
        found = target_keys(target, visible if window is None else causal_window(4, 4, window))
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
    found = lifts(weights, rows_of(ids))
    u = (1 / 3 + 1 / 2) / 2
    assert float(found["duplicate"].mass) == pytest.approx(0.625)
    assert float(found["duplicate"].lift) == pytest.approx((0.625 - u) / (1 - u))
    assert float(found["induction"].mass) == pytest.approx(0.25)
    # Queries 1, 2 and 3 see different tokens; 5 holds all but one of the keys, so only 7 is left.
    seven = found["token"]
    assert seven.token is not None and seven.token.tolist() == [7]
    u = (1 / 2 + 1 / 3 + 1 / 4) / 3
    assert float(seven.mass) == pytest.approx(0.5 / 3) and float(seven.uniform) == pytest.approx(u)
