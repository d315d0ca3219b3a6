from __future__ import annotations

import io
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import pytest

from mhsa_cli.records.sweep import ChunkPlan, ChunkProgress
from mhsa_cli.renderers.kit.console import make_console, surface_of
from mhsa_cli.renderers.kit.ticks import short
from mhsa_cli.renderers.pictures.live_sweep import LiveSweep
from tests.renderers.drawn import COLOR, SURFACES, golden
from tests.renderers.test_draw_live import Clock

STEPS = 360


def losses(step: int, count: int = 16) -> list[float]:
    """Trials that fall one after the other, the first early and the last late."""
    return [0.004 + 4.1 / (1 + math.exp((step - 90 - 8 * i) / 18)) for i in range(count)]


def view(clock: Clock, surface: str = "none", out: io.StringIO | None = None, slots: int = 2, **more: int) -> LiveSweep:
    console = make_console(file=out or io.StringIO())
    given = {"trials": 64, "done": 8, "work": 56 * STEPS, **more}
    return LiveSweep(console, SURFACES[surface], slots=slots, clock=clock, **given)


def feed(shown: LiveSweep, clock: Clock, chunk: int, steps: Sequence[int], started: float = 100.0) -> None:
    for step in steps:
        shown.add(ChunkProgress(chunk, step, losses(step), clock.now - started))


def midway(surface: str = "none", second: bool = True) -> LiveSweep:
    clock = Clock()
    shown = view(clock, surface)
    shown.begin(ChunkPlan(0, "n_heads=1", 16, STEPS))
    if second:
        shown.begin(ChunkPlan(1, "n_heads=2", 16, STEPS))
    clock.now += 20.0
    feed(shown, clock, 0, range(4, 241, 4))
    if second:
        feed(shown, clock, 1, range(4, 121, 4))
    return shown


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_picture_stays_as_it_was(width: int) -> None:
    golden(f"live-sweep-{width}", midway().picture(width, 24).plain)


def test_the_picture_in_ascii_stays_as_it_was() -> None:
    golden("live-sweep-80-ascii", midway("ascii").picture(80, 24).plain)


@pytest.mark.parametrize("surface", sorted(SURFACES))
def test_the_picture_leaves_four_columns_and_fits_its_terminal(surface: str) -> None:
    views = (midway(surface), midway(surface, second=False), view(Clock(), surface))
    for shown, width, height in itertools.product(views, [20, 33, 60, 80, 120, 200], [1, 11, 12, 24]):
        lines = shown.picture(width, height)
        assert all(line.cell_len <= width - 4 for line in lines) and len(lines) <= max(height, 1)
        assert "trials 8/64" in lines[-1].plain
        assert surface != "ascii" or all(line.plain.isascii() for line in lines)
        assert surface != "none" or not any(getattr(span.style, "color", None) for line in lines for span in line.spans)


def status(shown: LiveSweep, width: int = 80) -> str:
    return shown.picture(width, 5).plain


def share(shown: LiveSweep) -> float:
    """How much of the bar is full."""
    bar = status(shown, 100).partition(" ")[0]
    return bar.count("━") / len(bar)


def test_the_status_says_trials_steps_loss_and_time() -> None:
    # 16 * (240 + 120) of 56 * 360 steps took 2 * 20 s of two processes: the other 14,400 take 100 s, in two 50 s.
    clock = Clock()
    shown = view(clock)
    assert status(shown) == "─" * 24 + "  trials 8/64  0:00 elapsed"
    loss = short(median([*losses(240), *losses(120)]))
    assert status(midway()).endswith(f"  trials 8/64  0:50 left  step 120–240/360  loss {loss}  0:20 elapsed")
    assert status(midway(), 40).endswith("  trials 8/64  0:50 left")


def test_results_count_in_the_time_that_is_left() -> None:
    clock = Clock()
    shown = view(clock, slots=1, trials=16, done=0, work=16 * STEPS)
    shown.begin(ChunkPlan(0, "", 16, STEPS))
    clock.now += 30
    feed(shown, clock, 0, [STEPS])
    assert status(shown).endswith("trials 0/16  step 360/360  loss 0.0040  0:30 elapsed")
    clock.now += 4
    shown.add(ChunkProgress(0, STEPS, (), 30.0, 4, 4.0))
    assert status(shown).endswith("trials 0/16  0:12 left  written 4/16  0:34 elapsed") and share(shown) == 1
    shown.end(0, 16)
    assert status(shown).endswith("trials 16/16  0:34 elapsed")


def test_a_resumed_chunk_counts_from_where_it_goes_on() -> None:
    clock = Clock()
    shown = view(clock, slots=1, trials=16, done=0, work=16 * 60)
    shown.begin(ChunkPlan(0, "", 16, STEPS, first=300))
    assert share(shown) == 0 and "step 300/360" in status(shown)
    clock.now += 10
    feed(shown, clock, 0, [330])
    assert share(shown) == pytest.approx(0.5, abs=0.03) and status(shown).endswith(
        "0:10 left  step 330/360  loss 0.0042  0:10 elapsed"
    )


def test_a_chunk_that_ended_without_results_is_work_again() -> None:
    clock = Clock()
    shown = view(clock, trials=32, done=0, work=32 * STEPS)
    shown.begin(ChunkPlan(0, "", 32, STEPS))
    feed(shown, clock, 0, [180])
    assert share(shown) == pytest.approx(0.5, abs=0.03)
    shown.end(0, 0)
    assert share(shown) == 0 and "trials 0/32" in status(shown)
    shown.add(ChunkProgress(0, 200, [1.0]))  # a late word of a chunk that is gone
    assert "trials 0/32" in status(shown)


def panel_rows(shown: LiveSweep) -> list[str]:
    return shown.picture(60, 24).plain.splitlines()


def test_the_median_is_that_of_all_chunks_of_a_group() -> None:
    clock = Clock()
    apart, whole = view(clock), view(clock)
    for chunk in (0, 1):
        apart.begin(ChunkPlan(chunk, "g", 8, STEPS))
    whole.begin(ChunkPlan(0, "g", 16, STEPS))
    for step in range(4, 300, 4):
        values = losses(step)
        apart.add(ChunkProgress(0, step, values[::2]))
        apart.add(ChunkProgress(1, step, values[1::2]))
        whole.add(ChunkProgress(0, step, values))
    assert panel_rows(apart)[:-1] == panel_rows(whole)[:-1] and "g ×16" in panel_rows(whole)[0]


def test_a_loss_that_is_not_finite_is_left_out_of_the_median() -> None:
    clock = Clock()
    clean, odd = view(clock), view(clock)
    for shown in (clean, odd):
        shown.begin(ChunkPlan(0, "g", 16, STEPS))
    for step in range(4, 300, 4):
        clean.add(ChunkProgress(0, step, losses(step)))
        odd.add(ChunkProgress(0, step, [*losses(step), math.nan, math.inf]))
    assert panel_rows(clean) == panel_rows(odd)
    nothing = view(clock)
    nothing.begin(ChunkPlan(0, "g", 16, STEPS))
    nothing.add(ChunkProgress(0, 4, [math.nan] * 16))
    assert "gap: " in nothing.picture(60, 24).plain and "loss nan" not in status(nothing)


def test_groups_that_find_no_room_are_counted() -> None:
    shown = view(Clock(), slots=9)
    for chunk in range(9):
        shown.begin(ChunkPlan(chunk, f"g{chunk}", 4, STEPS))
        shown.add(ChunkProgress(chunk, 10, [1.0] * 4))
    lines = shown.picture(120, 30).plain.splitlines()
    assert "g3 ×4" in lines[0] and "g4" not in lines[0] and lines[-2] == "and 5 more groups in training"


def plain(hours: float, *, chunks: int = 9, trials: int = 72) -> list[str]:
    """Run a sweep of so many hours through a pipe, each chunk telling a hundred times."""
    clock, out = Clock(), io.StringIO()
    console = make_console(file=out)
    with LiveSweep(
        console, surface_of(console), trials=trials, done=0, work=trials * STEPS, slots=1, clock=clock
    ) as shown:
        for chunk in range(chunks):
            shown.begin(ChunkPlan(chunk, "", trials // chunks, STEPS))
            for part in range(1, 101):
                clock.now += hours * 3600 / chunks / 100
                shown.add(ChunkProgress(chunk, part * STEPS // 100, [0.5] * (trials // chunks), clock.now - 100))
            shown.end(chunk, trials // chunks)
        shown.say("a word\x1b")
    assert "\x1b" not in out.getvalue() and "\r" not in out.getvalue()
    return out.getvalue().splitlines()


def test_a_pipe_gets_a_line_now_and_then_and_the_last_one() -> None:
    assert plain(5 / 3600) == ["trials 72/72  0:05 elapsed", "a word\\x1b"]
    lines = plain(65 / 3600)
    assert len(lines) == 6 + 1 + 1 and lines[0].startswith("trials 8/72  ") and "  step 140/360  " in lines[0]
    assert len(plain(24.0)) < 200 and len(plain(24.0, chunks=1000, trials=1000)) < 200


def test_it_is_redrawn_at_most_twice_a_second() -> None:
    clock, drawn = Clock(), list[float]()
    console = make_console(file=io.StringIO())
    shown = LiveSweep(console, replace(COLOR, animate=True), trials=4, done=0, work=4000, slots=1, clock=clock)
    with shown:
        shown.begin(ChunkPlan(0, "", 4, 1000))
        redraw = shown.redraw
        shown.redraw = lambda: (drawn.append(clock.now), redraw())  # type: ignore[method-assign]
        for step in range(1, 1001):
            clock.now += 0.01
            shown.receive(ChunkProgress(0, step, [1.0] * 4, clock.now))
        shown.receive("a message")
    assert 18 <= len(drawn) <= 20
