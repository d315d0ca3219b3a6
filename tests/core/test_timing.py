"""The clocks, driven by a clock that the test turns."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from unittest import mock

import pytest
import torch

from mhsa_cli.core.bench import timing
from mhsa_cli.core.bench.timing import StepClock, call_seconds, peak_bytes, spread

CPU = torch.device("cpu")


class Hands:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self, device: torch.device) -> float:
        return self.now


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hands]:
    found = Hands()
    monkeypatch.setattr(timing, "clock", found)
    before = torch.get_num_threads()
    yield found
    torch.set_num_threads(before)


def test_quartiles_of_values_made_by_hand() -> None:
    assert spread([3.0]) == (3.0, 3.0, 3.0)
    assert spread([5.0, 1.0, 2.0, 9.0, 3.0]) == (2.0, 3.0, 5.0)
    assert spread([3.0, 1.0]) == (1.5, 2.0, 2.5)


def test_a_call_is_timed_for_as_long_as_was_asked_and_at_least_a_few_times(hands: Hands) -> None:
    def work() -> None:
        hands.now += 2.0

    assert call_seconds(work, CPU, 7.5) == [2.0] * 4
    assert call_seconds(work, CPU, 0.0) == [2.0] * timing.ROUNDS


def test_steps_are_timed_in_rounds_and_the_first_ones_do_not_count(hands: Hands) -> None:
    tick, steps = StepClock(1.0, CPU, [1]), 0
    tick.start()
    while True:
        steps += 1
        hands.now += 3.0 if steps == 1 else 0.5 if steps == 2 else 0.002
        if tick():
            break
    # The second step, of 0.5 s, sets rounds of one step: longer than the wanted round already.
    assert set(tick.rounds) == {1}
    assert tick.rounds[1] == pytest.approx([0.002] * (steps - 2), rel=1e-6)
    assert 0.5 + 0.002 * (steps - 2) == pytest.approx(1.0, abs=0.003)


def test_a_round_has_so_many_steps_that_the_clock_is_not_what_is_timed(hands: Hands) -> None:
    tick, steps = StepClock(0.3, CPU, [1]), 0
    tick.start()
    while True:
        steps += 1
        hands.now += 0.001
        if tick():
            break
    assert tick.rounds[1] == pytest.approx([0.001] * len(tick.rounds[1]))
    assert len(tick.rounds[1]) == pytest.approx((steps - 2) * 0.001 / timing.ROUND, abs=1)


def test_thread_counts_take_turns_and_each_is_timed_apart(hands: Hands) -> None:
    tick = StepClock(1.0, CPU, [1, 2])
    tick.start()
    used = []
    while True:
        used.append(torch.get_num_threads())
        step = 0.02 if used[-1] == 1 else 0.07
        hands.now += 9 * step if len(used) > 1 and used[-2] != used[-1] else step  # threads wake up
        if tick():
            break
    assert used[1:9] == [2, 2, 1, 1, 2, 2, 1, 1]
    assert len(tick.rounds[1]) >= timing.ROUNDS and abs(len(tick.rounds[1]) - len(tick.rounds[2])) <= 1
    assert tick.rounds[1] == pytest.approx([0.02] * len(tick.rounds[1]))
    assert tick.rounds[2] == pytest.approx([0.07] * len(tick.rounds[2]))


def test_a_step_that_takes_very_long_is_not_taken_again(hands: Hands) -> None:
    tick = StepClock(1.0, CPU, [2, 1])
    tick.start()
    hands.now += timing.PATIENCE + 1
    assert tick()
    assert tick.rounds == {2: [timing.PATIENCE + 1], 1: []}

    def work() -> None:
        hands.now += timing.PATIENCE + 1

    assert call_seconds(work, CPU, 100.0) == [timing.PATIENCE + 1]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's peak")
def test_the_peak_is_what_a_call_held_at_once_though_it_is_gone_afterwards() -> None:
    def work() -> None:
        for _ in range(8):
            torch.ones(5_000_000)  # 20 MB, eight times one after another

    work()
    found = peak_bytes(work, CPU)
    assert found is not None and 18e6 < found < 50e6


def test_a_system_that_does_not_tell_gives_no_figure() -> None:
    with mock.patch.object(timing.Path, "write_text", side_effect=FileNotFoundError):
        assert peak_bytes(lambda: None, CPU) is None
    assert peak_bytes(lambda: None, torch.device("meta")) is None
