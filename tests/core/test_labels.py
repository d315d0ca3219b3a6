"""Every branch of a head's label, on records written by hand. No model is needed: labels are plain Python."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from mhsa_cli.core.heads.labels import has_effect, label_head, similar_heads, with_backups
from mhsa_cli.core.heads.targets import SCORES
from mhsa_cli.records.claim_words import words
from mhsa_cli.records.claims import Claim
from mhsa_cli.records.heads import HeadScore, TargetScore, Verdict
from mhsa_cli.records.labels import ATTENDS_TO, SHAPES, TARGETS, Label, Role

MATTERS = Verdict(True, 2.0, 0.1, 0.5, [], "by hand")
IDLE = replace(MATTERS, pattern_matters=False, joint_delta_nats=0.01)
UNKNOWN = replace(MATTERS, pattern_matters=None, joint_delta_nats=None, joint_delta_se=None, loss_nats=None)
EVERYWHERE, TRAINED_ONLY = {4: 0.9, 7: 0.5, 10: 0.8}, {4: -0.2, 7: 0.9, 10: 0.8}


def on(lift: float, uniform: float = 0.2, null: float | None = 0.05, distance: int | None = None) -> TargetScore:
    return TargetScore(uniform + lift * (1 - uniform), uniform, lift, distance, null)


def head(**settings: object) -> HeadScore:
    """A head that is nothing in particular and causes half a nat alone; its scores by name as keywords."""
    given = {name: settings.pop(name) for name in list(settings) if name in SCORES}
    figures: dict[str, object] = {
        "entropy": 0.7,
        "uniformity": 0.6,
        "confidence": 0.4,
        "positionality": 0.95,
        "uniform_delta_nats": 0.5,
        "uniform_delta_se": 0.02,
        "shapley_nats": 0.6,
        "shapley_se": 0.0,
    }
    return HeadScore(1, 3, {"self": on(0.1), **given}, **figures | settings)  # type: ignore[arg-type]


BARE = {"uniform_delta_nats": None, "uniform_delta_se": None, "shapley_nats": None, "shapley_se": None}

CASES: dict[str, tuple[HeadScore, str, str | None]] = {
    # name: head, label, target
    "previous token": (head(previous=on(0.9)), "previous:shown", "previous"),
    "itself": (head(self=on(0.9)), "self:shown", "self"),
    "first token": (head(first=on(0.9)), "first:shown", "first"),
    "an offset is named by its distance": (head(offset=on(0.9, distance=6)), "offset:6:shown", "offset"),
    "the limit itself is enough": (head(previous=on(0.5)), "previous:shown", "previous"),
    "just below it is not": (head(previous=on(0.499)), "unclear", None),
    "the largest lift names it": (head(previous=on(0.7), first=on(0.8)), "first:shown", "first"),
    "of equals the first in the table": (head(first=on(0.8), previous=on(0.8)), "first:shown", "first"),
    "a target that everyone meets is not named": (head(first=on(0.9, uniform=0.5)), "unclear", None),
    "just rarer it is": (head(first=on(0.9, uniform=0.49)), "first:shown", "first"),
    "not above random heads": (head(previous=on(0.9, null=0.9)), "unclear", None),
    "just above them": (head(previous=on(0.9, null=0.89)), "previous:shown", "previous"),
    "random heads not measured": (head(previous=on(0.9, null=None)), "unclear", None),
    "content at every distance": (head(induction=on(0.9), unseen_gaps=EVERYWHERE), "induction:shown", "induction"),
    "content at trained distances alone": (head(induction=on(0.9), unseen_gaps=TRAINED_ONLY), "unclear", None),
    "content at too few distances": (head(induction=on(0.9), unseen_gaps={4: 0.9, 7: 0.9}), "unclear", None),
    "a duplicate needs its own distances": (
        head(duplicate=on(0.9), duplicate_gaps=EVERYWHERE),
        "duplicate:shown",
        "duplicate",
    ),
    "not induction's": (head(duplicate=on(0.9), unseen_gaps=EVERYWHERE), "unclear", None),
    "content beats a distance": (
        head(induction=on(0.8), offset=on(0.95, distance=5), unseen_gaps=EVERYWHERE),
        "induction:shown",
        "induction",
    ),
    "a distance that resembles content": (
        head(induction=on(0.95), offset=on(0.8, distance=5), unseen_gaps=TRAINED_ONLY),
        "offset:5:shown",
        "offset",
    ),
    "weak content leaves the distance alone": (
        head(induction=on(0.4), offset=on(0.8, distance=5), unseen_gaps=EVERYWHERE),
        "offset:5:shown",
        "offset",
    ),
    "content does not beat the previous token": (
        head(induction=on(0.8), previous=on(0.95), unseen_gaps=EVERYWHERE),
        "previous:shown",
        "previous",
    ),
    "idle": (
        head(previous=on(0.9), uniform_delta_nats=0.001, shapley_nats=0.09),
        "previous:no-effect",
        "previous",
    ),
    "not known to cause anything": (head(previous=on(0.9), **BARE), "previous:pattern", "previous"),
    "spread": (head(uniformity=0.9, confidence=0.9), "near-uniform", None),
    "sharp": (head(uniformity=0.89, confidence=0.5), "focused", None),
    "undecided": (head(uniformity=0.89, confidence=0.49), "unclear", None),
    "no figures": (head(uniformity=None, confidence=None), "unclear", None),
    "a named head may be spread too": (head(first=on(0.6), uniformity=0.95), "first:shown", "first"),
}


@pytest.mark.parametrize(("given", "label", "target"), CASES.values(), ids=CASES)
def test_label(given: HeadScore, label: str, target: str | None) -> None:
    found = label_head(given, MATTERS)
    assert found.label is not None and (found.label.id, found.target) == (label, target)
    assert found.evidence and replace(found, label=None, evidence=()) == given  # nothing else changes
    for verdict in (IDLE, UNKNOWN):
        withheld = label_head(given, verdict)
        assert withheld.label is None and withheld.target is None
        assert withheld.evidence[0].predicate in ("not labelled", "nothing measured")


@pytest.mark.parametrize(("error", "wanted"), [(None, True), (0.0, True), (0.05, True), (0.051, False)])
def test_a_drawn_share_matters_beyond_its_error(error: float | None, wanted: bool) -> None:
    assert has_effect(head(uniform_delta_nats=0.0, shapley_nats=0.1, shapley_se=error), 2.0) is wanted


@pytest.mark.parametrize(
    ("delta", "se", "share", "joint", "wanted"),
    [
        (0.01, 0.0, None, None, True),  # alone, at the limit
        (0.0099, 0.0, None, None, False),
        (0.03, 0.02, None, None, False),  # within two standard errors
        (0.04, 0.02, None, None, True),
        (0.0, 0.0, 0.1, 2.0, True),  # a share of 5 %
        (0.0, 0.0, 0.099, 2.0, False),
        (0.0, 0.0, 0.04, 0.049, False),  # a large share of next to nothing
        (0.0, 0.0, 0.04, 0.05, True),
        (-3.0, 0.1, 1.0, 2.0, True),  # its absence helps alone, but not among the others
        (0.0, 0.0, -7.0, 2.0, False),  # it does harm
        (None, None, None, 2.0, None),
        (None, None, 1.0, 2.0, True),
        (0.5, None, None, None, True),
    ],
)
def test_what_matters(
    delta: float | None, se: float | None, share: float | None, joint: float | None, wanted: bool | None
) -> None:
    causes = {"uniform_delta_nats": delta, "uniform_delta_se": se, "shapley_nats": share}
    assert has_effect(head(**causes), joint) is wanted


def evidence(given: HeadScore, verdict: Verdict = MATTERS) -> dict[str, Claim]:
    """The claims about a head, by their ids."""
    return {claim.predicate: claim for claim in label_head(given, verdict).evidence}


def test_the_evidence_of_a_named_head_holds_its_figures() -> None:
    claims = evidence(head(previous=on(0.9, uniform=0.25, null=0.07)))
    assert list(claims) == ["weight on target", "above untrained heads", "positional", "effect and share"]
    assert "; ".join(map(words, claims.values())) == (
        "92% of its weight lies there (uniform: 25%, lift 0.90); untrained heads: lift below 0.07 (99th percentile); "
        "positional: on random rows its maps are alike (similarity 0.95); "
        "making this head uniform changes the loss by +0.500 nats, and it accounts for 30% of what attention is worth "
        "here (Shapley: 0.600 of 2.000 nats)"
    )
    assert not [name for name in evidence(head(previous=on(0.9), positionality=None)) if "positional" in name]


@pytest.mark.parametrize(
    ("likeness", "said"),
    [
        (0.9, "positional"),
        (0.8951, "positional"),  # it is shown as 0.90
        (0.894, "mostly positional"),
        (0.7, "mostly positional"),
        (0.694, "not only positional"),
    ],
)
def test_how_far_a_head_goes_by_position(likeness: float, said: str) -> None:
    assert [name for name in evidence(head(previous=on(0.9), positionality=likeness)) if "positional" in name] == [said]


def test_the_evidence_of_content_gives_the_distances() -> None:
    claims = evidence(head(duplicate=on(0.9), duplicate_gaps=EVERYWHERE, unseen_gaps=TRAINED_ONLY))
    assert claims["content-based"].evidence["gaps"] == EVERYWHERE
    assert not [name for name in claims if "positional" in name]


@pytest.mark.parametrize("offset", [0.8, 0.1])
def test_the_evidence_says_what_resembles_induction(offset: float) -> None:
    likeness = head(induction=on(0.9), offset=on(offset, distance=5), unseen_gaps=TRAINED_ONLY)
    assert evidence(likeness)["resembles induction"].evidence["gaps"] == TRAINED_ONLY
    assert "not tested at other distances" in evidence(replace(likeness, unseen_gaps={4: 0.9}))
    real = head(induction=on(0.9), offset=on(offset, distance=5), unseen_gaps=EVERYWHERE)
    assert not evidence(real).keys() & {"resembles induction", "not tested at other distances"}


def test_the_evidence_of_an_unnamed_head_names_the_closest_target() -> None:
    claims = evidence(head(offset=on(0.3, distance=4)))
    assert list(claims)[:3] == ["closest", "uniformity", "largest weight"]
    assert claims["closest"].evidence["target"].id == "offset:4:shown" and claims["closest"].estimate == 0.3
    assert evidence(HeadScore(0, 0, {}))["effect not measured"].evidence["why"].predicate == "large model"
    assert list(evidence(HeadScore(0, 0, {}), UNKNOWN)) == ["nothing measured"]
    assert list(evidence(head(), IDLE)) == ["not labelled", "effect"]


@pytest.mark.parametrize(
    ("score", "why"),
    [
        (on(0.9, uniform=0.5), "closest is common"),
        (on(0.9, null=None), "closest not compared"),
        (on(0.9, null=0.95), "closest below untrained heads"),
        (on(0.49, uniform=0.5), "closest"),
    ],
)
def test_why_the_closest_pattern_is_no_label(score: TargetScore, why: str) -> None:
    claim = evidence(head(first=score))[why]
    assert claim.evidence["target"].kind == "first" and "first token" in words(claim)


def test_a_sink_is_called_one_above_a_third_of_the_weight() -> None:
    assert "sink" in evidence(head(first=on(0.5, uniform=0.1)))
    assert "sink" not in evidence(head(previous=on(0.9), first=on(0.4)))


def test_a_label_is_read_by_its_id() -> None:
    """Files keep the id."""
    names = [Label(kind, role, 12 if kind == "offset" else None) for kind in TARGETS for role in Role]
    every = [*map(Label, SHAPES), *names]
    assert {label.kind for label in names} == set(SCORES) == set(ATTENDS_TO)
    assert [Label.from_id(label.id) for label in every] == every
    assert len({label.text for label in every}) == len(every)
    for text in ("", "nose", "previous", "near-uniform:shown", "offset:x:shown", "previous token, idle", None, 7, []):
        assert Label.from_id(text) is None


def test_labels_need_no_torch() -> None:
    code = "import sys, mhsa_cli.core.heads.labels; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_backups_are_similar_heads_of_a_head_without_an_effect() -> None:
    causes = {"uniform_delta_nats": 0.001, "uniform_delta_se": 0.0, "shapley_nats": 0.0}
    one, two = (replace(label_head(head(previous=on(0.9), **causes), MATTERS), head=i) for i in (0, 1))
    other = replace(label_head(head(self=on(0.9), **causes), MATTERS), head=2)
    assert similar_heads(one, [one, two, other]) == [two] and similar_heads(other, [one, two, other]) == []
    busy = replace(two, label=Label("previous", Role.SHOWN))
    assert similar_heads(busy, [one, busy]) == [] and similar_heads(one, [one, busy]) == [busy]
    assert with_backups(one, [two], 0.0099) == one
    corrected = with_backups(one, [two], 0.5)
    assert corrected.label == Label("previous", Role.REDUNDANT)
    assert corrected.evidence[:-1] == one.evidence
    assert (corrected.evidence[-1].predicate, corrected.evidence[-1].estimate) == ("backup heads", 0.5)


def test_a_negative_share_is_a_claim_of_its_own() -> None:
    claim = evidence(head(previous=on(0.9), shapley_nats=-0.4))["effect and negative share"]
    assert claim.evidence["share"] == -0.4 and "-20%" in words(claim)
