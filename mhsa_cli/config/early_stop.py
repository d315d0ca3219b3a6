"""`train.stop_at`: a goal of the evaluation, as accuracy=0.99 or loss=0.1."""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple

MEASURES = ("accuracy", "loss")
EXAMPLE = "accuracy=0.99 (or above), or loss=0.1 (or below)"
_FORM = re.compile(r"\s*(accuracy|loss)\s*(=|>=|<=|>|<|:)\s*(\S+)\s*", re.ASCII)


class Goal(NamedTuple):
    """An accuracy that is reached from below, or a loss (nats) that is reached from above."""

    measure: Literal["accuracy", "loss"]
    value: float

    def holds(self, loss: float, accuracy: float) -> bool:
        """Return whether an evaluation has reached it."""
        return accuracy >= self.value if self.measure == "accuracy" else loss <= self.value


def read_goal(text: str) -> Goal | None:
    """Read MEASURE=NUMBER; None if it is no such text, or no number that can be reached."""
    found = _FORM.fullmatch(text)
    if found is None or found[2] != "=":
        return None
    try:
        value = float(found[3])
    except ValueError:
        return None
    measure: Literal["accuracy", "loss"] = "accuracy" if found[1] == "accuracy" else "loss"
    most = 1.0 if measure == "accuracy" else math.inf
    return Goal(measure, value) if 0 < value <= most and math.isfinite(value) else None


def meant(text: str) -> str | None:
    """Return the right form of a goal written with another sign; None if none is meant."""
    found = _FORM.fullmatch(text)
    right = None if found is None else f"{found[1]}={found[3]}"
    return right if right is not None and read_goal(right) else None
