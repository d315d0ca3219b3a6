"""Attention maps over training: a frame for each snapshot, redrawn in place; the last one stays."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Console

from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.renderers.kit.console import MIN_WIDTH, Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM
from mhsa_cli.renderers.kit.text_lines import Lines, Phrase, wrap_phrases
from mhsa_cli.renderers.kit.ticks import short, step_text
from mhsa_cli.renderers.pictures.heatmap import head_maps
from mhsa_cli.renderers.pictures.live_view import FREE_COLUMNS, LiveView

SECONDS, LONGEST = 0.2, 20.0  # a frame, and all of them


def chosen_frames(count: int) -> list[int]:
    """Choose the frames to show: all, or evenly as many as time allows, with the first and the last."""
    most = int(LONGEST / SECONDS)
    if count <= most:
        return list(range(count))
    return [round(number * (count - 1) / (most - 1)) for number in range(most)]


def frame_picture(maps: HeadMaps, loss: float | None, surface: Surface, *, height: int | None = None) -> Lines:
    """Draw one frame for a terminal: step and loss, and under them the maps.

    With `height` rows, the first line names the number of lines cut off at the bottom.
    """
    surface = replace(surface, width=max(MIN_WIDTH, surface.width - FREE_COLUMNS))
    picture = head_maps(maps, surface)
    facts: list[Phrase] = [[(f"step {step_text(maps.step)}", BOLD)]]
    if loss is not None and not math.isnan(loss):
        facts.append(f"loss {short(loss)}")
    missing = 0 if height is None else len(picture) + 1 - height
    if missing > 0:
        facts.append([(f"{missing} lines do not fit below", DIM)])
    return Lines(wrap_phrases(facts, surface.width)[:1]) + picture


class _Replay(LiveView):
    """Frames of (maps, loss), of which the one numbered `number` is shown."""

    frames: Sequence[tuple[HeadMaps, float | None]] = ()
    number, whole = 0, False

    def picture(self, width: int, height: int) -> Lines:
        """Compose the frame; what stays is whole."""
        surface = replace(self.surface, width=width)
        return frame_picture(*self.frames[self.number], surface, height=None if self.whole else height)


def play(
    console: Console,
    surface: Surface,
    frames: Sequence[tuple[HeadMaps, float | None]],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Show frames of (maps, loss), about five a second and for 20 seconds at most, on a terminal that can animate.

    Raises: KeyboardInterrupt after tidying up; the frame of that moment stays.
    """
    with _Replay(console, surface, stays=True, clock=clock) as view:
        view.frames = frames
        try:
            for view.number in chosen_frames(len(frames)):
                started = clock()
                view.redraw()
                if view.number < len(frames) - 1:
                    sleep(max(0.0, SECONDS - (clock() - started)))
        finally:
            view.whole = True
            view.redraw()
