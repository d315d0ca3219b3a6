"""Every branch of a head's label, on records written by hand. No model is needed: labels are plain Python."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from mhsa_cli.core.heads.labels import KEPT, LIFT, MARGIN, PART, WIDER, candidates, extent_of, generalises, labels_of
from mhsa_cli.records.claims import z_value
from mhsa_cli.records.heads import HeadScore, TargetScore
from mhsa_cli.records.labels import (
    ATTENDS_TO,
    NUMBERS,
    ROLE_TARGETS,
    SHAPES,
    TARGETS,
    Extent,
    Label,
    Role,
    in_order,
)
from tests.core.measured import head, on

LENGTH = 16  # tokens of a row
EVERYWHERE, TRAINED_ONLY = {4: 0.9, 7: 0.5, 10: 0.8}, {4: -0.2, 7: 0.9, 10: 0.8}

CASES: dict[str, tuple[HeadScore, str]] = {
    # name: head, label
    "previous token": (head(previous=on(0.9)), "previous:shown"),
    "itself": (head(self=on(0.9)), "self:shown"),
    "first token": (head(first=on(0.9)), "first:shown"),
    "an offset is named by its distance": (head(offset=on(0.9, distance=6)), "offset:6:shown"),
    "an offset modulo a period": (head(modulo=on(0.9, distance=1, period=4)), "modulo:1:4:shown"),
    "its third key just fits into the row": (head(modulo=on(0.9, distance=1, period=7)), "modulo:1:7:shown"),
    "its third key does not": (head(modulo=on(0.9, distance=2, period=7)), "unclear"),
    "a period that scored queries ignore": (
        head(modulo=replace(on(0.9, distance=1, period=4), scored=0.49)),
        "unclear",
    ),
    "the limit itself is enough": (head(previous=on(0.5)), "previous:shown"),
    "just below it is not": (head(previous=on(0.499)), "unclear"),
    "the largest lift names it": (head(previous=on(0.7), first=on(0.8)), "first:shown"),
    "of equals the first in the table": (head(first=on(0.8), previous=on(0.8)), "first:shown"),
    "a target that everyone meets is not named": (head(first=on(0.9, uniform=0.5)), "unclear"),
    "just rarer it is": (head(first=on(0.9, uniform=0.49)), "first:shown"),
    # The nulls
    "not above untrained heads": (head(previous=on(0.9, null=0.9)), "unclear"),
    "just above them": (head(previous=on(0.9, null=0.89)), "previous:shown"),
    "untrained heads not measured": (head(previous=on(0.9, null=None)), "unclear"),
    "random heads do not replace them": (head(previous=on(0.9, null=None, random_null=0.1)), "unclear"),
    "not above random heads of the model": (head(previous=on(0.9, random_null=0.9)), "unclear"),
    "just above both": (head(previous=on(0.9, null=0.1, random_null=0.89)), "previous:shown"),
    "one target above its null, a larger one not": (
        head(previous=on(0.9, random_null=0.95), first=on(0.6)),
        "first:shown",
    ),
    # Content
    "content at every distance": (head(induction=on(0.9), unseen_gaps=EVERYWHERE), "induction:shown"),
    "content at trained distances alone": (head(induction=on(0.9), unseen_gaps=TRAINED_ONLY), "unclear"),
    "content at too few distances": (head(induction=on(0.9), unseen_gaps={4: 0.9, 7: 0.9}), "unclear"),
    "a duplicate needs its own distances": (head(duplicate=on(0.9), duplicate_gaps=EVERYWHERE), "duplicate:shown"),
    "not induction's": (head(duplicate=on(0.9), unseen_gaps=EVERYWHERE), "unclear"),
    "content beats a distance": (
        head(induction=on(0.8), offset=on(0.95, distance=5), unseen_gaps=EVERYWHERE),
        "induction:shown",
    ),
    "content beats a distance modulo the period of training": (
        head(induction=on(0.8), modulo=on(0.95, distance=5, period=6), unseen_gaps=EVERYWHERE),
        "induction:shown",
    ),
    "so do duplicates": (
        head(duplicate=on(0.8), offset=on(0.95, distance=5), duplicate_gaps=EVERYWHERE),
        "duplicate:shown",
    ),
    "a distance that resembles content": (
        head(induction=on(0.95), offset=on(0.8, distance=5), unseen_gaps=TRAINED_ONLY),
        "offset:5:shown",
    ),
    "weak content leaves the distance alone": (
        head(induction=on(0.4), offset=on(0.8, distance=5), unseen_gaps=EVERYWHERE),
        "offset:5:shown",
    ),
    "content does not beat the previous token": (
        head(induction=on(0.8), previous=on(0.95), unseen_gaps=EVERYWHERE),
        "previous:shown",
    ),
    # Targets that contain others
    "the same token, itself included": (head(same=on(0.9), duplicate_gaps=EVERYWHERE), "same:shown"),
    "the same token at trained distances alone": (head(same=on(0.9), duplicate_gaps=TRAINED_ONLY), "unclear"),
    "as good as itself": (head(same=on(0.95), self=on(0.9), duplicate_gaps=EVERYWHERE), "self:shown"),
    "much better than itself": (head(same=on(0.9), self=on(0.6), duplicate_gaps=EVERYWHERE), "same:shown"),
    "as good as duplicates": (
        head(same=on(0.9), duplicate=on(0.85), duplicate_gaps=EVERYWHERE),
        "duplicate:shown",
    ),
    "every 4 back and 1 back alike": (head(modulo=on(0.9, distance=1, period=4), previous=on(0.85)), "previous:shown"),
    "every 4 back and itself alike": (head(modulo=on(0.9, distance=0, period=4), self=on(0.85)), "self:shown"),
    "every 4 back and 3 back alike": (
        head(modulo=on(0.9, distance=3, period=4), offset=on(0.85, distance=3)),
        "offset:3:shown",
    ),
    # A distance that few queries have
    "a far distance": (head(offset=on(0.9, distance=13)), "offset:13:shown"),
    "a far distance goes after all": (head(offset=on(0.9, distance=13), answer=on(0.5)), "answer:shown"),
    "just near enough": (head(offset=on(0.9, distance=12), answer=on(0.95)), "offset:12:shown"),
    # What the keys are, where no mechanism is known
    "the answer": (head(answer=on(0.9)), "answer:shown"),
    "a separator": (head(separator=on(0.9)), "separator:shown"),
    "a constant token by its id": (head(token=on(0.9, token=7)), "token:7:shown"),
    "any mechanism goes before the answer": (head(answer=on(0.99), previous=on(0.5)), "previous:shown"),
    "a mechanism below the limit does not": (head(answer=on(0.99), previous=on(0.499)), "answer:shown"),
    "nor one that random heads have": (head(answer=on(0.6), previous=on(0.9, random_null=0.9)), "answer:shown"),
    "of several the largest": (head(answer=on(0.7), separator=on(0.8)), "separator:shown"),
    # Shapes
    "near uniform": (head(uniformity=0.9, confidence=0.9), "near-uniform"),
    "focused": (head(uniformity=0.89, confidence=0.5), "focused"),
    "unclear": (head(uniformity=0.89, confidence=0.49), "unclear"),
    "no figures": (head(uniformity=None, confidence=None), "unclear"),
    "a target goes before the shape": (head(first=on(0.6), uniformity=0.95), "first:shown"),
}


def label_of(given: HeadScore, role: Role = Role.SHOWN) -> Label:
    return labels_of(given, role, LENGTH)[0]


@pytest.mark.parametrize(("given", "label"), CASES.values(), ids=CASES)
def test_label(given: HeadScore, label: str) -> None:
    found = label_of(given)
    assert found.id == label and Label.from_id(label) == found
    for role in Role:  # what a head does changes nothing of what it attends to
        assert label_of(given, role) == (replace(found, role=role) if found.target else found)
    every = labels_of(given, Role.SHOWN, LENGTH)
    assert [one.target for one in every if one.target] == candidates(given, LENGTH)
    assert len(every) == 1 or all(one.target for one in every)


def test_every_target_can_label_a_head() -> None:
    gaps = {"unseen_gaps": EVERYWHERE, "duplicate_gaps": EVERYWHERE}
    for target in TARGETS:
        numbers = dict.fromkeys(NUMBERS.get(target, ()), 3)
        found = label_of(head(**{"self": on(0.1), target: on(0.9, **numbers)}, **gaps))  # type: ignore[arg-type]
        assert found.kind == target and found.numbers == numbers
    assert set(WIDER) < set(TARGETS) and set(ROLE_TARGETS) < set(TARGETS)


def test_labels_are_tried_by_their_kind_and_then_by_their_lift() -> None:
    """A wide target by its margin, mechanisms, wide targets without it, what the keys are, far distances."""
    scores = {"previous": on(0.6), "self": on(0.7), "answer": on(0.9), "separator": on(0.95), "first": on(0.49)}
    wide = {"modulo": on(0.94, distance=1, period=3), "same": on(0.96)}
    given = head(**scores, **wide, offset=on(0.99, distance=14), duplicate_gaps=EVERYWHERE)
    wanted = ["same", "self", "previous", "modulo", "separator", "answer", "offset"]
    assert candidates(given, LENGTH) == wanted
    assert candidates(given, 20) == ["same", "offset", "self", "previous", "modulo", "separator", "answer"]
    assert [one.id for one in labels_of(given, Role.HARMFUL, LENGTH)][3:] == [
        "modulo:1:3:harmful", "separator:harmful", "answer:harmful", "offset:14:harmful",
    ]  # fmt: skip


@pytest.mark.parametrize(("wide", "narrow"), [(wide, narrow) for wide in WIDER for narrow in WIDER[wide]])
def test_a_target_that_contains_another_goes_first_by_a_margin(wide: str, narrow: str) -> None:
    def label(lift: float) -> str:
        scores: dict[str, TargetScore] = {wide: on(lift, distance=2, period=5), narrow: on(0.6, distance=2)}
        return label_of(head(**{"self": on(0.1), **scores}, duplicate_gaps=EVERYWHERE)).kind  # type: ignore[arg-type]

    assert (label(0.6 + MARGIN), label(0.6 + 0.99 * MARGIN)) == (wide, narrow)


def test_content_needs_three_distances_and_all_of_them() -> None:
    assert generalises({4: LIFT, 7: LIFT, 9: LIFT}) and not generalises({4: LIFT, 7: LIFT})
    assert not generalises({4: 1.0, 7: 0.99 * LIFT, 9: 1.0, 10: 1.0}) and not generalises({})


def test_how_much_a_label_accounts_for() -> None:
    assert extent_of(KEPT, 0.5, 4) is None  # the whole label, whatever its error
    assert extent_of(1.3, 0.0, 4) is None
    assert extent_of(0.99 * KEPT, 0.01, 4) is Extent.PARTLY and extent_of(PART, 0.0, 4) is Extent.PARTLY
    assert extent_of(0.99 * PART, 0.0, 4) is Extent.ELSEWHERE and extent_of(-0.5, 0.01, 4) is Extent.ELSEWHERE
    error = 0.5 / ((z_value(1) + z_value(9)) / 2)  # shown as one figure, not as one of nine
    assert (extent_of(0.5, error, 1), extent_of(0.5, error, 9)) == (Extent.PARTLY, Extent.ELSEWHERE)


def labels() -> list[Label]:
    """Every label there is, with numbers of its own."""
    numbers = {"distance": 12, "period": 5, "token": 0}
    kept = {kind: {name: numbers[name] for name in NUMBERS.get(kind, ())} for kind in TARGETS}
    return [
        *map(Label, SHAPES),
        *(
            Label(kind, role, extent=extent, **kept[kind])
            for kind in TARGETS
            for role in Role
            for extent in (None, *Extent)
        ),
    ]


def test_a_label_is_read_by_its_id() -> None:
    """Files keep the id."""
    every = labels()
    assert set(TARGETS) == set(ATTENDS_TO)
    assert [Label.from_id(label.id) for label in every] == every and len({label.id for label in every}) == len(every)
    for text in ("", "nose", "previous", "near-uniform:shown", "offset:x:shown", "previous token, idle", None, 7, []):
        assert Label.from_id(text) is None
    for text in (
        "offset:shown",
        "modulo:1:shown",
        "previous:shown:",
        "previous:partly",
        "previous:shown:partly:partly",
    ):
        assert Label.from_id(text) is None


def test_labels_that_say_different_things_have_different_words() -> None:
    said: dict[str, set[str]] = {}
    for label in labels():
        said.setdefault(label.text, set()).add(label.id)
    for ids in said.values():  # an extent is said only of a head that helps
        assert len(ids) == 1 or len({text.rsplit(":", 1)[0] for text in ids if text.endswith(tuple(Extent))}) == 1


def test_a_label_names_an_effect_only_where_it_was_shown_to_be_its_own() -> None:
    assert [label.role for label in labels() if label.names_effect] == [Role.SHOWN] * len(TARGETS)
    assert all(label.extent is None for label in labels() if label.names_effect)
    assert {label.plain for label in labels() if label.target} == {label for label in labels() if label.names_effect}


def test_labels_are_listed_by_what_they_say() -> None:
    """Heads that help first, in the order of the targets; then other patterns; then shapes."""
    texts = [
        "unclear",
        "offset:12:shown",
        "previous:no-effect",
        "offset:3:shown",
        "previous:shown",
        "self:shown:partly",
    ]
    found = [label.id for label in in_order(filter(None, map(Label.from_id, texts)))]
    assert found == [
        "previous:shown", "offset:3:shown", "offset:12:shown", "previous:no-effect", "self:shown:partly", "unclear",
    ]  # fmt: skip
    assert in_order(labels()) == in_order(reversed(labels()))


def test_labels_need_no_torch() -> None:
    code = "import sys, mhsa_cli.core.heads.labels; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
