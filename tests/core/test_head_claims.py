"""Which claims are made about a head, from figures written by hand. No model is needed: claims are plain Python."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import product

import pytest

from mhsa_cli.core.heads.causes import ALONE, role_of
from mhsa_cli.core.heads.head_claims import SINK, effect_claims, kept_claim, pattern_claims
from mhsa_cli.core.heads.labels import LIFT, extent_of, labels_of
from mhsa_cli.records.claim_words import words
from mhsa_cli.records.claims import Claim, Predicate, Status
from mhsa_cli.records.heads import HeadScore, TargetScore
from mhsa_cli.records.labels import CONDITIONAL, TARGETS, Extent, Label, Role
from tests.core.measured import head, named, on

LOOKS = 4
NOTHING, HELPS, HARMS = (0.0, 0.01), (0.5, 0.01), (-0.5, 0.01)
EVERYWHERE, TRAINED_ONLY, WEAK = {4: 0.9, 7: 0.5, 10: 0.8}, {4: -0.2, 7: 0.9, 10: 0.8}, {4: 0.53, 7: 0.49, 10: 0.35}
POSITIONAL = {"positional", "partly positional", "depends on tokens"}
CLOSEST = {"closest", "closest is common", "closest not compared"}
CLOSEST |= {"closest below untrained heads", "closest below random heads"}
ELSEWHERE = {"not tested at other distances", "tested at other distances", "weaker at other distances"}


def by_id(claims: list[Claim]) -> dict[Predicate, Claim]:
    """The claims about a head by their ids, each of which is there once."""
    found = {claim.predicate: claim for claim in claims}
    assert len(found) == len(claims) and {claim.subject for claim in claims} <= {"L1.H3", "L0.H0"}
    assert all("{" not in words(claim) for claim in claims)
    return found


def pattern(given: HeadScore) -> dict[Predicate, Claim]:
    return by_id(pattern_claims(given, LOOKS))


def effect(given: HeadScore, joint: float | None = 2.0) -> dict[Predicate, Claim]:
    return by_id(effect_claims(given, joint, LOOKS, None))


# What it attends to


@pytest.mark.parametrize("kind", list(TARGETS))
def test_a_label_s_claims_hold_the_figures_of_its_own_target(kind: str) -> None:
    numbers = {"distance": 4, "period": 7, "token": 2}
    score = replace(on(0.9, 0.25, 0.07, random_null=0.3, scored=0.6), **numbers)
    given = named(
        kind, distance=4, unseen_gaps=EVERYWHERE, duplicate_gaps=EVERYWHERE, **{kind: score, "first": on(0.8)}
    )
    given = replace(given, scores={**given.scores, kind: score}, label=Label(kind, Role.SHOWN, **numbers))
    claims = pattern(given)
    first = "weight on target where it is" if kind in CONDITIONAL else "weight on target"
    weight = claims[first]
    assert next(iter(claims)) == first
    assert (weight.estimate, weight.reference, weight.evidence["lift"]) == (score.mass, 0.25, 0.9)
    assert claims["lift on scored queries"].estimate == 0.6
    untrained, drawn = claims["above untrained heads"], claims["above random heads"]
    assert (untrained.estimate, untrained.reference) == (0.9, 0.07) and (drawn.estimate, drawn.reference) == (0.9, 0.3)
    assert not claims.keys() & CLOSEST and ("content-based" in claims) == (kind in ("induction", "duplicate"))
    silent = kind in ("self", "same", "induction", "duplicate")
    assert len(claims.keys() & POSITIONAL) == (0 if silent else 1)


def test_what_was_not_measured_is_not_stated() -> None:
    claims = pattern(named("previous", previous=on(0.9, null=None), positionality=None))
    assert list(claims) == ["weight on target"]


@pytest.mark.parametrize(
    ("similarity", "said"),
    [
        (0.95, "positional"),
        (0.8, "positional"),
        (0.7951, "positional"),  # it is shown as 0.80
        (0.794, "partly positional"),
        (0.3051, "partly positional"),  # it is shown as 0.31
        (0.304, "depends on tokens"),
        (-0.1, "depends on tokens"),
    ],
)
def test_how_far_a_head_goes_by_position(similarity: float, said: Predicate) -> None:
    claims = pattern(named("previous", positionality=similarity))
    assert claims.keys() & POSITIONAL == {said} and claims[said].estimate == similarity


@pytest.mark.parametrize(
    ("score", "attends"), [(on(0.5), True), (on(0.499), False), (on(0.9, null=0.9), False), (on(0.9, null=None), False)]
)
def test_the_weight_on_the_answer_is_said_beside_a_label(score: TargetScore, attends: bool) -> None:
    """On a task that has such keys, of every head whose label does not say it."""
    for given in (named("previous", answer=score), head(answer=score, label=Label("unclear"))):
        claim = pattern(given)["on the answer"]
        assert (claim.estimate, claim.reference) == (score.mass, score.uniform)
        assert claim.evidence == {"lift": score.lift, "shown": attends}
    assert "on the answer" not in pattern(named("answer", answer=score))
    assert "on the answer" not in pattern(named("previous"))


@pytest.mark.parametrize(("kind", "gaps"), [("induction", "unseen_gaps"), ("duplicate", "duplicate_gaps")])
def test_the_evidence_of_content_gives_its_distances(kind: str, gaps: str) -> None:
    other = {"unseen_gaps": TRAINED_ONLY, "duplicate_gaps": TRAINED_ONLY}
    claim = pattern(named(kind, **{**other, gaps: EVERYWHERE}))["content-based"]
    assert (claim.estimate, claim.reference, claim.evidence["gaps"]) == (0.5, LIFT, EVERYWHERE)


@pytest.mark.parametrize(
    ("gaps", "said", "status"),
    [
        (TRAINED_ONLY, "tested at other distances", Status.SHOWN),
        (WEAK, "weaker at other distances", Status.SHOWN),
        ({4: 0.9, 7: 0.9}, "not tested at other distances", Status.NOT_MEASURED),
        ({}, "not tested at other distances", Status.NOT_MEASURED),
    ],
)
def test_what_a_head_with_an_induction_lift_does_at_other_distances(
    gaps: dict[int, float], said: Predicate, status: Status
) -> None:
    """It is said of a head with no such label, and of one at a fixed distance."""
    for given in (
        head(induction=on(0.9), unseen_gaps=gaps, label=Label("unclear")),
        named("offset", distance=5, unseen_gaps=gaps),
        named("previous", induction=on(0.9), unseen_gaps=gaps),
    ):
        claims = pattern(given)
        assert claims.keys() & ELSEWHERE == {said} and claims[said].status is status
        assert claims[said].estimate == (min(gaps.values()) if status is Status.SHOWN else None)
    for given in (named("previous", unseen_gaps=gaps), named("previous", induction=on(0.49), unseen_gaps=gaps)):
        assert not pattern(given).keys() & ELSEWHERE


def test_an_induction_head_is_not_said_to_be_tested_elsewhere_too() -> None:
    assert not pattern(named("induction", unseen_gaps=EVERYWHERE)).keys() & ELSEWHERE


# A sink


def test_a_sink_is_a_head_on_the_first_token_whose_output_does_nothing() -> None:
    sink = {"first": on(0.5, uniform=0.1), "zero": NOTHING, "mean": NOTHING}
    claim = pattern(named("first", **sink))["sink"]
    assert claim.estimate == pytest.approx(0.55) and claim.reference == SINK
    for change in (
        {"zero": HELPS},
        {"zero": HARMS},
        {"mean": HELPS},
        {"mean": HARMS},
        {"zero": None},
        {"mean": None},
        {"first": on(0.2, uniform=0.1)},
    ):
        assert "sink" not in pattern(named("first", **sink | change)), change
    assert "sink" not in pattern(named("previous", **sink))


# No label


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (on(0.499), "closest"),
        (on(0.9, uniform=0.5), "closest is common"),
        (on(0.9, uniform=0.5, null=None), "closest is common"),
        (on(0.9, null=None), "closest not compared"),
        (on(0.9, null=0.9), "closest below untrained heads"),
        (on(0.9, null=0.95, random_null=0.97), "closest below untrained heads"),
        (on(0.9, random_null=0.9), "closest below random heads"),
    ],
)
def test_why_the_closest_pattern_is_no_label(score: TargetScore, said: Predicate) -> None:
    given = head(first=score, label=Label("unclear"))
    claims = pattern(given)
    assert claims.keys() & CLOSEST == {said} and labels_of(given, Role.SHOWN, 16) == [Label("unclear")]
    assert claims[said].estimate == score.lift and claims[said].evidence["target"] == "first:shown"
    assert claims[said].evidence["uniform"] == score.uniform
    limits = [limit for limit in (score.null, score.random_null) if limit is not None]
    assert claims[said].reference == (max(limits) if limits else None)


def test_a_pattern_without_a_label_has_its_shape_and_its_closest_target() -> None:
    claims = pattern(head(offset=on(0.3, distance=4), label=Label("unclear")))
    assert list(claims) == ["closest", "uniformity", "largest weight"]
    assert claims["closest"].evidence["target"] == "offset:4:shown"
    assert (claims["uniformity"].estimate, claims["largest weight"].estimate) == (0.6, 0.4)
    assert pattern_claims(HeadScore(0, 0, {}), LOOKS) == []


# What it does


def test_an_effect_has_its_error_its_limit_and_its_status() -> None:
    for size, status in ((0.5, Status.SHOWN), (-0.5, Status.OPPOSITE), (0.02, Status.NOT_SHOWN)):
        claim = effect(head(uniform=(size, 0.02)))["effect"]
        assert (claim.estimate, claim.se, claim.reference, claim.status) == (size, 0.02, ALONE, status)


def test_why_an_effect_was_not_measured() -> None:
    given = head(uniform=None, shapley=(0.5, 0.0), share=0.2, zero=HELPS, role=Role.PATTERN)
    for unknown in (None, Claim("model", "custom attention")):
        (claim,) = effect_claims(given, 2.0, LOOKS, unknown)
        assert (claim.predicate, claim.status) == ("effect not measured", Status.NOT_MEASURED)
        assert claim.evidence["why"].predicate == ("large model" if unknown is None else "custom attention")


SHARES = {
    "shown": (0.3, 2.0, "share", Status.SHOWN),
    "small": (0.05, 2.0, "share", Status.NOT_SHOWN),
    "small and below 0": (-0.05, 2.0, "share", Status.NOT_SHOWN),
    "negative": (-0.3, 2.0, "negative share", Status.OPPOSITE),
    "of no joint effect": (0.3, None, None, None),
    "of a small joint effect": (0.04, 0.04, None, None),
}


@pytest.mark.parametrize(("nats", "joint", "said", "status"), SHARES.values(), ids=SHARES)
def test_a_share_is_negative_only_where_that_is_shown(
    nats: float, joint: float | None, said: Predicate | None, status: Status | None
) -> None:
    part = nats / (joint or 1.0)
    claims = effect(head(shapley=(nats, 0.01), share=part, share_se=0.005), joint)
    assert claims.keys() & {"share", "negative share"} == ({said} if said else set())
    if said:
        claim = claims[said]
        assert (claim.estimate, claim.se, claim.status) == (part, 0.005, status)
        assert claim.evidence == {"share": nats, "joint": joint}


def test_harm_and_suppression_are_said_of_heads_with_these_roles_alone() -> None:
    for role in Role:
        claims = effect(head(uniform=HARMS, zero=HARMS, role=role))
        said = {Role.HARMFUL: {"harmful"}, Role.SUPPRESSES: {"suppresses"}}.get(role, set())
        assert claims.keys() & {"harmful", "suppresses"} == said
        for name in said:
            assert claims[name].status is Status.OPPOSITE and claims[name].estimate == -0.5


@pytest.mark.parametrize(("zero", "status"), [(HELPS, Status.SHOWN), (HARMS, Status.OPPOSITE)])
def test_that_only_the_output_matters_is_said_of_heads_with_that_role_alone(
    zero: tuple[float, float], status: Status
) -> None:
    """Not of a head that has a share, or backup heads, though its pattern has no effect alone."""
    for role in Role:
        claims = effect(head(uniform=NOTHING, zero=zero, role=role))
        assert ("only output" in claims) == (role is Role.OUTPUT)
    claim = effect(head(uniform=NOTHING, zero=zero, role=Role.OUTPUT))["only output"]
    assert (claim.estimate, claim.se, claim.status) == (*zero, status)


def test_what_an_ideal_head_keeps_is_said_of_the_label_whatever_its_extent() -> None:
    assert kept_claim(named("previous"), LOOKS) == []
    assert kept_claim(replace(head(kept=0.5), label=None), LOOKS) == []
    for kept, se, status in ((0.97, 0.01, Status.SHOWN), (0.1, 0.1, Status.NOT_SHOWN), (-0.5, 0.1, Status.OPPOSITE)):
        given = named("offset", distance=4, kept=kept, kept_se=se)
        extent = extent_of(kept, se, LOOKS)
        (claim,) = kept_claim(replace(given, label=Label("offset", Role.SHOWN, 4, extent=extent)), LOOKS)
        assert (claim.predicate, claim.estimate, claim.se, claim.status) == ("kept", kept, se, status)
        assert claim.evidence["target"] == "offset:4:shown" and words(claim)
    assert extent is Extent.ELSEWHERE


# All together


def test_no_two_claims_about_a_head_contradict_each_other() -> None:
    """A law over heads with every combination of effects: what is shown is stated once, with its sign."""
    effects = (None, NOTHING, HELPS, HARMS, (0.02, 0.02), (-0.02, 0.02))
    said: set[str] = set()
    for uniform, zero, nats, against in product(effects, effects, (-0.4, -0.01, 0.01, 0.4), (None, -2.0, 2.0)):
        given = head(uniform=uniform, zero=zero, shapley=(nats, 0.01), share=nats / 2, share_se=0.01, first=on(0.9))
        role = role_of(given, 2.0, LOOKS, False, against)
        given = replace(given, role=role, label=labels_of(given, role, 16)[0])
        claims = by_id([*pattern_claims(given, LOOKS), *effect_claims(given, 2.0, LOOKS, None)])
        names = claims.keys() & {"effect", "effect not measured"}
        assert len(names) == 1 and ("effect" in claims) == (uniform is not None)
        if "effect" in claims:
            status = claims["effect"].status
            assert (status is Status.OPPOSITE) >= bool(claims.keys() & {"harmful", "suppresses"})
            helps = status is Status.SHOWN or ("share" in claims and claims["share"].status is Status.SHOWN)
            assert helps == (role is Role.SHOWN)
            assert not ("only output" in claims and (helps or status is Status.OPPOSITE))
        assert not {"harmful", "suppresses"} <= claims.keys() and not {"share", "negative share"} <= claims.keys()
        assert not {"sink", "only output"} <= claims.keys()
        said |= claims.keys()
    assert said >= {"effect", "effect not measured", "share", "negative share", "harmful", "suppresses", "only output"}
    assert "sink" in said


def test_claims_need_no_torch() -> None:
    code = "import sys, mhsa_cli.core.heads.head_claims; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
