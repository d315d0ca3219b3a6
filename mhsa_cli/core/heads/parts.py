"""What a head attends to besides the target of its label: targets that take a part of the weight left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from mhsa_cli.core.heads.targets import lift_of

LEFT, WEIGHT = 0.2, 0.1  # the least part of the weight left, above that of a uniform head, and of all weight


class PartOfHead(NamedTuple):
    """A further target by name, its keys without those before it (B or 1, T, T), and its part of the weight left."""

    name: str
    keys: Tensor
    part: float


def further_targets(weights: Tensor, first: Tensor, others: Mapping[str, Tensor], visible: Tensor) -> list[PartOfHead]:
    """Find, the largest first, the targets that take a part of the weight that those before them leave.

    `weights` (B, T, T) are one head's, `first` the keys of its label, `others` those of other targets, (B or 1, T, T).
    Only queries count that have a key of the first.
    """
    taken, found, rest = first & visible, [], dict(others)
    counted = taken.any(-1)
    while rest:
        parts = {
            name: _part(weights, keys & visible & ~taken, visible & ~taken, counted) for name, keys in rest.items()
        }
        name = max(parts, key=lambda one: parts[one][0])
        part, weight = parts[name]
        if part < LEFT or weight < WEIGHT:
            break
        keys = rest.pop(name) & visible & ~taken
        found.append(PartOfHead(name, keys, part))
        taken = taken | keys
    return found


def _part(weights: Tensor, keys: Tensor, left: Tensor, counted: Tensor) -> tuple[float, float]:
    """Compute the part of the weight left that lies on keys, above that of a uniform head, and the weight itself.

    Over the counted queries that have such a key, but not only such keys.
    """
    size, room = keys.sum(-1), left.sum(-1)  # (B or 1, T)
    queries = ((size > 0) & (size < room) & counted).expand(len(weights), -1)
    if not bool(queries.any()):
        return 0.0, 0.0
    on, remaining = ((weights * where).sum(-1)[queries] for where in (keys, left))
    part = on.sum() / remaining.sum().clamp(min=1e-9)
    uniform = (size / room.clamp(min=1)).expand(len(weights), -1)[queries].mean()
    return float(lift_of(part, uniform)), float(on.mean())
