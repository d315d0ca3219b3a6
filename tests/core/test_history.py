"""When a head formed: by hand, and for planted curves, whose intervals must hold the moments that were planted."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mhsa_cli.core.heads.history import (
    closest,
    formation_of,
    head_claims,
    histories,
    largest_drop,
    order_claims,
    status_of,
)
from mhsa_cli.core.training.snapshots import snapshot_steps
from mhsa_cli.records.claim_words import words
from mhsa_cli.records.claims import Status
from mhsa_cli.records.timeline import HeadHistory, HeadSnapshot, Interval, LossDrop, SnapshotRecord

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
        ([0.0, 0.1, 0.2, 0.5, 0.6, 0.9, 0.9], (2, 4)),  # half of 0.8: the first of the three, not the third
        ([0.0, 0.1, 0.1, 0.1, 0.2, 0.3, 0.3], (4, 8)),  # 0.133 is half of a weak head's end
        ([0.0, 0.6, 0.6, 0.3, 0.5, 0.9, 0.9], (4, 8)),  # two in a row are not enough
        ([0.4, 0.9, 0.9, 0.0, 0.0, 0.8, 0.8], (0, 0)),  # from the start, whatever comes later
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.9, 0.9], None),  # it ended before there was a third
        ([0.0, 0.0, 0.6, None, 0.6, 0.6, 0.6], (1, 8)),  # what was not measured is no proof, and may have been one
        ([None, None, 0.4, None, 0.4, 0.7, 0.7], (0, 8)),
        ([0.1, 0.6, None, 0.6, 0.6, None, 0.6], None),
        ([0.0, 0.19, 0.19, 0.19, 0.19, 0.19, 0.19], None),  # it has not formed
        ([0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2], None),  # it has not risen
        ([0.7, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8], None),
        ([0.9, 0.9], None),
        ([], None),
    ],
)
def test_onset_is_the_first_of_three_in_a_row_at_half_of_the_end(
    lifts: list[float | None], onset: tuple[int, int] | None
) -> None:
    found = formation_of(STEPS[: len(lifts)], lifts)
    assert found is None if onset is None else found is not None and found.onset == Interval(*onset)


@pytest.mark.parametrize(
    ("lifts", "rise", "width"),
    [
        ([0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5], (4, 8), 2),  # 0.1 at 4.8, 0.4 at 7.2
        ([0.0, 0.0, 0.2, 0.4, 0.6, 1.0, 1.0, 1.0], (1, 16), 10),  # 0.2 at 2, 0.8 at 12
        ([0.0, 0.3, 0.1, 0.1, 0.6, 1.0, 1.0, 1.0], (4, 16), 7),  # not from the bump on: 0.2 at 4.8, 0.8 at 12
        ([0.3, 0.3, 0.3, 0.6, 0.6, 0.8, 1.0, 1.0, 1.0], (0, 16), 16),  # above 20% from step 0 on
        ([0.1, None, None, 0.6, 0.6, 0.6, 0.6], (0, 4), 3),  # 0.12 at 0.16, 0.48 at 3.04
    ],
)
def test_the_rise_is_from_20_to_80_percent_of_the_end(
    lifts: list[float | None], rise: tuple[int, int], width: int
) -> None:
    steps = [0, 1, 2, 4, 8, 16, 24, 32, 40][: len(lifts)]
    found = formation_of(steps, lifts)
    assert found is not None and (found.rise, found.width) == (Interval(*rise), width)


def logistic(middle: float, pace: float, top: float, steps: Sequence[int]) -> list[float]:
    return [top / (1 + math.exp(-max(-500.0, min(500.0, (step - middle) / pace)))) for step in steps]


# A head's end and pace, and where it is half formed, on the steps that a run of 3000 has.
TOPS, PACES, MIDDLES = st.floats(0.25, 1), st.floats(0.1, 100), st.floats(60, 2000)


@given(MIDDLES, PACES, TOPS)
def test_the_intervals_hold_the_moments_of_a_planted_curve(middle: float, pace: float, top: float) -> None:
    steps = sorted(snapshot_steps(3000))
    found = formation_of(steps, logistic(middle, pace, top, steps))
    assume(middle > 6 * pace)  # it is below 20% at the start
    assert found is not None
    half, spread = (found.onset.low, found.onset.high), pace * math.log(4)  # a logistic is at 20% and 80% there
    off = 0.01 * pace  # its end is measured, and not quite `top`
    assert half[0] - off <= middle <= half[1] + off
    assert found.rise.low - off <= middle - spread and middle + spread <= found.rise.high + off
    assert abs(found.width - 2 * spread) <= found.rise.high - found.rise.low  # it is interpolated within the rise


@given(MIDDLES, PACES, st.floats(0.35, 3), st.integers(0, 10**6))
def test_a_scaled_curve_has_the_same_onset_and_width(middle: float, pace: float, factor: float, seed: int) -> None:
    steps, noise = sorted(snapshot_steps(3000)), random.Random(seed)
    lifts = [lift + noise.gauss(0, 0.02) for lift in logistic(middle, pace, 0.7, steps)]
    scaled = formation_of(steps, [factor * lift for lift in lifts])
    assert scaled == formation_of(steps, lifts) and scaled is not None


@given(MIDDLES, PACES, TOPS, st.floats(60, 2000), st.floats(1, 40), st.integers(0, 10**6))
def test_a_lead_that_is_shown_has_the_right_sign(
    middle: float, pace: float, top: float, drop: float, width: float, seed: int
) -> None:
    """The loss falls along a logistic curve with the noise of batches."""
    steps, noise = sorted(snapshot_steps(3000)), random.Random(seed)
    losses = [3 - 2.9 * level + noise.gauss(0, 0.1) for level in logistic(drop, width, 1, range(3000))]
    record = [
        SnapshotRecord(s, [head(previous=x)]) for s, x in zip(steps, logistic(middle, pace, top, steps), strict=True)
    ]
    found = histories(record, enumerate(losses))[0]
    assume(found.lead is not None)
    assert found.lead is not None and found.lead.low <= drop - middle <= found.lead.high
    status = next(claim.status for claim in head_claims(found) if claim.predicate == "lead")
    assert status in (Status.NOT_SHOWN, Status.SHOWN if drop > middle else Status.OPPOSITE)


@pytest.mark.parametrize(("middle", "status"), [(100, "shown"), (400, "not shown"), (1600, "opposite shown")])
def test_a_lead_is_shown_where_it_is_clear(middle: int, status: str) -> None:
    steps = sorted(snapshot_steps(3000))
    record = [
        SnapshotRecord(s, [head(previous=x)]) for s, x in zip(steps, logistic(middle, 9, 0.6, steps), strict=True)
    ]
    losses = [3 - 2.9 * level for level in logistic(400, 20, 1, range(3000))]
    assert [str(claim.status) for claim in head_claims(histories(record, enumerate(losses))[0])] == ["shown", status]


@pytest.mark.parametrize("at", [1, 2, 3, 5, 8, 12, 20, 28])
def test_the_largest_drop_is_found_where_it_was_planted(at: int) -> None:
    drop = largest_drop(falling(at))  # all of these begin a cell of the grid
    assert drop is not None and (drop.step, drop.nats) == (at, 2.5)
    assert drop.interval.low < at <= drop.interval.high < 32


def test_the_grid_is_one_of_log_steps() -> None:
    # 0.3 nats a step for 10 steps, and 0.1 a step for 300: the second is slower, but more falls in one doubling.
    early = [(step, 40.0 - 0.3 * min(step, 10)) for step in range(1000)]
    late = [(step, 40.0 - 0.1 * min(max(0, step - 500), 300)) for step in range(1000)]
    both = [(step, one + two) for (step, one), (_, two) in zip(early, late, strict=True)]
    first, second, joint = largest_drop(early), largest_drop(late), largest_drop(both)
    assert first is not None and second is not None and joint is not None
    assert first.step <= 10 and 500 < second.step <= 896 and second.interval == Interval(512, 767)
    assert joint == LossDrop(second.step, pytest.approx(second.nats), second.interval)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_a_drop_that_may_be_the_largest_is_in_the_interval(noise: float) -> None:
    """Two drops of nearly equal size: without noise the second is the largest, with it either may be."""
    draw = random.Random(3)
    losses = [(s, 5 - 1.0 * (s >= 64) - 1.1 * (s >= 512) + draw.gauss(0, noise)) for s in range(1000)]
    drop = largest_drop(losses)
    assert drop is not None and drop.interval.low <= 512 <= drop.interval.high
    assert (drop.interval.low <= 64) == (noise > 0)


@pytest.mark.parametrize("losses", [[], [(0, 1.0)], [(0, 1.0), (1, 1.0)], [(0, 1.0), (1, 2.0)], [(0, NAN), (1, 0.0)]])
def test_there_may_be_no_drop(losses: list[tuple[int, float]]) -> None:
    assert largest_drop(losses) is None


def test_a_drop_is_found_across_losses_that_are_not_finite() -> None:
    losses = [(step, NAN if step in (6, 7, 9) else math.inf if step == 3 else loss) for step, loss in falling(8)]
    assert largest_drop(losses) == LossDrop(8, 2.5, Interval(5, 9))


def test_a_head_that_came_before_the_drop_has_a_positive_lead() -> None:
    early = [head(previous=lift, self=0.0) for lift in (0.0, 0.0, 0.6, 0.7, 0.9, 0.9, 0.9)]
    late = [head((0, 1), previous=lift, self=0.0) for lift in (0.0, 0.0, 0.0, 0.0, 0.0, 0.6, 0.6)]
    never = [head((1, 0), previous=lift, self=0.0) for lift in (0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.2)]
    later = [head((1, 1), previous=lift, self=0.0) for lift in (0.0, 0.0, 0.0, 0.0, 0.6, 0.6, 0.6)]
    found = histories(snapshots(early, late, never, later), falling(5))
    assert [(h.layer, h.head, h.onset, h.lead) for h in found] == [
        (0, 0, Interval(1, 2), Interval(-4, 4)),  # the drop lies in 4..5, its rise in 1..8
        (0, 1, None, None),
        (1, 0, None, None),
        (1, 1, Interval(4, 8), Interval(-4, 1)),
    ]
    assert all(h.target == "previous" and h.label == "" and list(h.steps) == STEPS for h in found)
    assert [h.lead for h in histories(snapshots(early), [])] == [None]


def test_a_head_is_followed_on_its_label_else_on_what_it_ended_closest_to() -> None:
    one = [head(previous=0.9, induction=0.1) for _ in STEPS[:-1]] + [head(previous=0.3, induction=0.4)]
    assert [h.target for h in histories(snapshots(one), [])] == ["induction"]  # the last snapshot decides
    named = histories(snapshots(one), [], {(0, 0): ("previous", "previous token")})[0]
    assert (named.target, named.label) == ("previous", "previous token")
    asked = histories(snapshots(one), [], {(0, 0): ("previous", "previous token")}, target="induction")[0]
    assert (asked.target, asked.label) == ("induction", "")  # the label is not induction's
    both = histories(snapshots(one), [], {(0, 0): ("previous", "previous token")}, target="previous")[0]
    assert both.label == "previous token"
    assert histories(snapshots(one), [], {(5, 5): ("self", "x")})[0].target == "induction"


def test_what_was_not_measured_is_a_gap() -> None:
    lifts = [NAN, 0.1, 0.6, NAN, 0.6, 0.7, math.inf]
    found = histories(snapshots([head(previous=lift) for lift in lifts[:-1]] + [head(previous=0.7)]), [])[0]
    assert found.lifts == [None, 0.1, 0.6, None, 0.6, 0.7, 0.7] and found.onset == Interval(1, 8)
    assert histories(snapshots([head(previous=lift) for lift in lifts]), [])[0].target == ""  # inf is no lift
    missing = histories(snapshots([head(previous=0.7) for _ in STEPS]), [], target="duplicate")[0]
    assert (missing.lifts, missing.onset, missing.width) == ([None] * 7, None, None)
    assert closest(head(previous=NAN, self=-0.5)) == "self" and closest(head()) == ""


def test_a_lift_at_another_distance_is_a_gap() -> None:
    """Only the best offset's lift is stored: while another distance was best, that of the final one is unknown."""
    distances = [2, 5, 3, 5, 5, 5, 5]
    found = histories(snapshots([head(distance=d, offset=0.7, previous=0.1) for d in distances]), [])[0]
    assert (found.target, found.distance) == ("offset", 5)
    assert found.lifts == [None, 0.7, None, 0.7, 0.7, 0.7, 0.7] and found.onset is None
    other = histories(snapshots([head(distance=d, offset=0.1, previous=0.7) for d in distances]), [])[0]
    assert (other.target, other.distance, other.onset) == ("previous", None, None)


def test_there_may_be_few_snapshots_or_none() -> None:
    assert histories([], falling(8)) == []
    one = histories(snapshots([head(previous=0.9)]), falling(8))[0]
    assert (one.onset, one.width, one.lead, one.lifts) == (None, None, None, [0.9])


def test_it_needs_no_torch() -> None:
    code = "import sys, mhsa_cli.core.heads.history; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_offsets_lift_is_that_of_the_final_distance_where_all_are_kept() -> None:
    heads = [
        replace(head(distance=d, offset=0.7), offsets={2: 0.7, 5: lift}) for d, lift in ((2, 0.1), (5, 0.6), (5, 0.9))
    ]
    assert list(histories(snapshots(heads), [])[0].lifts) == [0.1, 0.6, 0.9]


def rising(layer: int, number: int, target: str, rise: tuple[int, int], label: str = "named") -> HeadHistory:
    return HeadHistory(layer, number, target, label, [], [], 0.9, Interval(*rise), Interval(*rise))


def test_an_order_is_shown_where_no_rises_overlap() -> None:
    previous = rising(0, 1, "previous", (100, 200))
    others = [
        rising(1, 0, "induction", (201, 300)),
        rising(1, 1, "induction", (50, 99)),
        rising(1, 2, "induction", (200, 250)),
        rising(1, 3, "induction", (10, 900)),
        rising(1, 4, "induction", (1000, 1100)),
    ]
    silent = [
        rising(0, 2, "induction", (300, 400)),  # of the same layer
        rising(1, 5, "induction", (300, 400), label=""),
        rising(0, 0, "self", (1, 2)),
        replace(others[0], rise=None),
    ]
    found = {claim.status: claim for claim in order_claims([previous, *others, *silent])}
    heads = {status: claim.evidence["second"] for status, claim in found.items()}
    assert heads == {
        Status.SHOWN: ["L1.H0", "L1.H4"],
        Status.OPPOSITE: ["L1.H1"],
        Status.NOT_SHOWN: ["L1.H2", "L1.H3"],
    }
    ends = {status: (claim.evidence["low"], claim.evidence["high"]) for status, claim in found.items()}
    assert ends[Status.SHOWN] == (1, 1000) and ends[Status.OPPOSITE] == (-150, -1)
    assert all(claim.subject == "L0.H1" and words(claim) for claim in found.values())


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4))
def test_a_shown_order_holds_for_every_moment_within(ends: list[int]) -> None:
    first, second = Interval(*sorted(ends[:2])), Interval(*sorted(ends[2:]))
    status = status_of(second.minus(first))
    pairs = [(a, b) for a in range(first.low, first.high + 1) for b in range(second.low, second.high + 1)]
    assert (status is Status.SHOWN) == all(a < b for a, b in pairs)
    assert (status is Status.OPPOSITE) == all(b < a for a, b in pairs)


def test_every_claim_has_words() -> None:
    formed = rising(0, 0, "previous", (3, 9))
    for lead in (Interval(2, 7), Interval(-2, 7), Interval(-7, -2), None):
        claims = head_claims(replace(formed, lead=lead))
        assert [claim.predicate for claim in claims] == ["onset", "lead"][: 1 + (lead is not None)]
        assert all(words(claim) for claim in claims)
    never = head_claims(HeadHistory(0, 0, "self", "", [], [], None))
    assert [(claim.predicate, claim.status) for claim in never] == [("onset", Status.NOT_SHOWN)] and words(never[0])
