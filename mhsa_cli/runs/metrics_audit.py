"""Consistency of metrics.jsonl: its records are redundant, so damage shows even without a hash."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from mhsa_cli.errors import DamageError
from mhsa_cli.records.training import EpochRecord, EvalRecord, StepRecord
from mhsa_cli.runs.listing import ENDED_BY
from mhsa_cli.runs.metrics import KINDS, MetricRecord, Records, record_from_dict


class Rhythm(NamedTuple):
    """How often a run logs: a step record every `log_every` steps; before step `since` the interval is unknown."""

    log_every: int
    steps_per_epoch: int
    since: int = 0


class Curve:
    """Checks metrics.jsonl line by line: `problem` is the first damage; up to `line` and `step` it is right."""

    def __init__(self, records: Records, rhythm: Rhythm | None) -> None:
        self.rhythm = rhythm
        self.problem, self.line, self.step = "", 0, 0
        self.steps = self.epochs = self.last_step = 0
        self.last_eval: EvalRecord | None = None
        self._losses, self._sum = 0, 0.0  # of the steps of an epoch
        self._epoch_line = self._epoch_step = 0  # where the epoch began
        try:
            for content in records:
                self._number = records.number
                if content.get("kind") in KINDS:
                    self._add(record_from_dict(content))
                if self.problem:
                    break
                self.line = self._number
        except DamageError as error:  # without the path of the file, which the caller has
            parts = error.parts[2:] if error.path == records.path else error.parts
            self.problem = "".join(map(str, parts))

    def _add(self, record: MetricRecord) -> None:
        if self.line == 0 and record.step > 1 and self.rhythm is not None:  # the earlier part of the curve was deleted
            self.epochs = (record.step - 1) // self.rhythm.steps_per_epoch
        if record.step < self.step:
            self.problem = f"step {record.step} comes after step {self.step}"
        elif isinstance(record, StepRecord):
            self._add_step(record)
        elif isinstance(record, EvalRecord):
            if self.last_eval is not None and record.step == self.last_eval.step:
                self.problem = f"step {record.step} was evaluated twice"
            self.last_eval = record
        else:
            self._add_epoch(record)
        if not self.problem:
            self.step = record.step

    def _add_step(self, record: StepRecord) -> None:
        after, last = record.step, self.last_step
        known = last if self.rhythm is None else max(last, self.rhythm.since)  # from here on the interval is known
        interval = self.rhythm.log_every if self.rhythm is not None and known else 1
        if after == last:
            self.problem = f"step {after} comes twice"
        elif self.rhythm is not None and after - known > interval:
            self.problem = f"steps {known + 1} to {after - 1} are missing"
        elif not 0 <= record.accuracy <= 1:
            self.problem = f"step {after}: its accuracy is {record.accuracy}"
        self.steps, self.last_step = self.steps + 1, after
        self._losses, self._sum = self._losses + 1, self._sum + record.loss

    def _add_epoch(self, record: EpochRecord) -> None:
        evaluated = self._eval_of(record.step)
        epoch = f"epoch {record.epoch}"
        size = None if self.rhythm is None else self.rhythm.steps_per_epoch
        whole = size is not None and self._losses == size and math.isfinite(self._sum)
        if record.epoch != self.epochs + 1:
            self.problem = f"{epoch} comes after epoch {self.epochs}"
        elif size is not None and record.step != record.epoch * size:
            self.problem = f"{epoch} ends at step {record.step}, not {record.epoch * size}"
        elif evaluated is None or not _same(evaluated, record.eval_loss, record.eval_accuracy):
            self.problem = f"{epoch}: its evaluation is not that of step {record.step}"
        elif whole and not math.isclose(self._sum / self._losses, record.loss, rel_tol=1e-9):
            self.problem = f"{epoch}: its loss is not the mean of its steps"
            self.line, self.step = self._epoch_line, self._epoch_step  # one of its lines is wrong: unknown which
        self.epochs, self._losses, self._sum = record.epoch, 0, 0.0
        if not self.problem:
            self._epoch_line, self._epoch_step = self._number, record.step

    def _eval_of(self, step: Any) -> EvalRecord | None:
        return self.last_eval if self.last_eval is not None and self.last_eval.step == step else None

    def end_problem(self, info: Mapping[str, Any], newest: int | None) -> str:
        """Compare the end with run.json and the step of the newest checkpoint; empty if they agree."""
        step, status, final = info.get("step"), info.get("status"), info.get("final")
        if status not in ("finished", "stopped") or not isinstance(step, int):
            early = newest is not None and self.rhythm is not None and newest - self.last_step >= self.rhythm.log_every
            return f"it ends at step {self.last_step}, before the checkpoint of step {newest}" if early else ""
        planned = status == "finished" and info.get(ENDED_BY) is None
        gap = 0 if self.rhythm is None or planned else self.rhythm.log_every - 1
        if not 0 <= step - self.last_step <= gap:
            return f"it ends at step {self.last_step}, the run at step {step}"
        if self.rhythm is not None and self.epochs != step // self.rhythm.steps_per_epoch:
            return f"it has {self.epochs} epochs, the run {step // self.rhythm.steps_per_epoch}"
        figures = final if isinstance(final, dict) else {}
        last = self._eval_of(figures.get("step"))
        if last is not None and not _same(last, figures.get("eval_loss"), figures.get("eval_accuracy")):
            return f"the evaluation of step {last.step} is not the one in run.json"
        return ""


def _same(record: EvalRecord, loss: Any, accuracy: Any) -> bool:
    return all(a == b or (a != a and b != b) for a, b in ((record.loss, loss), (record.accuracy, accuracy)))
