"""A picture that is redrawn in place; nothing is drawn where no line can be redrawn."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.segment import ControlCode, ControlType
from rich.text import Text

from mhsa_cli.renderers.kit.console import Surface, terminal_size
from mhsa_cli.renderers.kit.palette import DIM, PLAIN, line_style
from mhsa_cli.renderers.kit.text_lines import Lines, assemble
from mhsa_cli.text import escape

FREE_COLUMNS = 4  # the echo of ^C would wrap a full line and leave a stale row
_BAR, _LEAST_BAR = 24, 8


class LiveView:
    """A picture redrawn for the current size of the terminal; with `stays` the last one is left there.

    `pause` is the least time between two pictures, in seconds. A surface that cannot animate shows nothing.
    """

    pause = 0.0

    def __init__(
        self,
        console: Console,
        surface: Surface,
        *,
        stays: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console, self.surface, self.clock = console, surface, clock
        self._stays = stays
        self._live: Live | None = None
        self._started, self._drawn = clock(), -math.inf
        self._columns: list[int] = []  # of each line that is shown now

    def __enter__(self) -> Self:
        self._started = self.clock()
        if self.surface.animate:
            self._live = Live(
                console=self.console,
                auto_refresh=False,
                transient=not self._stays,
                vertical_overflow="crop",
                redirect_stdout=False,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            self._fit_terminal()
            if not self._stays:
                live.update(Text(""), refresh=False)
            live.stop()

    def say(self, text: str) -> None:
        """Print a message above the picture."""
        self._fit_terminal()
        self.console.print(Text(escape(text)), soft_wrap=True)

    def redraw_if_due(self) -> None:
        """Draw, unless the last picture is newer than `pause`."""
        if self._live is not None and self.clock() - self._drawn >= self.pause:
            self.redraw()

    def redraw(self) -> None:
        """Draw now."""
        if self._live is None:
            return
        self._drawn = self.clock()
        width, height = self._fit_terminal()
        picture = Lines(self.picture(width, height)[:height])
        self._live.update(picture, refresh=True)
        self._columns = [line.cell_len for line in picture]

    def _fit_terminal(self) -> tuple[int, int]:
        """Take the terminal's size as it is now; if it has become narrower, wipe the rows of wrapped lines too.

        Where a terminal cuts lines instead of wrapping them, that many rows above the picture are wiped with it.
        """
        size = width, _ = terminal_size(self.console.file, os.environ)
        if self._live is not None and self._columns and size != tuple(self.console.size):
            rows = sum(max(1, math.ceil(columns / width)) for columns in self._columns)
            wipe: list[ControlCode] = [(ControlType.CARRIAGE_RETURN,), (ControlType.ERASE_IN_LINE, 2)]
            up: list[ControlCode] = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)]
            back: list[ControlCode] = [(ControlType.CURSOR_DOWN, len(self._columns) - 1)] * (len(self._columns) > 1)
            self.console.control(Control(*wipe, *up * (rows - 1), *back))
        self.console.size = size  # type: ignore[assignment]
        return size

    def picture(self, width: int, height: int) -> Lines:
        """Compose the picture for a terminal of `width` columns and `height` rows."""
        raise NotImplementedError

    def status(self, facts: list[str], share: float, width: int) -> Lines:
        """Write a bar, full by `share`, and as many facts as have room."""
        while len(facts) > 1 and len("  ".join(facts)) + 2 + _LEAST_BAR > width:
            facts.pop()
        text = "  ".join(facts)
        bar = max(0, min(_BAR, width - len(text) - 2))
        full = round(bar * min(1.0, share))
        heavy, light = ("━", "─") if self.surface.glyphs.braille else ("#", "-")
        pieces = [(heavy * full, line_style(0, self.surface.depth)), (light * (bar - full), DIM)]
        return Lines([assemble([*pieces, ("  " if bar else "", PLAIN), (text[:width], PLAIN)])])


def duration(seconds: float) -> str:
    """Write seconds as 0:02, 12:05 or 3:12:05."""
    if not math.isfinite(seconds) or seconds > 359_999:
        return "?"
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
