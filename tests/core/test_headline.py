"""The headline of a report and the heads that work together, from figures written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mhsa_cli.core.heads.causal import Effect
from mhsa_cli.core.heads.headline import (
    ACCOUNTED,
    SUFFICES,
    Kept,
    Suffice,
    headline,
    named,
    path_claim,
    paths_to_test,
    suffice,
)
from mhsa_cli.core.heads.teamwork import BACKED, MOST, NEEDS, groups_of, teamwork
from mhsa_cli.records.claim_words import words
from mhsa_cli.records.claims import Claim, Status
from mhsa_cli.records.heads import HeadScore, Path, PathEffect, Together
from mhsa_cli.records.labels import Extent, Label, Role
from mhsa_cli.text import Head
from tests.core.measured import named as labelled
from tests.core.measured import on

A, B, C, D = Head(0, 0), Head(0, 1), Head(1, 0), Head(1, 1)
HEADS = [labelled("previous"), labelled("self", number=1), labelled("induction", layer=1)]
HEADS.append(labelled("induction", Role.REDUNDANT, 1, 1))
WORTH = {A: 0.6, B: 0.01, C: 0.7, D: 0.2}


def worth(*backs: tuple[Head, ...]) -> Suffice:
    """What making heads uniform costs: their worth; of heads that back each other up nothing until all are."""

    def rest(heads: Sequence[Head]) -> float:
        groups = [group for group in backs if set(group) & set(heads)]
        alone = sum(WORTH[one] for one in heads if not any(one in group for group in groups))
        return alone + sum(WORTH[group[0]] for group in groups if set(group) <= set(heads))

    return rest


def path(writer: object, reader: object, delta: float = 1.0, null: float = 0.2, se: float = 0.05) -> PathEffect:
    return PathEffect(writer, reader, "k", delta, se, null, 40)  # type: ignore[arg-type]


def told(
    heads: Sequence[HeadScore] = HEADS,
    accounted: float | Kept | None = 0.95,
    accuracy: float = 1.0,
    paths: Sequence[PathEffect] = (),
    rest: Suffice | None = None,
) -> Claim | None:
    """Make the headline of heads, by default of all of HEADS."""
    kept: Kept = accounted if callable(accounted) else lambda alone: accounted
    return headline(heads, kept, accuracy, 0.99, paths, rest or worth())


def groups(claim: Claim | None) -> dict[str, list[str]]:
    assert claim is not None and "{" not in words(claim)
    return claim.evidence["groups"]


def test_a_headline_names_the_groups_that_do_the_work() -> None:
    """By their labels; B costs next to nothing."""
    claim = told()
    assert claim is not None and (claim.predicate, claim.estimate, claim.status) == ("solved by", 0.95, Status.SHOWN)
    assert groups(claim) == {"previous:shown": ["L0.H0"], "induction:shown": ["L1.H0", "L1.H1"]}
    assert claim.evidence["suffice"] == {"induction:shown": "none"} and claim.evidence["circuit"] == ""
    assert claim.evidence["accuracy"] == 1.0 and claim.evidence["answers"] == []


@pytest.mark.parametrize(("accuracy", "said"), [(0.99, "solved by"), (0.989, "works by")])
def test_a_task_is_solved_where_its_goal_is_reached(accuracy: float, said: str) -> None:
    claim = told(accuracy=accuracy)
    assert claim is not None and claim.predicate == said and claim.evidence["accuracy"] == accuracy


@pytest.mark.parametrize("accounted", [None, -0.5, 0.99 * ACCOUNTED])
def test_there_is_no_headline_where_the_labels_do_not_account_for_the_work(accounted: float | None) -> None:
    assert told(accounted=accounted) is None
    assert told(accounted=ACCOUNTED) is not None


def test_a_headline_names_heads_whose_label_says_what_they_do() -> None:
    for role in Role:
        for extent in (None, *Extent):
            given = replace(HEADS[0], role=role, label=Label("previous", role, extent=extent))
            kept = role in (Role.SHOWN, Role.REDUNDANT) and extent is None
            assert named([given]) == ([given] if kept else [])
            claim = told([given])
            assert (claim is not None) == kept
    for nothing in (None, Label("near-uniform"), Label("dead")):
        assert named([replace(HEADS[0], label=nothing)]) == []
    assert told([HEADS[1]]) is None  # no group costs anything


@pytest.mark.parametrize(
    ("backs", "wanted"),
    [((), "none"), (((C, D),), "any")],
)
def test_whether_one_of_several_suffices(backs: tuple[tuple[Head, ...], ...], wanted: str) -> None:
    assert suffice([C, D], worth(*backs)) == wanted
    claim = told(rest=worth(*backs))
    assert claim is not None and claim.evidence["suffice"] == {"induction:shown": wanted}


def test_one_that_can_do_without_the_other_is_some_of_them() -> None:
    """Without D nothing is lost, without C something is."""
    costs = {(): 0.0, (C,): 0.3, (D,): 0.99 * SUFFICES, (C, D): 0.7}
    rest = lambda heads: costs[tuple(heads)]  # noqa: E731
    assert suffice([C, D], rest) == "some"
    costs[(D,)] = SUFFICES
    assert suffice([C, D], rest) == "none"


def test_the_answer_is_said_of_a_group_whose_heads_all_attend_to_it() -> None:
    heads = [replace(one, scores={**one.scores, "answer": on(0.9)}) for one in HEADS[2:]]
    assert told([HEADS[0], *heads]).evidence["answers"] == ["induction:shown"]
    assert told([HEADS[0], heads[0], HEADS[3]]).evidence["answers"] == []
    weak = [replace(one, scores={**one.scores, "answer": on(0.9, null=0.95)}) for one in HEADS[2:]]
    assert told([HEADS[0], *weak]).evidence["answers"] == []


# Circuits


def test_the_paths_of_an_induction_circuit_go_from_previous_token_heads_to_later_induction_heads() -> None:
    """Those of a layer together, one alone by itself."""
    assert paths_to_test(HEADS) == [Path(A, Together((C, D)), "k")]
    assert paths_to_test(HEADS[:3]) == [Path(A, C, "k")]
    two = [
        labelled("previous"),
        labelled("previous", number=1),
        labelled("induction", layer=1),
        labelled("induction", layer=2),
    ]
    assert paths_to_test(two) == [Path(Together((A, B)), C, "k"), Path(Together((A, B)), Head(2, 0), "k")]
    for none in (HEADS[:2], HEADS[2:], [labelled("previous", layer=1), labelled("induction", layer=1, number=1)], []):
        assert paths_to_test(none) == []
    partly = replace(HEADS[0], label=Label("previous", Role.SHOWN, extent=Extent.PARTLY))
    assert paths_to_test([partly, *HEADS[1:]]) == []


@pytest.mark.parametrize(
    ("effect", "named_so"),
    [
        (path(A, C), True),
        (path(A, Together((C, D))), True),
        (path(A, C, null=1.0), False),  # a random writer costs as much
        (path(A, C, null=1.1), False),
        (path(A, C, se=0.8), False),  # within its error
        (path(A, C, delta=-1.0), False),
    ],
)
def test_a_circuit_is_named_only_where_a_path_is_above_its_null(effect: PathEffect, named_so: bool) -> None:
    claim, said = told(paths=[effect]), path_claim(effect)
    assert claim is not None and claim.evidence["circuit"] == ("induction" if named_so else "")
    assert said.status is (Status.SHOWN if named_so else Status.NOT_SHOWN)
    assert (said.estimate, said.se, said.reference) == (effect.delta_nats, effect.delta_se, effect.null)
    assert said.evidence == {"path": str(effect.path), "pairs": 40} and "{" not in words(said)
    members = {"L0.H0", "L1.H0"} | ({"L1.H1"} if effect.reader != C else set())
    found = {name for group in groups(claim).values() for name in group}
    assert found == (members if named_so else {"L0.H0", "L1.H0", "L1.H1"})


def test_heads_outside_the_circuit_are_left_out_of_its_headline() -> None:
    other = labelled("first", layer=2)
    WORTH[Head(2, 0)] = 0.9
    assert "first:shown" in groups(told([*HEADS, other]))
    assert groups(told([*HEADS, other], paths=[path(A, C)])) == {
        "previous:shown": ["L0.H0"],
        "induction:shown": ["L1.H0"],
    }


def test_the_named_heads_alone_account_for_the_work() -> None:
    """Without labels that the headline leaves out; a circuit is otherwise named with the heads outside of it."""
    other = labelled("first", layer=2)
    WORTH[Head(2, 0)] = 0.9

    def kept(alone: Sequence[Head]) -> float:
        return 0.95 if Head(2, 0) in alone else 0.7

    claim = told([*HEADS, other], kept, paths=[path(A, C)])
    assert claim is not None and (claim.estimate, claim.evidence["circuit"]) == (0.95, "")
    assert groups(claim).keys() == {"previous:shown", "induction:shown", "first:shown"}
    WORTH[Head(2, 0)] = 0.01  # its work would not be missed
    assert told([*HEADS, other], kept) is None


# Heads that work together


def worker(number: int, single: float, role: Role = Role.SHOWN, kind: str = "previous") -> HeadScore:
    return labelled(kind, role, 0, number, uniform=(single, 0.01))


def test_the_groups_made_uniform_are_those_of_a_label_and_every_two_working_heads() -> None:
    heads = [worker(n, 0.5) for n in range(3)]
    one, two, three = (one.address for one in heads)
    assert groups_of(heads) == [[one, two, three], [one, two], [one, three], [two, three]]
    idle = [worker(n, 0.0, role) for n, role in enumerate(Role) if role not in (Role.SHOWN, Role.REDUNDANT)]
    assert groups_of(idle) == [] and groups_of([*heads[:2], *idle[3:]]) == [[one, two]]
    backed = [worker(n, 0.0, Role.REDUNDANT, kind) for n, kind in enumerate(("previous", "self"))]
    assert groups_of(backed) == [[one, two]]


def said(
    heads: Sequence[HeadScore], costs: dict[tuple[int, ...], float], gap: float = 5.0, se: float = 0.01
) -> list[Claim]:
    together = {tuple(Head(0, n) for n in group): Effect(cost, se) for group, cost in costs.items()}
    found = teamwork(heads, together, gap, 0.1)
    assert all("{" not in words(claim) and claim.subject == "model" for claim in found)
    return found


@pytest.mark.parametrize(
    ("singles", "both", "gap", "wanted"),
    [
        ((0.0, 0.0), 2.0, 5.0, "back each other up"),
        ((0.5, 0.4), 2.0, 5.0, "back each other up"),
        ((0.5, BACKED * 2.0 - 0.5), 2.0, 5.0, None),  # the singles make up half of it
        ((0.5, 0.4), 2.0, 1.5, None),  # beyond chance level a loss measures no work
        ((1.0, 1.0), 2.0, 5.0, None),  # each does its own
        ((2.0, 1.9), 2.1, 5.0, "need each other"),
        ((2.0, 1.0), 2.0 + 0.99 * NEEDS, 5.0, "need each other"),
        ((2.0, 1.0), 2.0 + 1.01 * NEEDS, 5.0, None),
        ((2.0, 0.05), 2.0, 5.0, None),  # one does too little to need
        ((2.0, 0.0), 2.0, 5.0, None),
    ],
)
def test_what_two_heads_are_to_each_other(
    singles: tuple[float, float], both: float, gap: float, wanted: str | None
) -> None:
    claims = said([worker(n, single) for n, single in enumerate(singles)], {(0, 1): both}, gap)
    assert [claim.predicate for claim in claims] == ([wanted] if wanted else [])
    for claim in claims:
        assert (claim.estimate, claim.se) == (both, 0.01)
        assert claim.evidence == {
            "heads": ["L0.H0", "L0.H1"],
            "singles": dict(zip(["L0.H0", "L0.H1"], singles, strict=True)),
        }


def test_what_is_not_shown_is_not_said() -> None:
    pair = [worker(0, 0.0), worker(1, 0.0)]
    assert said(pair, {(0, 1): 2.0}) and not said(pair, {(0, 1): 2.0}, se=1.5)
    assert not said(pair, {(0, 1): 0.09}) and not said(pair, {(0, 1): -2.0})
    redundant = [worker(0, 2.0), worker(1, 1.9, Role.REDUNDANT)]
    assert not said(redundant, {(0, 1): 2.1})  # a head without an effect alone is needed by none


def test_a_group_is_said_once_and_not_its_pairs() -> None:
    heads = [worker(n, 0.0) for n in range(4)]
    claims = said(heads, {(0, 1, 2): 2.0, (0, 1): 1.5, (0, 2): 1.5, (1, 2): 1.5, (2, 3): 1.9})
    assert [claim.evidence["heads"] for claim in claims] == [["L0.H0", "L0.H1", "L0.H2"], ["L0.H2", "L0.H3"]]


def test_the_strongest_are_said() -> None:
    heads = [worker(n, 0.0) for n in range(5)]
    costs = {(n, m): 1.0 + n + 0.1 * m for n in range(5) for m in range(n + 1, 5)}
    claims = said(heads, costs, gap=9.0)
    assert [claim.estimate for claim in claims] == sorted(costs.values(), reverse=True)[:MOST]
