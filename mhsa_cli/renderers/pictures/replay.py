"""Attention maps as they came to be: one frame a snapshot, redrawn in place, the last one left standing."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rich.console import Console
from rich.live import Live

from mhsa_cli.records import HeadMaps
from mhsa_cli.renderers.kit.console import MIN_WIDTH, Surface, terminal_size
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN
from mhsa_cli.renderers.kit.text_lines import Lines, Piece, wrap_phrases
from mhsa_cli.renderers.kit.ticks import short, step_text
from mhsa_cli.renderers.pictures.heatmap import head_maps
from mhsa_cli.renderers.pictures.live import FREE_COLUMNS

SECONDS, LONGEST = 0.2, 20.0  # a frame, and all of them


def chosen_frames(count: int) -> list[int]:
    """Choose which of `count` frames are shown: all, or as many as time allows, evenly, with the first and the last."""
    most = int(LONGEST / SECONDS)
    if count <= most:
        return list(range(count))
    return [round(number * (count - 1) / (most - 1)) for number in range(most)]


def frame_picture(maps: HeadMaps, loss: float | None, surface: Surface, *, height: int | None = None) -> Lines:
    """Draw one frame for a terminal, the surface: step and loss, and under them the maps.

    With `height` rows, the first line says how much of it will be cut off at the bottom.
    """
    surface = replace(surface, width=max(MIN_WIDTH, surface.width - FREE_COLUMNS))
    picture = head_maps(maps, surface)
    facts: list[list[Piece]] = [[(f"step {step_text(maps.step)}", BOLD)]]
    if loss is not None and not math.isnan(loss):
        facts.append([(f"loss {short(loss)}", PLAIN)])
    missing = 0 if height is None else len(picture) + 1 - height
    if missing > 0:
        facts.append([(f"{missing} lines do not fit below", DIM)])
    return Lines(wrap_phrases(facts, surface.width)[:1]) + picture


def play(
    console: Console,
    surface: Surface,
    frames: Sequence[tuple[HeadMaps, float | None]],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Show frames of (maps, loss), about five a second and for 20 seconds at most, on a terminal that can animate.

    Raises: KeyboardInterrupt after tidying up; the frame of that moment stays.
    """
    environ = os.environ if environ is None else environ
    with Live(console=console, auto_refresh=False, vertical_overflow="crop", redirect_stdout=False) as live:
        number = 0
        try:
            for number in chosen_frames(len(frames)):
                started = clock()
                maps, loss = frames[number]
                width, height = terminal_size(console.file, environ)
                console.size = (width, height)  # type: ignore[assignment]
                picture = frame_picture(maps, loss, replace(surface, width=width), height=height)
                live.update(picture, refresh=True)
                if number < len(frames) - 1:
                    sleep(max(0.0, SECONDS - (clock() - started)))
        finally:
            maps, loss = frames[number]
            live.update(frame_picture(maps, loss, replace(surface, width=console.width)))  # what stays is whole
