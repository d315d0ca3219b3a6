"""Onset, width and lead of a head, by hand: sudden, slow, short, broken, never, and too few snapshots."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mhsa_cli.core.heads.history import closest, histories, largest_drop, onset_of, width_of
from mhsa_cli.records.heads import HeadSnapshot, SnapshotRecord

NAN = math.nan
STEPS = [0, 1, 2, 4, 8, 16, 24]


def head(place: tuple[int, int] = (0, 0), distance: int | None = None, **lifts: float) -> HeadSnapshot:
    return HeadSnapshot(*place, lifts, distance, 0.5, 0.5, 0.5, 0.5)


def snapshots(*heads: list[HeadSnapshot]) -> list[SnapshotRecord]:
    """One list for each head, over STEPS."""
    return [SnapshotRecord(step, at, []) for step, at in zip(STEPS, zip(*heads, strict=True), strict=False)]


def falling(drop: int, high: float = 3.0, low: float = 0.5, steps: int = 32) -> list[tuple[int, float]]:
    return [(step, high if step < drop else low) for step in range(steps)]


@pytest.mark.parametrize(
    ("lifts", "onset"),
    [
        ([0.0, 0.1, 0.2, 0.5, 0.6, 0.9, 0.9], 4),  # the first of the three, not the third
        ([0.0, 0.6, 0.6, 0.4, 0.5, 0.5, 0.5], 8),  # two in a row are not enough
        ([0.9, 0.9, 0.9, 0.0, 0.0, 0.0, 0.0], 0),  # from the start, whatever comes later
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.9, 0.9], None),  # it ended before there was a third
        ([0.0, 0.0, 0.6, None, 0.6, 0.6, 0.6], 8),  # what was not measured is no proof
        ([0.6, 0.6, None, 0.6, 0.6, None, 0.6], None),
        ([0.499] * 7, None),
        ([0.9, 0.9], None),
        ([], None),
    ],
)
def test_onset_is_the_first_of_three_in_a_row(lifts: list[float | None], onset: int | None) -> None:
    assert onset_of(STEPS[: len(lifts)], lifts) == onset


@pytest.mark.parametrize(
    ("lifts", "width"),
    [
        ([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0], 5),  # 0.2 at 8 + 8/5, 0.8 at 8 + 4 * 8/5
        ([0.0, 0.0, 0.2, 0.4, 0.6, 0.8, 0.9], 14),  # from 2 to 16
        ([0.0, 0.0, 0.1, 0.3, 0.5, 0.7, 0.9], 17),  # 0.2 at 3, 0.8 at 20
        ([0.0, 0.0, 0.3, 0.0, 0.0, 0.2, 0.8], 22),  # first crossings: 0.2 at 1 2/3, 0.8 at 24
        ([0.3, 0.3, 0.3, 0.3, 0.3, 0.8, 0.9], 16),  # already above 0.2 at step 0
        ([0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9], 0),
        ([0.0, 0.0, 0.0, 0.2, None, 0.9, 0.9], 12),  # after a gap it is at the snapshot: 4 to 16
        ([0.0, 0.1, 0.3, 0.5, 0.7, 0.79, 0.79], None),
        ([None] * 7, None),
    ],
)
def test_width_lies_between_two_crossings(lifts: list[float | None], width: int | None) -> None:
    assert width_of(STEPS, lifts) == width


@given(st.lists(st.one_of(st.none(), st.floats(-1, 1)), max_size=7))
def test_a_width_is_never_negative_and_never_longer_than_the_run(lifts: list[float | None]) -> None:
    width = width_of(STEPS[: len(lifts)], lifts)
    assert width is None or 0 <= width <= STEPS[len(lifts) - 1]
    reached = any(lift is not None and lift >= 0.8 for lift in lifts)
    assert (width is not None) == reached


@pytest.mark.parametrize("at", [1, 2, 3, 5, 8, 12, 20, 28])
def test_the_largest_drop_is_found_where_it_was_planted(at: int) -> None:
    assert largest_drop(falling(at)) == (at, 2.5)  # all of these begin a cell of the grid


def test_the_grid_is_one_of_log_steps() -> None:
    # 0.3 nats a step for 10 steps, and 0.1 a step for 300: the second is slower, but more falls in one doubling.
    early = [(step, 40.0 - 0.3 * min(step, 10)) for step in range(1000)]
    late = [(step, 40.0 - 0.1 * min(max(0, step - 500), 300)) for step in range(1000)]
    both = [(step, one + two) for (step, one), (_, two) in zip(early, late, strict=True)]
    first, second, joint = largest_drop(early), largest_drop(late), largest_drop(both)
    assert first is not None and second is not None and joint is not None
    assert first[0] <= 10 and 500 < second[0] <= 896
    assert joint == (second[0], pytest.approx(second[1]))


@pytest.mark.parametrize("losses", [[], [(0, 1.0)], [(0, 1.0), (1, 1.0)], [(0, 1.0), (1, 2.0)], [(0, NAN), (1, 0.0)]])
def test_there_may_be_no_drop(losses: list[tuple[int, float]]) -> None:
    assert largest_drop(losses) is None


def test_a_drop_is_found_across_losses_that_are_not_finite() -> None:
    losses = [(step, NAN if step in (6, 7, 9) else math.inf if step == 3 else loss) for step, loss in falling(8)]
    assert largest_drop(losses) == (8, 2.5)


def test_a_head_that_came_before_the_drop_has_a_positive_lead() -> None:
    early = [head(previous=lift, self=0.0) for lift in (0.0, 0.0, 0.6, 0.7, 0.9, 0.9, 0.9)]
    late = [head((0, 1), previous=lift, self=0.0) for lift in (0.0, 0.0, 0.0, 0.0, 0.0, 0.6, 0.6)]
    never = [head((1, 0), previous=lift, self=0.0) for lift in (0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.2)]
    later = [head((1, 1), previous=lift, self=0.0) for lift in (0.0, 0.0, 0.0, 0.0, 0.6, 0.6, 0.6)]
    found = histories(snapshots(early, late, never, later), falling(5))
    assert [(h.layer, h.head, h.onset, h.lead) for h in found] == [
        (0, 0, 2, 3),
        (0, 1, None, None),
        (1, 0, None, None),
        (1, 1, 8, -3),
    ]
    assert all(h.target == "previous" and h.label == "" and list(h.steps) == STEPS for h in found)
    assert [h.lead for h in histories(snapshots(early), [])] == [None]


def test_a_head_is_followed_on_its_label_else_on_what_it_ended_closest_to() -> None:
    one = [head(previous=0.9, induction=0.1) for _ in STEPS[:-1]] + [head(previous=0.3, induction=0.4)]
    assert [h.target for h in histories(snapshots(one), [])] == ["induction"]  # the last snapshot decides
    named = histories(snapshots(one), [], {(0, 0): ("previous", "previous token")})[0]
    assert (named.target, named.label, named.onset) == ("previous", "previous token", 0)
    asked = histories(snapshots(one), [], {(0, 0): ("previous", "previous token")}, target="induction")[0]
    assert (asked.target, asked.label) == ("induction", "")  # the label is not induction's
    both = histories(snapshots(one), [], {(0, 0): ("previous", "previous token")}, target="previous")[0]
    assert both.label == "previous token"
    assert histories(snapshots(one), [], {(5, 5): ("self", "x")})[0].target == "induction"


def test_what_was_not_measured_is_a_gap() -> None:
    lifts = [NAN, 0.1, 0.6, NAN, 0.6, 0.7, math.inf]
    found = histories(snapshots([head(previous=lift) for lift in lifts[:-1]] + [head(previous=0.7)]), [])[0]
    assert found.lifts == [None, 0.1, 0.6, None, 0.6, 0.7, 0.7] and found.onset == 8
    assert histories(snapshots([head(previous=lift) for lift in lifts]), [])[0].target == ""  # inf is no lift
    missing = histories(snapshots([head(previous=0.7) for _ in STEPS]), [], target="duplicate")[0]
    assert (missing.lifts, missing.onset, missing.width) == ([None] * 7, None, None)
    assert closest(head(previous=NAN, self=-0.5)) == "self" and closest(head()) == ""


def test_a_lift_at_another_distance_is_a_gap() -> None:
    """Only the best offset's lift is stored: while another distance was best, that of the final one is unknown."""
    distances = [2, 5, 3, 5, 5, 5, 5]
    found = histories(snapshots([head(distance=d, offset=0.7, previous=0.1) for d in distances]), [])[0]
    assert (found.target, found.distance) == ("offset", 5)
    assert found.lifts == [None, 0.7, None, 0.7, 0.7, 0.7, 0.7] and found.onset == 4
    other = histories(snapshots([head(distance=d, offset=0.1, previous=0.7) for d in distances]), [])[0]
    assert (other.target, other.distance, other.onset) == ("previous", None, 0)


def test_there_may_be_few_snapshots_or_none() -> None:
    assert histories([], falling(8)) == []
    one = histories(snapshots([head(previous=0.9)]), falling(8))[0]
    assert (one.onset, one.width, one.lead, one.lifts) == (None, 0, None, [0.9])


def test_it_needs_no_torch() -> None:
    code = "import sys, mhsa_cli.core.heads.history; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_offsets_lift_is_that_of_the_final_distance_where_all_are_kept() -> None:
    heads = [
        replace(head(distance=d, offset=0.7), offsets={2: 0.7, 5: lift}) for d, lift in ((2, 0.1), (5, 0.6), (5, 0.9))
    ]
    assert list(histories(snapshots(heads), [])[0].lifts) == [0.1, 0.6, 0.9]
