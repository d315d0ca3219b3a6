"""When a training ends before its last step: `train.stop_at` and `train.patience`, as functions of its evaluations."""

from __future__ import annotations

import math
from typing import NamedTuple

from mhsa_cli.config.early_stop import read_goal
from mhsa_cli.config.schema import TrainConfig
from mhsa_cli.records.training import EndedBy, EvalRecord


class Waiting(NamedTuple):
    """The lowest evaluation loss up to `step`, and the evaluations since then. That of step 0 does not count."""

    step: int = 0
    best: float = math.inf
    evaluations: int = 0

    def after(self, record: EvalRecord) -> Waiting:
        """Count an evaluation, each step once: a resume evaluates its first step again."""
        if record.step <= self.step:
            return self
        if record.loss < self.best:
            return Waiting(record.step, record.loss)
        return Waiting(record.step, self.best, self.evaluations + 1)


def ended_by(train: TrainConfig, record: EvalRecord, before: Waiting) -> EndedBy | None:
    """Return the setting by which a training ends with an evaluation; `before` is what it waited for until then."""
    goal = None if train.stop_at is None else read_goal(train.stop_at)
    if record.step and goal is not None and goal.holds(record.loss, record.accuracy):
        return "stop_at"
    if train.patience is not None and before.after(record).evaluations >= train.patience:
        return "patience"
    return None
