"""Progress in one line that redraws itself: on a terminal, or in a notebook."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from mhsa_cli.jobs.guest import warn
from mhsa_cli.records.sweep import ChunkPlan, ChunkProgress
from mhsa_cli.records.training import Record, StepRecord
from mhsa_cli.renderers.kit.console import can_animate, is_tty
from mhsa_cli.renderers.kit.ticks import percents, short

PAUSE = 0.2  # seconds between two texts
WIDTH = 79


class StatusLine:
    """A line that is written over, and gone in the end; nothing anywhere else, or with `quiet`."""

    def __init__(self, quiet: bool) -> None:
        self._write = None if quiet else _writer()
        self._shown = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._write is not None and self._shown:
            self._write("")

    def show(self, facts: Sequence[str]) -> None:
        """Write a new text, unless the last one is very new."""
        now = time.monotonic()
        if self._write is not None and now - self._shown >= PAUSE:
            self._write("  ".join(facts)[:WIDTH])
            self._shown = now


def _writer() -> Callable[[str], object] | None:
    """Return what writes over its last text: in a notebook's output, else on stderr if that is a terminal."""
    if type(sys.stdout).__module__.startswith("ipykernel."):
        from IPython import display

        make: Any = display.DisplayHandle  # which has no types
        handle, shown = make(), list[str]()

        def redraw(text: str) -> None:
            draw = handle.update if shown else handle.display
            shown.append(text)
            draw({"text/plain": text}, raw=True)

        return redraw
    if not (is_tty(sys.stderr) and can_animate(os.environ, tty=True)):
        return None
    stream = sys.stderr
    return lambda text: (stream.write(f"\r{text}\x1b[K"), stream.flush())


class TrainingLine(StatusLine):
    """The progress of a training of so many steps."""

    def __init__(self, total: int, quiet: bool) -> None:
        super().__init__(quiet)
        self._total = total

    def add(self, record: Record) -> None:
        """Take a record of the training."""
        if isinstance(record, StepRecord):
            loss, accuracy = short(record.loss), percents(record.accuracy)
            self.show([f"step {record.step}/{self._total}", f"loss {loss}", f"acc {accuracy}"])


class SweepLine(StatusLine):
    """The progress of a sweep; messages become warnings."""

    def __init__(self, quiet: bool, *, trials: int, done: int, started: int, work: int, slots: int) -> None:
        super().__init__(quiet)
        self._trials, self._done = trials, done
        self._steps: dict[int, tuple[int, int]] = {}

    def receive(self, message: ChunkProgress | str) -> None:
        """Take a message from a chunk."""
        if isinstance(message, str):
            self.say(message)
        elif message.chunk in self._steps:
            self._steps[message.chunk] = message.step, self._steps[message.chunk][1]
            self._draw()

    def begin(self, plan: ChunkPlan) -> None:
        """Add a chunk."""
        self._steps[plan.chunk] = plan.first, plan.steps
        self._draw()

    def end(self, chunk: int, done: int) -> None:
        """Remove a chunk, of which `done` trials have a result."""
        del self._steps[chunk]
        self._done += done
        self._draw()

    def say(self, text: str) -> None:
        """Make a message a warning."""
        warn(text)

    def _draw(self) -> None:
        steps = [f"step {step}/{total}" for step, total in self._steps.values()]
        self.show([f"trials {self._done}/{self._trials}", *steps])
