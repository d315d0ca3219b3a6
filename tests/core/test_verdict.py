"""What is said of a whole model, from figures written by hand: every sign of the joint effect and of single ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from mhsa_cli.core.heads.causal import Effect
from mhsa_cli.core.heads.causes import JOINT, effect_status
from mhsa_cli.core.heads.verdict import (
    LEARNED,
    NEGATIVE,
    OVERFIT,
    Rows,
    judge_model,
    label_claims,
    share_work,
    work_claims,
)
from mhsa_cli.records.claim_words import words
from mhsa_cli.records.claims import Claim, Predicate, Status
from mhsa_cli.records.heads import HeadScore, Interaction, Verdict
from mhsa_cli.records.labels import Role
from mhsa_cli.text import Head
from tests.core.measured import head

ROWS = Rows("copy", "7 rows", loss=0.5, chance=3.0, n=7)
JOINTS = {
    "helps": Effect(2.0, 0.1),
    "harmful": Effect(-2.0, 0.1),
    "none": Effect(0.02, 0.001),
    "unsure": Effect(2.0, 1.5),
}
NOTHING, HELPS, HARMS = (0.0, 0.01), (0.7, 0.01), (-0.7, 0.01)


def heads_of(*effects: tuple[float, float] | None, role: Role = Role.NO_EFFECT) -> list[HeadScore]:
    return [head(0, number, uniform=effect, role=role) for number, effect in enumerate(effects)]


def verdict_of(
    joint: Effect, heads: Sequence[HeadScore], rows: Rows = ROWS, frozen: bool = False
) -> tuple[Verdict, dict[Predicate, Claim]]:
    verdict = judge_model(rows, joint, heads, frozen)
    claims = {claim.predicate: claim for claim in verdict.claims}
    assert len(claims) == len(verdict.claims) and all("{" not in words(claim) for claim in verdict.claims)
    assert {claim.subject for claim in verdict.claims} == {"model"}
    return verdict, claims


# The joint effect, single effects, heads that cancel: what is said, and whether the pattern matters.
CASES: dict[str, tuple[str, list[tuple[float, float] | None], Role, set[Predicate], bool]] = {
    "helps": ("helps", [HELPS, NOTHING], Role.SHOWN, {"pattern matters"}, True),
    "helps, no single one does": ("helps", [NOTHING, NOTHING], Role.NO_EFFECT, {"pattern matters"}, True),
    "helps, a head harms": ("helps", [HELPS, HARMS], Role.SHOWN, {"pattern matters"}, True),
    "helps, heads not measured": ("helps", [None, None], Role.PATTERN, {"pattern matters"}, True),
    "harmful": ("harmful", [HARMS, NOTHING], Role.HARMFUL, {"attention harmful"}, True),
    "cancel": ("none", [HELPS, HELPS], Role.CANCELS, {"no effect shown", "heads cancel"}, True),
    "single ones help": ("none", [HELPS, NOTHING], Role.SHOWN, {"no effect shown", "single effects"}, True),
    "single ones harm": ("none", [NOTHING, HARMS], Role.HARMFUL, {"no effect shown", "single effects"}, True),
    "within its error, single ones help": (
        "unsure", [HELPS, NOTHING], Role.SHOWN, {"no effect shown", "single effects"}, True,
    ),
    "none": ("none", [NOTHING, NOTHING], Role.NO_EFFECT, {"no effect shown", "heads not labelled"}, False),
    "within its error": (
        "unsure", [NOTHING, NOTHING], Role.NO_EFFECT, {"no effect shown", "heads not labelled"}, False,
    ),
    "none, heads not measured": ("none", [None, None], Role.PATTERN, {"no effect shown", "heads not labelled"}, False),
}  # fmt: skip


@pytest.mark.parametrize(("joint", "effects", "role", "said", "matters"), CASES.values(), ids=CASES)
def test_the_sign_of_all_heads_together_and_of_single_ones(
    joint: str, effects: list[tuple[float, float] | None], role: Role, said: set[Predicate], matters: bool
) -> None:
    verdict, claims = verdict_of(JOINTS[joint], heads_of(*effects, role=role))
    assert claims.keys() == said and verdict.pattern_matters is matters
    first = verdict.claims[0]
    statuses = {"helps": Status.SHOWN, "harmful": Status.OPPOSITE, "none": Status.NOT_SHOWN, "unsure": Status.NOT_SHOWN}
    assert (first.estimate, first.se, first.reference, first.status) == (*JOINTS[joint], JOINT, statuses[joint])
    assert first.evidence == {"loss": 0.5, "without": 0.5 + JOINTS[joint].delta, "task": "copy"}
    assert (verdict.joint_delta_nats, verdict.joint_delta_se, verdict.loss_nats) == (*JOINTS[joint], 0.5)
    single = next((claims[name] for name in ("heads cancel", "single effects") if name in claims), None)
    if single is not None:  # with every head that has an effect, and no other
        wanted = {f"L0.H{n}": effect[0] for n, effect in enumerate(effects) if effect not in (None, NOTHING)}
        assert single.evidence == {"singles": wanted}


def test_the_opposite_model_has_the_opposite_verdict() -> None:
    """A law: with every sign turned, what helps is harmful, and the pattern matters as much."""
    turned = {"pattern matters": "attention harmful", "attention harmful": "pattern matters"}
    for joint, one, two in product(JOINTS.values(), (NOTHING, HELPS, (0.02, 0.02)), (NOTHING, HELPS)):
        there = verdict_of(joint, heads_of(one, two))[0]
        back = verdict_of(Effect(-joint.delta, joint.se), heads_of((-one[0], one[1]), (-two[0], two[1])))[0]
        assert there.pattern_matters is back.pattern_matters
        assert [turned.get(c.predicate, c.predicate) for c in there.claims] == [c.predicate for c in back.claims]


@pytest.mark.parametrize("delta", [0.004, 0.02, 0.033, 0.2])
@pytest.mark.parametrize("se", [0.001, 0.014, 0.2])
@pytest.mark.parametrize("sign", [1, -1])
def test_of_one_head_the_joint_effect_is_the_single_one(delta: float, se: float, sign: int) -> None:
    heads = heads_of((sign * delta, se))
    verdict, claims = verdict_of(Effect(sign * delta, se), heads)
    assert verdict.claims[0].status is effect_status(heads[0], "uniform", 1) and "single effects" not in claims


def test_single_effects_are_judged_over_all_heads() -> None:
    weak = (0.025, 0.01)  # 2.5 standard errors
    assert verdict_of(JOINTS["none"], heads_of(weak))[0].pattern_matters is True
    assert verdict_of(JOINTS["none"], heads_of(weak, *[NOTHING] * 9))[0].pattern_matters is False


def test_frozen_uniform_attention_is_said_to_be_that_and_no_more() -> None:
    verdict, claims = verdict_of(Effect(0.0, 0.0), heads_of(NOTHING), frozen=True)
    assert claims.keys() == {"frozen uniform", "heads not labelled"} and verdict.pattern_matters is False


@pytest.mark.parametrize(
    ("joint", "task", "tried"), [("none", "repeat", "copy"), ("none", "copy", None), ("helps", "repeat", None)]
)
def test_another_task_is_offered_where_the_pattern_does_nothing(joint: str, task: str, tried: str | None) -> None:
    assert verdict_of(JOINTS[joint], heads_of(NOTHING, NOTHING), ROWS._replace(task=task))[0].try_task == tried


# The rows


ABOUT = {"below chance", "not learned", "over-fitted", "rows trained on"}


def about(**fields: object) -> dict[Predicate, Claim]:
    claims = verdict_of(JOINTS["helps"], heads_of(HELPS), ROWS._replace(**fields))[1]
    return {name: claim for name, claim in claims.items() if name in ABOUT}


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (3.0 / LEARNED + 0.01, "below chance"),
        (3.0 / LEARNED, "not learned"),  # an untrained model is a little worse than chance
        (LEARNED * 3.0 + 0.01, "not learned"),
        (LEARNED * 3.0, None),
    ],
)
def test_a_loss_is_compared_with_chance_level(loss: float, said: Predicate | None) -> None:
    claims = about(loss=loss)
    assert claims.keys() == ({said} if said else set())
    assert all((claim.estimate, claim.reference) == (loss, 3.0) for claim in claims.values())


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (None, False),
        (Effect(OVERFIT * 0.5, 0.001), True),
        (Effect(0.99 * OVERFIT * 0.5, 0.001), False),
        (Effect(0.4, 0.3), False),  # within its error
        (Effect(-0.4, 0.001), False),  # worse on training rows: no over-fitting
    ],
)
def test_a_model_is_over_fitted_where_training_rows_cost_clearly_less(gap: Effect | None, said: bool) -> None:
    claims = about(train_gap=gap)
    assert claims.keys() == ({"over-fitted"} if said else set())
    if said and gap is not None:
        claim = claims["over-fitted"]
        assert (claim.estimate, claim.se) == gap
        assert claim.evidence == {"loss": 0.5, "train": pytest.approx(0.5 - gap.delta)}


@pytest.mark.parametrize(("seen", "said"), [(None, False), (0, False), (1, True), (7, True)])
def test_rows_that_were_trained_on_are_counted(seen: int | None, said: bool) -> None:
    claims = about(seen=seen)
    assert claims.keys() == ({"rows trained on"} if said else set())
    assert not said or claims["rows trained on"].evidence == {"seen": seen, "rows": 7}


# How heads share the work


def worked(
    joint: Effect,
    singles: Sequence[float | None],
    shapley: Sequence[float | None],
    kept: Effect | None = None,
    excess: Effect | None = None,
):  # type: ignore[no-untyped-def]
    """What is concluded of heads with these single effects and Shapley values: the verdict, and why no number."""
    heads = [
        replace(head(0, n, uniform=None if single is None else (single, 0.01)), shapley_nats=value)
        for n, (single, value) in enumerate(zip(singles, shapley, strict=True))
    ]
    verdict = judge_model(ROWS, joint, heads, False)
    pair = Interaction(Head(0, 0), Head(0, 1), -0.5, 0.01)
    withheld, fields = share_work(verdict, heads, [pair], kept)
    assert fields["interactions"] == [pair]
    found = replace(verdict, **fields, withheld=withheld)
    return found, {
        claim.predicate: claim
        for claim in [*label_claims(found), *work_claims(found, heads, excess or Effect(0.5, 0.1))]
    }


def test_how_two_heads_share_the_work() -> None:
    verdict, claims = worked(Effect(2.0, 0.1), [0.5, 0.5], [1.0, 1.0], Effect(0.9, 0.02))
    assert verdict.withheld is None and verdict.effective_heads == pytest.approx(2.0)
    assert verdict.redundancy == pytest.approx(0.5)
    assert (verdict.labels_kept, verdict.labels_kept_se) == (0.9, 0.02)
    assert claims.keys() == {"labels account", "singles and joint"}
    assert (claims["labels account"].estimate, claims["labels account"].status) == (0.9, Status.SHOWN)
    assert claims["singles and joint"].evidence == {"singles": 1.0, "redundancy": pytest.approx(0.5)}


@pytest.mark.parametrize(
    ("singles", "redundancy", "said"),
    [([1.0, 1.0], 0.0, "singles and joint"), ([0.0, 0.0], 1.0, "singles and joint"),
     ([1.01, 1.0], None, "heads depend"), ([-0.1, 0.0], None, "heads depend"), ([None, 1.0], None, None)],
)  # fmt: skip
def test_a_redundancy_is_given_where_it_is_a_part(
    singles: list[float | None], redundancy: float | None, said: Predicate | None
) -> None:
    verdict, claims = worked(Effect(2.0, 0.1), singles, [1.0, 1.0])
    assert verdict.redundancy == redundancy
    assert claims.keys() & {"singles and joint", "heads depend"} == ({said} if said else set())


@pytest.mark.parametrize(
    ("excess", "status"),
    [
        (Effect(0.5, 0.1), Status.SHOWN),
        (Effect(-2.5, 0.1), Status.SHOWN),  # one of the heads made uniform lowers the loss
        (Effect(0.5, 0.4), Status.NOT_SHOWN),  # within its error
        (Effect(0.09, 0.001), Status.NOT_SHOWN),  # too little of the joint effect
    ],
)
def test_heads_depend_on_each_other_where_an_excess_of_single_effects_is_shown(excess: Effect, status: Status) -> None:
    claim = worked(Effect(2.0, 0.1), [1.5, 1.0], [1.0, 1.0], excess=excess)[1]["heads depend"]
    assert (claim.status, claim.estimate) == (status, 2.0)
    assert claim.evidence == {"singles": 2.5, "redundancy": None, "excess": excess.delta, "excess_se": excess.se}


def test_one_head_shares_no_work() -> None:
    verdict = judge_model(ROWS, Effect(2.0, 0.1), heads_of(HELPS), False)
    assert work_claims(verdict, heads_of(HELPS), Effect(0.5, 0.1)) == []


@pytest.mark.parametrize(
    ("joint", "shapley", "why"),
    [
        (Effect(2.0, 0.1), [1.0, None], "not all measured"),
        (Effect(2.0, 0.1), [2.1, -1.01 * NEGATIVE * 2.0], "negative shares"),
        (Effect(2.0, 0.1), [2.1, -0.99 * NEGATIVE * 2.0], None),
        (Effect(0.04, 0.001), [0.02, 0.02], "joint effect too small"),
        (Effect(2.0, 1.5), [1.0, 1.0], "joint effect too small"),
        (Effect(-2.0, 0.1), [-1.0, -1.0], "joint effect too small"),
    ],
)
def test_why_no_effective_number_of_heads_is_given(
    joint: Effect, shapley: list[float | None], why: Predicate | None
) -> None:
    verdict, claims = worked(joint, [0.5, 0.5], shapley, Effect(0.9, 0.02))
    assert (None if verdict.withheld is None else verdict.withheld.predicate) == why
    assert (verdict.effective_heads is None) == (why is not None)
    if why == "joint effect too small":  # nothing to divide
        assert verdict.redundancy is None and verdict.labels_kept is None and claims == {}


@pytest.mark.parametrize(
    ("kept", "said", "status"),
    [
        (None, "labels account for nothing", Status.NOT_SHOWN),
        (Effect(0.9, 0.02), "labels account", Status.SHOWN),
        (Effect(0.03, 0.02), "labels account", Status.NOT_SHOWN),
        (Effect(-0.5, 0.02), "labels account", Status.OPPOSITE),
    ],
)
def test_what_the_labels_account_for(kept: Effect | None, said: Predicate, status: Status) -> None:
    _, claims = worked(Effect(2.0, 0.1), [0.5, 0.5], [1.0, 1.0], kept)
    assert claims.keys() & {"labels account", "labels account for nothing"} == {said}
    assert claims[said].status is status and "{" not in words(claims[said])
