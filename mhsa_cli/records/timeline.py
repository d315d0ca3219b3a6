"""Heads over training: snapshots of their scores, and when each formed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mhsa_cli.records.heads import OfHead
from mhsa_cli.records.labels import Distance


@dataclass(frozen=True, slots=True)
class HeadSnapshot(OfHead):
    """One head in a snapshot: lifts by target, `distance` of the best offset, lifts of all `offsets` by distance.

    A snapshot without maps holds the lifts alone, and the values of the user's `own_scores`, by name.
    """

    lifts: Mapping[str, float]
    distance: Distance | None
    entropy: float | None = None
    uniformity: float | None = None
    confidence: float | None = None
    positionality: float | None = None
    offsets: Mapping[Distance, float] = field(default_factory=dict)
    own_scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """Every head after `step` updates; `maps` are of the probe's first row, in percent, pooled by `pool` if long.

    Most snapshots have no maps. `in_context` is the model's in-context score: the mean loss of the last quarter of the
    scored positions of a row minus that of the first quarter. `own_uniform`: a uniform head's values of own scores.
    """

    step: int
    heads: Sequence[HeadSnapshot]
    maps: Sequence[Sequence[Sequence[Sequence[int]]]] = ()
    pool: int = 1
    in_context: float | None = None
    own_uniform: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interval:
    """Two steps, or two numbers of steps, that hold a third one between them, which was not measured exactly."""

    low: int
    high: int

    def minus(self, other: Interval) -> Interval:
        """Return the interval of the difference."""
        return Interval(self.low - other.high, self.high - other.low)


@dataclass(frozen=True, slots=True)
class LossDrop:
    """The largest drop of the loss: where it lies, with its interval, and its size in `nats`."""

    step: int
    nats: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class HeadHistory(OfHead):
    """One head's lift over training on the `target` of its final `label`, at `distance` if that is an offset.

    `final` is the mean of its last lifts. Of it, the lift stays at half or more from the `onset` on, a step between two
    snapshots; the `rise` is from 20% to 80%, `width` its length. `lead` is how long before the largest drop of the loss
    the rise was. None if it did not happen or was not measured.
    """

    target: str
    label: str
    steps: Sequence[int]
    lifts: Sequence[float | None]
    final: float | None = None
    onset: Interval | None = None
    rise: Interval | None = None
    width: int | None = None
    lead: Interval | None = None
    distance: Distance | None = None
