"""A replay: which frames, how long, and a last frame that stays whole."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from unittest import mock

import pytest

from mhsa_cli.renderers.kit.console import make_console
from mhsa_cli.renderers.pictures.replay import LONGEST, SECONDS, chosen_frames, frame_picture, play
from tests.renderers.drawn import COLOR, SURFACES, maps, on


@pytest.mark.parametrize("count", [0, 1, 2, 23, 99, 100, 101, 150, 2345])
def test_a_replay_has_all_frames_or_as_many_as_time_allows(count: int) -> None:
    frames = chosen_frames(count)
    assert frames == sorted(set(frames)) and len(frames) == min(count, int(LONGEST / SECONDS))
    assert frames[:1] == [0][:count] and frames[-1:] == [count - 1][: min(count, 1)]
    gaps = [after - before for before, after in zip(frames, frames[1:], strict=False)]
    assert max(gaps, default=1) - min(gaps, default=1) <= 1


def test_a_frame_says_its_step_and_loss_and_what_does_not_fit() -> None:
    whole = frame_picture(maps(), 0.25, on(80, "none"))
    assert whole[0].plain == "step 360   loss 0.250" and "fit" not in whole.plain
    size = len(whole)
    assert frame_picture(maps(), 0.25, SURFACES["none"], height=size).plain == whole.plain
    cut = frame_picture(maps(), 0.25, SURFACES["none"], height=size - 3)
    assert "3 lines do not fit below" in cut[0].plain and cut[1:] == whole[1:]
    assert frame_picture(maps(), None, COLOR)[0].plain == "step 360"
    assert whole.columns <= 76  # the echo of ^C must not wrap a line


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def played(frames: int, stop_at: int | None = None, rows: int = 60) -> tuple[str, list[float]]:
    """Replay copies of one map with losses 0, 1, 2 ...; returns what was written and the waits."""
    told = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": str(rows)}
    stream, waits = Terminal(), list[float]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == stop_at:
            raise KeyboardInterrupt

    shown = [(maps(), float(number)) for number in range(frames)]
    try:
        with mock.patch.dict(os.environ, told):
            play(make_console(file=stream), replace(COLOR, animate=True), shown, sleep=sleep, clock=lambda: 0.0)
    finally:
        text = stream.getvalue()
    return text, waits


def test_all_frames_come_in_order_and_the_last_stays() -> None:
    text, waits = played(5)
    places = [text.find(f"loss {value}") for value in ("0", "1.00", "2.00", "3.00", "4.00")]
    assert -1 not in places and places == sorted(places)
    assert waits == [SECONDS] * 4 and text.rstrip().endswith("\x1b[?25h")  # no wait after the last, the cursor is back
    assert played(1)[1] == []


def test_an_interrupted_replay_tidies_up() -> None:
    with pytest.raises(KeyboardInterrupt):
        played(5, stop_at=2)


def test_a_low_terminal_gets_the_last_frame_whole() -> None:
    text, _ = played(3, rows=8)
    assert "lines do not fit below" in text
    last = text[text.rindex("loss 2.00") :]
    assert "fit" not in last and "entropy: this row" in last
