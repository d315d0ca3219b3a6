from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest

from mhsa_cli.records.training import EpochRecord, EvalRecord, SaveRecord, Series, StepRecord
from mhsa_cli.renderers.kit.console import make_console, surface_of
from mhsa_cli.renderers.pictures.curve import Level
from mhsa_cli.renderers.pictures.live import LiveTraining
from tests.renderers.drawn import COLOR, SURFACES
from tests.renderers.test_draw_console import run, run_in_terminal

GUESS = [Level(math.log(64), "chance 4.16")]


class Clock:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def step(number: int, loss: float = 2.0) -> StepRecord:
    return StepRecord(number, loss, 0.25, 5e-3)


def train(total: int, done: int | None = None, *, every: int = 0) -> tuple[str, LiveTraining]:
    out = io.StringIO()
    console = make_console(file=out)
    view = LiveTraining(console, surface_of(console), total_steps=total, clock=Clock())
    with view:
        for number in range(1, (total if done is None else done) + 1):
            view.add(step(number))
            if every and number % every == 0:
                view.add(EvalRecord(number, 0.0079, 0.999))
    return out.getvalue(), view


@pytest.mark.parametrize("total", [1, 7, 20, 360, 10_000])
def test_a_pipe_gets_about_twenty_lines(total: int) -> None:
    text, _ = train(total)
    lines = text.splitlines()
    assert len(lines) == min(total, 20)
    assert lines[-1].startswith(f"step={total}/{total} loss=2.00 acc=0.250")
    assert "\r" not in text and "\x1b" not in text


def test_a_real_pipe_gets_neither_escape_nor_return() -> None:
    code = """
        from mhsa_cli.records.training import StepRecord
        from mhsa_cli.renderers.kit.console import make_console, surface_of
        from mhsa_cli.renderers.pictures.live import LiveTraining
        console = make_console(stderr=True)
        with LiveTraining(console, surface_of(console), total_steps=10_000) as view:
            for number in range(1, 10_001):
                view.add(StepRecord(number, 2.0, 0.5, 5e-3))
    """
    for forced in ({}, {"FORCE_COLOR": "1"}):
        done = run(code, **forced)
        assert done.returncode == 0 and done.stdout == b""
        assert 10 < done.stderr.count(b"\n") < 200
        assert b"\r" not in done.stderr and b"\x1b[?" not in done.stderr
        assert forced or b"\x1b" not in done.stderr


def test_a_line_carries_the_evaluation_of_its_own_step() -> None:
    lines = train(360, every=60)[0].splitlines()
    assert next(line for line in lines if "step=180/" in line).endswith("eval_loss=0.0079 eval_acc=0.999")
    assert "eval" not in next(line for line in lines if "step=198/" in line)


def test_an_evaluation_of_another_step_says_which() -> None:
    line = next(line for line in train(1000, every=77)[0].splitlines() if "step=100/" in line)
    assert "eval_loss@77=0.0079" in line


def test_a_run_that_stops_early_says_its_last_step() -> None:
    lines = train(1000, 333)[0].splitlines()
    assert lines[-1].startswith("step=333/1000")


def test_the_history_becomes_series() -> None:
    _, view = train(31, every=10)
    first, second = view.series()
    assert (first.role, list(first.steps), set(first.values)) == ("train", list(range(1, 32)), {2.0})
    assert (second.role, list(second.steps)) == ("eval", [10, 20, 30])


def test_an_epoch_counts_as_an_evaluation_once() -> None:
    _, view = train(0)
    view.add(EpochRecord(1, 5, 3.0, 1.5, 0.5))
    view.add(EvalRecord(9, 1.25, 0.5))
    view.add(EpochRecord(2, 9, 2.0, 1.25, 0.5))
    view.add(EpochRecord(3, 13, 2.0, math.nan, math.nan))
    view.add(SaveRecord(13, {}, "end"))
    assert list(view.series()[0].steps) == [5, 9]


def test_a_long_history_stays_small_and_keeps_its_peak_and_its_past() -> None:
    out = io.StringIO()
    console = make_console(file=out)
    view = LiveTraining(console, surface_of(console), total_steps=50_000)
    for number in range(1, 50_001):
        view.add(step(number, 77.0 if number == 12_345 else 2.0))
    series = view.series()[0]
    early, late = (sum(low < at <= low + 10_000 for at in series.steps) for low in (0, 30_000))
    assert abs(early - late) < 9  # what was long ago is drawn as well as what was lately
    assert len(series.steps) <= 6002 and max(v for v in series.values if v is not None) == 77.0
    assert (series.steps[0], series.steps[-1]) == (1, 50_000)


def test_a_resumed_run_draws_what_came_before() -> None:
    out = io.StringIO()
    console = make_console(file=out)
    past = [Series("train", [1, 2, 3], [4.0, 3.5, 3.25]), Series("eval", [3], [3.0], "eval")]
    view = LiveTraining(console, surface_of(console), total_steps=7, history=past)
    view.add(step(4))
    assert list(view.series()[0].values) == [4.0, 3.5, 3.25, 2.0] and list(view.series()[1].steps) == [3]


def picture(width: int, height: int, surface: str = "none", total: int = 600) -> tuple[str, list[int]]:
    clock, done = Clock(), list[int]()
    view = LiveTraining(
        make_console(file=io.StringIO()),
        SURFACES[surface],
        total_steps=total,
        levels=GUESS,
        trained=lambda: (192.0 * len(done), 0.006 * len(done)),
        clock=clock,
    )
    clock.now += 2.0
    for number in range(1, 336):
        view.add(StepRecord(number, 0.0061, 1.0, 5e-3))
        done.append(number)
    lines = view.picture(width, height)
    return lines.plain, [line.cell_len for line in lines]


def test_the_status_line_says_what_matters() -> None:
    assert picture(90, 24)[0].endswith("  0:02 left  32k tok/s  0:02 elapsed")
    status = picture(80, 24)[0].splitlines()[-1]
    assert status.endswith("  step 335/600  loss 0.0061  acc 100.0%  0:02 left  32k tok/s")
    assert picture(80, 24, "ascii")[0].splitlines()[-1].startswith("#")


@pytest.mark.parametrize("height", [1, 9, 10, 24])
def test_the_picture_leaves_four_columns_and_fits_its_terminal(height: int) -> None:
    for width in range(20, 201, 3):
        text, widths = picture(width, height)
        assert max(widths) <= max(20, width) - 4
        assert text.count("\n") + 1 <= height
        assert "step 335/600" in text.splitlines()[-1]


def test_the_speed_is_that_of_the_steps_since_it_was_told_last() -> None:
    """Tokens and seconds by hand: 10 tokens in 2 s, then 30 more in 0.5 s, then nothing new."""
    out, now = io.StringIO(), [(0.0, 0.0)]
    console = make_console(file=out)
    view = LiveTraining(console, surface_of(console), total_steps=4, trained=lambda: now[-1])
    with view:
        for number, measured in enumerate([(10.0, 2.0), (40.0, 2.5), (40.0, 2.5), (41.0, 2.5)], 1):
            view.add(step(number))
            now.append(measured)
            view.add(EvalRecord(number, 0.5, 0.5))
    assert [float(line.rpartition("tok/s=")[2]) for line in out.getvalue().splitlines()] == [5, 60, 60, 60]


def test_facts_are_dropped_from_the_right() -> None:
    narrow = picture(40, 24)[0].splitlines()[-1]
    assert "loss 0.0061" in narrow and "tok/s" not in narrow and "left" not in narrow


def test_a_low_terminal_gets_the_status_only() -> None:
    assert picture(80, 9)[0].count("\n") == 0
    assert picture(80, 10)[0].count("\n") > 5


def test_it_is_redrawn_at_most_five_times_a_second() -> None:
    clock, drawn = Clock(), []
    console = make_console(file=io.StringIO())
    view = LiveTraining(console, replace(COLOR, animate=True), total_steps=1000, clock=clock)
    with view:
        redraw = view.redraw
        view.redraw = lambda: (drawn.append(clock.now), redraw())  # type: ignore[method-assign]
        for number in range(1, 1001):
            clock.now += 0.01
            view.add(step(number))
    assert 45 <= len(drawn) <= 50


ANIMATED = """
    import sys, time
    from mhsa_cli.records.training import StepRecord
    from mhsa_cli.renderers.kit.console import make_console, surface_of
    from mhsa_cli.renderers.pictures.live import LiveTraining
    console = make_console(stderr=True)
    clock = iter(range(10_000))
    try:
        with LiveTraining(console, surface_of(console), total_steps=50, clock=lambda: next(clock)) as view:
            for number in range(1, 51):
                view.add(StepRecord(number, 2.0, 0.5, 5e-3))
                if number == 20 and {fails}:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    print("after", flush=True)
"""


@pytest.mark.parametrize("fails", [False, True])
def test_a_terminal_is_left_clean(fails: bool) -> None:
    shown = run_in_terminal(ANIMATED.format(fails=fails), PYTHONUTF8="1")
    assert "step 20/50" in shown and "\x1b[?25l" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is back
    assert shown.rstrip().endswith("after")
    tail = shown[shown.rindex("loss (nats)") :]
    assert "\x1b[2K" in tail  # the picture was wiped
    assert shown.rstrip().endswith("\x1b[1A\x1b[2Kafter")  # and no empty line is left in its place


@pytest.mark.parametrize("environ", [{"CI": "1"}, {"TERM": "dumb"}, {"JPY_PARENT_PID": "7"}])
def test_a_log_that_looks_like_a_terminal_is_not_animated(environ: dict[str, str]) -> None:
    shown = run_in_terminal(ANIMATED.format(fails=False), PYTHONUTF8="1", **environ)
    assert "step=50/50" in shown and "\x1b[?25l" not in shown and "\x1b[2K" not in shown


def test_a_message_is_printed_as_it_is() -> None:
    out = io.StringIO()
    console = make_console(file=out)
    with LiveTraining(console, surface_of(console), total_steps=3) as view:
        view.say("[/x] saved :x: \x1b[31m")
    assert out.getvalue() == "[/x] saved :x: \\x1b[31m\n"


def test_nothing_is_drawn_for_a_run_of_no_steps() -> None:
    assert train(0)[0] == "" and train(0)[1].series() == []
