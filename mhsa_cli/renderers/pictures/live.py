"""Training as it happens: a curve that redraws itself on a terminal, about twenty plain lines anywhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType

from rich.console import Console

from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.records.thinning import Thinned
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.records.training import EpochRecord, EvalRecord, Record, Series, StepRecord
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.kit.ticks import percents, short, with_unit
from mhsa_cli.renderers.pictures.curve import Level, loss_curve
from mhsa_cli.renderers.pictures.live_heads import beside_or_below, by_lift
from mhsa_cli.renderers.pictures.live_view import FREE_COLUMNS, LiveView, duration
from mhsa_cli.text import Head

LEAST_ROWS = 10  # a terminal with fewer rows gets the status line only
LOG_LINES = 20
PATIENCE = 12  # the least time between two pictures with maps, in times that it takes to draw one


class LiveTraining(LiveView):
    """The view of one training run; `add` takes every record of the engine.

    `levels` are the losses of chance and of baselines; `history` is the curve of a resumed run so far.
    `trained` returns the tokens trained on so far and the seconds spent on them. `maps` returns the attention maps of
    this moment, which are then drawn beside the curve or below it; None while there are none.
    Example: `with LiveTraining(console, surface, total_steps=360) as view: view.add(record)`
    """

    pause = 0.2

    def __init__(
        self,
        console: Console,
        surface: Surface,
        *,
        total_steps: int,
        levels: Sequence[Level] = (),
        trained: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0),
        history: Sequence[Series] = (),
        maps: Callable[[], HeadMaps | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(console, surface, clock=clock)
        self._total, self._levels, self._trained = max(1, total_steps), levels, trained
        self._measured, self._speed = trained(), 0.0  # when last asked: tokens and seconds, and tokens a second
        self._train = Thinned(point for one in history if one.role != "eval" for point in one.points)
        self._eval = Thinned(point for one in history if one.role == "eval" for point in one.points)
        self._first_step = self._train.last_step
        self._last: StepRecord | None = None
        self._pending: StepRecord | None = None
        self._pending_eval: EvalRecord | None = None
        self._maps, self._lifts = maps, dict[Head, float]()
        self._around: dict[int, int] = {}  # by columns: rows of a curve besides those of its plot
        self._drawn = self._started  # the first picture waits for some steps

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is None:
            if self._pending is None and self._last is not None and self._last.step < self._total:
                self._pending = self._last  # stopped early: print the last step
            self._write_pending()
        super().__exit__(kind, error, trace)

    def add(self, record: Record) -> None:
        """Add a record; the picture is redrawn five times a second at most, or a line printed at about twenty steps."""
        if isinstance(record, StepRecord):
            self._train.add(record.step, record.loss)
            self._last = record
            if self._live is None:
                self._write_pending()
                if self._is_due(record.step):
                    self._pending = record
                return
        elif isinstance(record, EvalRecord):
            self._eval.add(record.step, record.loss)
            self._pending_eval = record
        elif isinstance(record, SnapshotRecord):
            self._lifts = {head.address: max(head.lifts.values(), default=0.0) for head in record.heads}
        elif (  # an epoch without evaluation has NaN
            isinstance(record, EpochRecord) and self._eval.last_step < record.step and not math.isnan(record.eval_loss)
        ):
            self.add(EvalRecord(record.step, record.eval_loss, record.eval_accuracy))
        self.redraw_if_due()

    def series(self) -> list[Series]:
        """Return the curve so far; a long one is thinned, but keeps every peak."""
        found = [self._train.series("train", "train"), self._eval.series("eval", "eval")]
        return [one for one in found if one.steps]

    def redraw(self) -> None:
        """Draw now; maps of large models are drawn less often, so that watching takes little time."""
        before = self.clock()
        super().redraw()
        if self._maps is not None:
            self.pause = max(type(self).pause, PATIENCE * (self.clock() - before))

    def picture(self, width: int, height: int) -> Lines:
        """Compose the curve and the status line for a terminal of `width` columns and `height` rows."""
        width = max(16, width - FREE_COLUMNS)
        status = self.status(self._facts(), self._step / self._total, width)
        if height < LEAST_ROWS:
            return status
        shown = None
        if self._maps is not None and (maps := self._maps()) is not None:
            heads, room = by_lift(maps, self._lifts), height - 1
            for _ in range(2):  # once more where a label came since the last curve
                shown = beside_or_below(self._curve, self._rows_around, maps, heads, self.surface, width, room)
                if shown is None or len(shown) <= room:
                    break
        if shown is None:
            plot = min(12, height - 6)
            shown = self._curve(width, plot)
            if (over := len(shown) + 1 - height) > 0:  # labels below the axis
                shown = self._curve(width, plot - over)
        return shown + status

    def _curve(self, width: int, height: int) -> Lines:
        """Draw the curve in so many columns, its plot in so many rows."""
        drawn = loss_curve(
            self.series() or [Series("train", [], [])],
            replace(self.surface, width=width),
            height=height,
            levels=self._levels,
            x_max=self._total,
            y_max=self._top(),
        )
        self._around[width] = len(drawn) - height
        return drawn

    def _rows_around(self, width: int) -> int:
        """Return the rows of the last curve of this width besides those of its plot."""
        if width not in self._around:
            self._curve(width, 3)
        return self._around[width]

    def _top(self) -> float | None:
        """Choose the top of the frame by the first losses, so that it does not jump; at most twice the top level."""
        first = [value for _, value in self._train.points[:20] if value is not None and math.isfinite(value)]
        if not first:
            return None
        limit = max((level.value for level in self._levels), default=None)
        top = max([*first, limit or 0.0]) * 1.05
        return top if limit is None else min(top, 2 * limit)

    @property
    def _step(self) -> int:
        return self._last.step if self._last else self._first_step

    def _facts(self) -> list[str]:
        """List the facts of the status line, the most important first."""
        seconds, done = self.clock() - self._started, self._step - self._first_step
        facts = [f"step {self._step}/{self._total}"]
        if self._last is not None:
            facts += [f"loss {short(self._last.loss)}", f"acc {percents(self._last.accuracy)}"]
        if done > 0 and seconds > 0:
            facts.append(f"{duration(seconds / done * max(0, self._total - self._step))} left")
            if speed := self._tokens_a_second():
                facts.append(f"{with_unit(speed, 1000)} tok/s")
            facts.append(f"{duration(seconds)} elapsed")
        return facts

    def _tokens_a_second(self) -> float:
        """Measure the speed since the last call; 0 if unknown."""
        now = self._trained()
        tokens, seconds = now[0] - self._measured[0], now[1] - self._measured[1]
        if tokens > 0 and seconds > 0:
            self._measured, self._speed = now, tokens / seconds
        return self._speed

    def _is_due(self, step: int) -> bool:
        return step >= self._total or step * LOG_LINES // self._total > (step - 1) * LOG_LINES // self._total

    def _write_pending(self) -> None:
        """Print the pending line, which waited for the evaluation of its step."""
        record, self._pending = self._pending, None
        if record is None:
            return
        facts = [f"step={record.step}/{self._total}", f"loss={short(record.loss)}", f"acc={record.accuracy:.3f}"]
        if self._pending_eval is not None:
            when = "" if self._pending_eval.step == record.step else f"@{self._pending_eval.step}"
            facts.append(f"eval_loss{when}={short(self._pending_eval.loss)}")
            facts.append(f"eval_acc{when}={self._pending_eval.accuracy:.3f}")
            self._pending_eval = None
        if speed := self._tokens_a_second():
            facts.append(f"tok/s={speed:.0f}")
        self.say(" ".join(facts))
