"""What a head does, from its ablations: every branch, by hand. No model is needed: causes are plain Python."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import product

import pytest

from mhsa_cli.core.heads.causes import (
    ALONE,
    CANCELS,
    JOINT,
    SHARE,
    backups,
    cancelling,
    effect_status,
    role_of,
    share_status,
)
from mhsa_cli.records.claims import Status, judge, z_value
from mhsa_cli.records.heads import Interaction
from mhsa_cli.records.labels import Role
from mhsa_cli.text import Head
from tests.core.measured import head, named

A, B, C = Head(0, 0), Head(0, 1), Head(1, 0)
NOTHING, HELPS, HARMS = (0.0, 0.01), (0.5, 0.01), (-0.5, 0.01)

# name: uniform, zero, Shapley value, joint effect, cancelled, direct effect on the answer: role
ROLES = {
    "helps": (HELPS, NOTHING, None, 2.0, False, None, Role.SHOWN),
    "helps by its share alone": (NOTHING, NOTHING, (0.3, 0.01), 2.0, False, None, Role.SHOWN),
    "a share below the least": (NOTHING, NOTHING, (0.099, 0.0), 2.0, False, None, Role.NO_EFFECT),
    "a share of a joint effect that was not shown": (NOTHING, NOTHING, (0.3, 0.01), None, False, None, Role.NO_EFFECT),
    "helps whatever its output does": (HELPS, HARMS, None, 2.0, False, -3.0, Role.SHOWN),
    "helps with others, harms alone": (HARMS, HARMS, (0.3, 0.01), 2.0, False, -3.0, Role.SHOWN),
    "harmful": (HARMS, NOTHING, None, 2.0, False, -3.0, Role.HARMFUL),
    "harmful, writes for the answer": (HARMS, HARMS, None, 2.0, False, 3.0, Role.HARMFUL),
    "harmful, has no direct path": (HARMS, HARMS, None, 2.0, False, None, Role.HARMFUL),
    "suppresses": (HARMS, HARMS, None, 2.0, False, -3.0, Role.SUPPRESSES),
    "suppresses without a joint effect": (HARMS, HARMS, None, None, False, -3.0, Role.SUPPRESSES),
    "output alone": (NOTHING, HELPS, None, 2.0, False, None, Role.OUTPUT),
    "output alone, harmful": (NOTHING, HARMS, None, 2.0, False, -3.0, Role.OUTPUT),
    "no effect": (NOTHING, NOTHING, (0.0, 0.0), 2.0, False, -3.0, Role.NO_EFFECT),
    "output not measured": (NOTHING, None, None, 2.0, False, None, Role.NO_EFFECT),
    "cancelled": (HELPS, HELPS, (0.3, 0.01), 2.0, True, None, Role.CANCELS),
    "not measured": (None, HELPS, (0.3, 0.01), 2.0, True, None, Role.PATTERN),
}


@pytest.mark.parametrize(
    ("uniform", "zero", "shapley", "joint", "cancelled", "against", "role"), ROLES.values(), ids=ROLES
)
def test_role(uniform, zero, shapley, joint, cancelled, against, role) -> None:  # type: ignore[no-untyped-def]
    assert role_of(head(uniform=uniform, zero=zero, shapley=shapley), joint, 4, cancelled, against) is role


def test_a_role_needs_its_effect_beyond_the_error_of_so_many_looks() -> None:
    """By the law of `judge`: with so many heads a figure needs more standard errors."""
    given = head(uniform=(0.025, 0.01), zero=NOTHING)
    assert z_value(1) < 2.5 < z_value(8)
    assert role_of(given, None, 1, False, None) is Role.SHOWN
    assert role_of(given, None, 8, False, None) is Role.NO_EFFECT


def test_the_opposite_of_a_head_that_helps_is_one_that_harms() -> None:
    """For every size and error: helps <=> with the sign turned harmful, and no effect stays none."""
    for size, error in product((0.0, 0.005, 0.01, 0.02, 0.3), (0.0, 0.004, 0.02, 0.2)):
        roles = [role_of(head(uniform=(sign * size, error)), None, 3, False, None) for sign in (1, -1)]
        assert roles in ([Role.SHOWN, Role.HARMFUL], [Role.NO_EFFECT] * 2)


def test_effects_are_judged_with_the_least_effect() -> None:
    statuses = [effect_status(head(uniform=(x, 0.0)), "uniform", 1) for x in (ALONE, -ALONE, 0.99 * ALONE)]
    assert statuses == [Status.SHOWN, Status.OPPOSITE, Status.NOT_SHOWN]
    assert effect_status(head(uniform=None), "uniform", 1) is Status.NOT_MEASURED
    assert effect_status(head(uniform=HELPS, zero=HARMS), "zero", 1) is Status.OPPOSITE


@pytest.mark.parametrize(
    ("shapley", "joint", "status"),
    [
        ((SHARE * 2.0, 0.0), 2.0, Status.SHOWN),  # at the limit
        ((0.99 * SHARE * 2.0, 0.0), 2.0, Status.NOT_SHOWN),
        ((-SHARE * 2.0, 0.0), 2.0, Status.OPPOSITE),
        ((0.2, 0.1), 2.0, Status.NOT_SHOWN),  # within its error
        ((0.04, 0.0), JOINT, Status.SHOWN),
        ((0.04, 0.0), 0.99 * JOINT, Status.NOT_MEASURED),  # a large share of next to nothing
        ((0.04, 0.0), -2.0, Status.NOT_MEASURED),
        ((0.04, 0.0), None, Status.NOT_MEASURED),
        (None, 2.0, Status.NOT_MEASURED),
    ],
)
def test_share(shapley: tuple[float, float] | None, joint: float | None, status: Status) -> None:
    assert share_status(head(shapley=shapley), joint, 3) is status


# Pairs


def test_heads_cancel_where_both_uniform_cost_next_to_nothing() -> None:
    singles = {A: 2.0, B: 5.0, C: 3.0}
    least = CANCELS * 2.0
    assert cancelling(singles, {(A, B): 0.99 * least, (A, C): 4.0, (B, C): 7.0}) == {A: B, B: A}
    assert cancelling(singles, {(A, B): -0.99 * least}) == {A: B, B: A}
    for both in (least, -least, 7.0, -3.0):
        assert cancelling(singles, {(A, B): both}) == {}
    assert cancelling({A: 2.0}, {(A, B): 0.0}) == {}  # B alone costs nothing: it undoes nothing
    assert cancelling({}, {}) == {}


def pair(first: Head, second: Head, nats: float, se: float = 0.001) -> Interaction:
    return Interaction(first, second, nats, se)


def test_backups_are_the_heads_that_do_the_same_work() -> None:
    """By interactions, whatever the labels."""
    one, two, three = named("previous"), named("self", number=1), named("previous", layer=1)
    heads = [one, two, three]
    pairs = [pair(A, B, -0.5), pair(A, C, 0.5), pair(B, C, -0.5)]
    found = {h.address: [b.address for b in backups(h, heads, pairs)] for h in heads}
    assert found == {A: [B], B: [A, C], C: [B]}
    assert backups(one, heads, [pair(A, B, -0.5, 0.4), pair(A, C, 0.5)]) == []  # within its error
    assert backups(one, heads, [pair(A, B, -0.99 * ALONE, 0.0)]) == []


def test_without_interactions_backups_are_the_heads_of_the_same_label() -> None:
    one, two = named("previous", Role.NO_EFFECT), named("previous", number=1)
    other, none = named("self", layer=1), replace(named("self", layer=2), label=None)
    assert backups(one, [one, two, other, none], []) == [two] and backups(two, [one, two, other], []) == [one]
    assert backups(other, [one, two, other, none], []) == [] == backups(none, [one, none], [])
    far = [named("offset", number=n, distance=distance) for n, distance in enumerate((4, 5, 4))]
    assert backups(far[0], far, []) == [far[2]]


def test_causes_need_no_torch() -> None:
    code = "import sys, mhsa_cli.core.heads.causes; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_interactions_are_judged_over_all_pairs() -> None:
    found = pair(A, B, -0.025, 0.01)
    assert judge(-0.025, 0.01, ALONE, 1) is Status.OPPOSITE
    assert backups(named("self"), [named("self", number=1)], [found])
    assert not backups(named("self"), [named("self", number=1)], [found, *[pair(B, C, 0.0)] * 9])
