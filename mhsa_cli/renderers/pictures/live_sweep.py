"""A sweep as it trains: median curves redrawn on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from rich.console import Console
from rich.text import Text

from mhsa_cli.records.sweep import ChunkPlan, ChunkProgress
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import DIM
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.kit.ticks import short
from mhsa_cli.renderers.pictures.live_view import FREE_COLUMNS, LiveView, duration
from mhsa_cli.renderers.pictures.small_multiples import ROWS, Curve, quartile_curve, small_multiples

LEAST_ROWS, LEAST_COLUMNS = ROWS + 6, 28  # a smaller terminal gets the status line only
PANEL = 56  # columns of a single panel at most: it is a glance, not the result
_LINE_SECONDS, _LINES = 10.0, 20  # between two plain lines: never less, and never less than so much of the whole time


@dataclass(slots=True)
class _Running:
    plan: ChunkPlan
    step: int
    written: int = 0
    training: float = 0.0
    writing: float = 0.0
    points: list[tuple[int, Sequence[float]]] = field(default_factory=list)

    @property
    def work(self) -> int:
        """Steps made here, over all trials of the chunk."""
        return self.plan.trials * (self.step - self.plan.first)


class LiveSweep(LiveView):
    """The view of a running sweep; `begin`, `add` and `end` take the events of its chunks.

    `trials` of which `done` had a result before; `work` counts the steps that all missing trials have to make; `slots`
    chunks train at the same time.
    Example: `with LiveSweep(console, surface, trials=64, done=0, work=64 * 360, slots=1) as view: view.begin(plan)`
    """

    pause = 0.5

    def __init__(
        self,
        console: Console,
        surface: Surface,
        *,
        trials: int,
        done: int,
        work: int,
        slots: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(console, surface, clock=clock)
        self._trials, self._done, self._work, self._slots = trials, done, max(1, work), slots
        self._running: dict[int, _Running] = {}
        self._ended = 0.0, 0.0, 0.0, 0.0  # the sums of the chunks that ended
        self._told = -math.inf  # when the last plain line was written

    def begin(self, plan: ChunkPlan) -> None:
        """Add a chunk that begins."""
        self._running[plan.chunk] = _Running(plan, plan.first)
        self._show()

    def add(self, progress: ChunkProgress) -> None:
        """Add the progress of a running chunk."""
        chunk = self._running.get(progress.chunk)
        if chunk is None:
            return
        chunk.step = max(chunk.step, progress.step)
        chunk.written, chunk.training, chunk.writing = progress.written, progress.training, progress.writing
        if progress.losses:
            chunk.points.append((progress.step, progress.losses))
        self._show()

    def end(self, chunk: int, done: int) -> None:
        """Remove a chunk that ended with results for `done` trials."""
        ended, sums = self._running.pop(chunk), self._ended
        self._done += done
        work = done * (ended.plan.steps - ended.plan.first)
        self._ended = sums[0] + work, sums[1] + ended.training, sums[2] + ended.written, sums[3] + ended.writing
        self._show(ended=True)

    def receive(self, message: ChunkProgress | str) -> None:
        """Take a message of a chunk: its progress, or a text to print."""
        self.say(message) if isinstance(message, str) else self.add(message)

    def _show(self, ended: bool = False) -> None:
        self.redraw_if_due()
        if self._live is None:
            now = self.clock()
            told = max(self._told, self._started)
            pause = max(_LINE_SECONDS, (now - self._started) / _LINES)
            if (ended and self._done == self._trials) or now - told >= pause:
                self._told = now
                self.say("  ".join(self._facts()))

    def picture(self, width: int, height: int) -> Lines:
        """Compose the curves of the running groups and the status line."""
        width = max(16, width - FREE_COLUMNS)
        status = self.status(self._facts(), self._sums()[0] / self._work, width)
        if height < LEAST_ROWS or width < LEAST_COLUMNS:
            return status
        curves = self._curves()
        side = max(1, min(len(curves), width // LEAST_COLUMNS))
        last = max((chunk.plan.steps for chunk in self._running.values()), default=1)
        surface = replace(self.surface, width=min(width, PANEL) if side == 1 else width)
        shown = small_multiples(curves[:side], surface, side=side, last=last)
        if len(curves) > side:
            shown.append(Text.styled(f"and {len(curves) - side} more groups in training", DIM))
        return shown + status if len(shown) < height else status

    def _curves(self) -> list[Curve]:
        """Compute each running group's median and quartiles over its trials."""
        groups: dict[str, dict[int, list[float]]] = {}
        for chunk in self._running.values():
            steps = groups.setdefault(chunk.plan.group, {})
            for step, losses in chunk.points:
                steps.setdefault(step, []).extend(losses)
        found: list[Curve] = []
        for name, steps in groups.items():
            size = sum(c.plan.trials for c in self._running.values() if c.plan.group == name)
            found.append(
                quartile_curve(f"{name} {self.surface.glyphs.times}{size}" if name else f"{size} trials", steps)
            )
        return found

    def _facts(self) -> list[str]:
        """List the facts of the status line, the most important first."""
        facts, left = [f"trials {self._done}/{self._trials}"], self._left()
        if left:
            facts.append(f"{duration(left)} left")
        running = list(self._running.values())
        training = [chunk for chunk in running if not chunk.written]
        if training:
            steps = sorted({chunk.step for chunk in training})
            text = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]}{self.surface.glyphs.dash}{steps[-1]}"
            facts.append(f"step {text}/{max(chunk.plan.steps for chunk in training)}")
        if len(running) > len(training):
            written = [chunk for chunk in running if chunk.written]
            facts.append(f"written {sum(c.written for c in written)}/{sum(c.plan.trials for c in written)}")
        latest = [loss for c in training for loss in (c.points[-1][1] if c.points else ()) if math.isfinite(loss)]
        if latest:
            facts.append(f"loss {short(median(latest))}")
        return [*facts, f"{duration(self.clock() - self._started)} elapsed"]

    def _left(self) -> float | None:
        """Estimate the seconds left: missing steps and results at their cost so far."""
        done, training, written, writing = self._sums()
        missing = self._trials - self._done - sum(chunk.written for chunk in self._running.values())
        if missing <= 0:
            return 0.0
        if not done:
            return None
        a_result = writing / written if written else 0.0
        sizes = [chunk.plan.trials for chunk in self._running.values()]
        side = min(self._slots, max(1, math.ceil(missing / max(sizes)))) if sizes else self._slots
        return (max(0, self._work - done) * training / done + missing * a_result) / side

    def _sums(self) -> tuple[float, float, float, float]:
        """Sum over all chunks: steps and their seconds, results written and their seconds."""
        running = [(c.work, c.training, c.written, c.writing) for c in self._running.values()]
        work, training, written, writing = map(sum, zip(self._ended, *running, strict=True))
        return work, training, written, writing
