"""A replay: which frames, how long, what keys do, and frames that fit."""

from __future__ import annotations

import io
import itertools
import os
import re
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest

from mhsa_cli.records.thinning import evenly
from mhsa_cli.renderers.kit.console import make_console
from mhsa_cli.renderers.pictures.heatmap import head_maps
from mhsa_cli.renderers.pictures.replay import (
    LONGEST,
    SECONDS,
    SPEEDS,
    Position,
    frame_picture,
    play,
)
from tests.renderers.drawn import COLOR, golden, maps, on


@pytest.mark.parametrize("count", [0, 1, 2, 23, 99, 100, 101, 150, 2345])
def test_a_replay_has_all_frames_or_as_many_as_time_allows(count: int) -> None:
    frames = evenly(range(count), int(LONGEST / SECONDS))
    assert frames == sorted(set(frames)) and len(frames) == min(count, int(LONGEST / SECONDS))
    assert frames[:1] == [0][:count] and frames[-1:] == [count - 1][: min(count, 1)]
    gaps = [after - before for before, after in zip(frames, frames[1:], strict=False)]
    assert max(gaps, default=1) - min(gaps, default=1) <= 1


def frame(width: int, height: int, kind: str = "none", *, layers: int = 2, page: int = 0) -> tuple[str, int]:
    """A frame of a model with 4 heads a layer, as text, and the number of its pages."""
    shown, pages = frame_picture((maps(24, 4, layers), 0.25), on(width, kind), height, page=page)
    assert len(shown) <= height and shown.columns <= max(20, width) - 4  # the echo of ^C must not wrap a line
    return shown.plain, pages


@pytest.mark.parametrize("kind", ["truecolor", "none", "blocks", "ascii", "ascii-colour"])
def test_a_frame_fits_and_its_pages_show_every_head_once(kind: str) -> None:
    for width, height in itertools.product(range(20, 160, 17), range(1, 60, 5)):
        names, pages = list[str](), frame(width, height, kind)[1]
        for page in range(pages):
            text, _ = frame(width, height, kind, page=page)
            assert text.startswith("step 360")
            names += re.findall(r"L\d\.H\d", text)
        every = [f"L{layer}.H{head}" for layer in range(2) for head in range(4)]
        assert sorted(names) == every or (names == [] and (width < 40 or height < 14))


def test_a_frame_is_whole_where_it_fits_then_small_then_a_layer_at_a_time() -> None:
    whole, pages = frame(120, 70, "truecolor")
    assert pages == 1 and head_maps(maps(24, 4, 2), on(116)).plain in whole
    small, pages = frame(120, 30, "truecolor")
    assert pages == 1 and "entropy" not in small and "pooled" not in small
    pooled, pages = frame(60, 16, "truecolor")
    assert pages == 1 and "pooled 2×2" in pooled
    first, pages = frame(60, 12, "truecolor")
    assert pages == 2 and "L0, 4 of 8 heads" in first and "L1, 4 of 8 heads" in frame(60, 12, "truecolor", page=1)[0]
    golden("replay-60", pooled)


def test_keys_steer() -> None:
    at = Position(count=5, pages=3)
    for key, wanted in [
        ("right", (1, 0, True)),
        ("end", (4, 0, True)),
        ("right", (4, 0, True)),
        ("left", (3, 0, True)),
        ("l", (3, 1, True)),
        ("up", (3, 0, True)),
        ("up", (3, 2, True)),
        ("down", (3, 0, True)),
        ("x", (3, 0, True)),
        (" ", (3, 0, False)),
        ("end", (4, 0, True)),
        (" ", (0, 0, False)),
    ]:
        at.press(key)
        assert (at.place, at.page, at.paused) == wanted, key
    for _ in range(9):
        at.press("+")
    assert SPEEDS[at.speed] == 8
    for _ in range(9):
        at.press("-")
    assert SPEEDS[at.speed] == 0.125
    for _ in range(9):
        at.tick()
    assert at.place == 4 and at.paused and not at.ended  # it waits for a key at its end
    at.press("q")
    assert at.ended


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def played(
    frames: int, stop_at: int | None = None, rows: int = 60, keys: Callable[[float], str] | None = None
) -> tuple[str, list[float]]:
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
            surface, console = replace(COLOR, animate=True), make_console(file=stream)
            play(console, surface, shown, keys=keys, sleep=sleep, clock=lambda: 0.0)
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


def test_keys_are_read_between_frames_and_named_while_they_are() -> None:
    typed = ["end", "", "home", "", "q"]
    waits = list[float]()

    def key(seconds: float) -> str:
        waits.append(seconds)
        return typed.pop(0)

    text, slept = played(5, keys=key)
    assert typed == [] and slept == [] and waits == [SECONDS] * 5
    assert [text.count(f"loss {value}") > 0 for value in ("0", "1.00", "2.00", "4.00")] == [True, False, False, True]
    assert "space pause" in text and "space pause" not in played(2)[0]
    assert "space pause" not in text[text.rindex("loss 0") :]  # the last frame stands alone


def test_a_low_terminal_gets_what_fits() -> None:
    text, _ = played(3, rows=12)
    last = text[text.rindex("loss 2.00") :]
    assert "L0.H2" in last and last.count("\n") < 9
    assert "too few rows" in played(3, rows=7)[0]
