"""How far a sweep is: what a chunk of trials says of itself while it trains, wherever it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """A chunk that begins: its number, its group's name, its trials, and the steps each makes, from `first` on."""

    chunk: int
    group: str
    trials: int
    steps: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class ChunkProgress:
    """How far a chunk is: steps that each trial has made, and trials whose results are written.

    `losses` has each trial's mean loss (nats) since it was told last, empty if it is not told now; `training` and
    `writing` are the seconds spent so far.
    """

    chunk: int
    step: int
    losses: Sequence[float] = ()
    training: float = 0.0
    written: int = 0
    writing: float = 0.0
