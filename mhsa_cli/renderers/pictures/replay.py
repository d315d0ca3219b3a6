"""Attention maps over training: a frame for each snapshot, redrawn in place and steered by keys; the last one stays."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.records.thinning import evenly
from mhsa_cli.renderers.kit.console import MIN_WIDTH, Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN
from mhsa_cli.renderers.kit.text_lines import Lines, Phrase, wrap_phrases
from mhsa_cli.renderers.kit.ticks import short, step_text
from mhsa_cli.renderers.pictures.fitted_maps import Fitter, draw_fitted, scale_line
from mhsa_cli.renderers.pictures.heatmap import head_maps
from mhsa_cli.renderers.pictures.live_view import FREE_COLUMNS, LiveView
from mhsa_cli.text import Head

SECONDS, LONGEST = 0.2, 20.0  # a frame, and all of them
SPEEDS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
KEYS = ("q", " ", "+", "=", "-", "l", "up", "down", "left", "right", "home", "end")
FILM_WIDTH, FILM_ROWS, FILM_SECONDS, FILM_END = 108, 36, 0.15, 3.0  # of a file; its last frame stays for FILM_END
AFTER = 4  # rows that stay free below a frame: for those two, or for what is printed at the end and the next prompt

Frame = tuple[HeadMaps, float | None]  # maps and loss
Keys = Callable[[float], str]  # waits so many seconds for a key; "" if none came


def frame_picture(
    frame: Frame, surface: Surface, height: int, heads: Sequence[Head] | None = None, page: int = 0
) -> tuple[Lines, int]:
    """Draw one frame in at most `height` rows: step and loss, and under them the maps; also the number of its pages.

    Maps have captions and tokens where these fit; else smaller cells, and in the end one layer at a time, or fewer
    heads: those of `page`.
    """
    maps, loss = frame
    surface = replace(surface, width=max(MIN_WIDTH, surface.width - FREE_COLUMNS))
    shown = [head.address for head in maps.heads if heads is None or head.address in heads]
    facts: list[Phrase] = [[(f"step {step_text(maps.step)}", BOLD)]]
    if loss is not None and not math.isnan(loss):
        facts.append([(f"loss {short(loss)}", PLAIN)])
    whole = head_maps(maps, surface, heads=shown)
    if len(whole) < height:
        return _heading(facts, surface) + whole, 1
    pages = Fitter(maps, surface).pages(shown, surface.width, height - 1)
    if not pages:
        return _heading([*facts, "too few rows or columns for a map"], surface), 1
    fit = pages[page % len(pages)]
    if len(pages) > 1:
        layers = sorted({head.layer for head in fit.heads})
        part = f"L{layers[0]}" if len(layers) == 1 else f"L{layers[0]} to L{layers[-1]}"
        facts.append([(f"{part}, {len(fit.heads)} of {len(shown)} heads", PLAIN)])
    drawn = draw_fitted(fit, maps, surface, height - 1)
    return scale_line(fit, surface, surface.width, facts) + drawn, len(pages)


def film(frames: Sequence[Frame], heads: Sequence[Head] | None = None) -> tuple[list[Lines], list[float]]:
    """Draw frames for a file, as many as a replay has: the pictures, and the seconds of each."""
    surface = Surface(width=FILM_WIDTH, depth="truecolor")
    pictures = [frame_picture(frame, surface, FILM_ROWS, heads)[0] for frame in evenly(frames, int(LONGEST / SECONDS))]
    return pictures, [*[FILM_SECONDS] * (len(pictures) - 1), FILM_END]


def _heading(phrases: Sequence[Phrase], surface: Surface) -> Lines:
    return Lines(wrap_phrases(phrases, surface.width, DIM)[:1])


@dataclass
class Position:
    """Where a replay of `count` frames is, and what a key changes: the frame, the page of heads, speed and pause."""

    count: int
    pages: int = 1
    place: int = 0
    page: int = 0
    speed: int = SPEEDS.index(1.0)
    paused: bool = False
    steered: bool = False  # then it does not end by itself
    ended: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it has played to its end, untouched."""
        return self.place == self.count - 1 and not self.steered

    def tick(self) -> None:
        """Go to the next frame after the time of one; at the last one end, or wait for a key."""
        if self.paused:
            return
        if self.place < self.count - 1:
            self.place += 1
        else:
            self.paused, self.ended = True, not self.steered

    def press(self, key: str) -> None:
        """Do what a key asks for; unknown ones change nothing."""
        if key not in KEYS:
            return
        self.steered = True
        if key == "q":
            self.ended = True
        elif key == " ":
            self.paused = not self.paused
            if not self.paused and self.place == self.count - 1:
                self.place = 0
        elif key in ("+", "="):
            self.speed = min(self.speed + 1, len(SPEEDS) - 1)
        elif key == "-":
            self.speed = max(self.speed - 1, 0)
        elif key in ("l", "down", "up"):
            self.page = (self.page + (-1 if key == "up" else 1)) % self.pages
        else:
            self.paused, last = True, self.count - 1
            moved = {"left": self.place - 1, "right": self.place + 1, "home": 0, "end": last}[key]
            self.place = min(max(moved, 0), last)


class _Replay(LiveView):
    """Frames, of which one is shown, with a row for the position and, while keys are read, one for the keys."""

    def __init__(self, console: Console, surface: Surface, frames: Sequence[Frame], heads: Sequence[Head] | None):
        super().__init__(console, surface, stays=True)
        self.frames, self.heads = frames, heads
        self.position = Position(len(frames))
        self.steers = self.final = False

    def picture(self, width: int, height: int) -> Lines:
        """Compose the frame and what steers it; at the end the frame alone."""
        at = self.position
        surface = replace(self.surface, width=width)
        shown, at.pages = frame_picture(self.frames[at.place], surface, height - AFTER, self.heads, at.page)
        if self.final or height <= AFTER:
            return shown
        room = width - FREE_COLUMNS
        facts = [f"{at.place + 1}/{at.count}", f"speed {SPEEDS[at.speed]:g}{self.surface.glyphs.times}"]
        bar = self.status([*facts, *["paused"] * at.paused], at.place / max(1, at.count - 1), room)
        return shown + [Text()] * (height - AFTER - len(shown) > 0) + bar + (self._keys(room) if self.steers else [])

    def _keys(self, width: int) -> Lines:
        """Name the keys, as many as fit in one row, the most important first."""
        arrows = self.surface.glyphs.braille
        keys = ["q quit", "space pause", *["l other heads"] * (self.position.pages > 1)]
        keys += ["←→ step" if arrows else "left/right step", "+- speed", "home/end"]
        return Lines(wrap_phrases(keys, width, DIM, gap=2)[:1])


def play(
    console: Console,
    surface: Surface,
    frames: Sequence[Frame],
    *,
    heads: Sequence[Head] | None = None,
    keys: Keys | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Show frames, about five a second and for 20 seconds at most, on a terminal that can animate.

    `keys` steers it; once a key was pressed, it ends by `q` alone. The last frame shown stays, within the terminal.
    Raises: KeyboardInterrupt after tidying up.
    """
    chosen = evenly(frames, int(LONGEST / SECONDS))
    if not chosen:
        return
    with _Replay(console, surface, chosen, heads) as view:
        at, view.steers = view.position, keys is not None
        try:
            drawn: Position | None = None
            while not at.ended:
                started = clock()
                if drawn != at:
                    view.redraw()
                    drawn = replace(at)
                pause = SECONDS if at.paused else SECONDS / SPEEDS[at.speed]
                wait = 0.0 if at.is_over else max(0.0, pause - (clock() - started))
                if key := keys(wait) if keys is not None else "":
                    at.press(key)
                    drawn = None if key == "resize" else drawn
                    continue
                if keys is None and wait:
                    sleep(wait)
                at.tick()
        finally:
            view.final = True
            view.redraw()
