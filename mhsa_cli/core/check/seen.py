"""What a law saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from mhsa_cli.core.check.case import TOLERANCE
from mhsa_cli.core.check.tensors import worst


class Seen(NamedTuple):
    """Whether a law holds (None: it cannot be asked), its worst figure, and what was seen, in words."""

    passed: bool | None
    worst: float | None
    says: str


def close(found: Tensor, wanted: Tensor, says: str) -> Seen:
    """Compare two outputs; `says` is what is wrong if they differ, and where they differ most is added."""
    off = worst(found, wanted)
    limit = TOLERANCE * max(1.0, float(wanted.abs().nan_to_num().max()) if wanted.numel() else 1.0)
    if off <= limit:
        return Seen(True, off, "")
    return Seen(
        False, off, f"{says}: {place}" if (place := first_difference(found, wanted, limit)) and says else says or place
    )


def first_difference(found: Tensor, wanted: Tensor, limit: float) -> str:
    """Name the first place at which two tensors differ, with both numbers."""
    if found.shape != wanted.shape:
        return f"{tuple(found.shape)} where {tuple(wanted.shape)} is wanted"
    bad = ~((found - wanted).abs() <= limit)
    where = tuple(int(i) for i in bad.nonzero()[0])
    return f"at [{', '.join(map(str, where))}] it is {both(float(found[where]), float(wanted[where]))}"


def both(found: float, wanted: float) -> str:
    """Write two different figures with as many digits as tell them apart; of close ones, how far they are apart."""
    for digits in range(4, 9):
        one, other = f"{found:.{digits}g}", f"{wanted:.{digits}g}"
        if one != other:
            return f"{one}, wanted {other}"
    return f"{found:.4g}, {abs(found - wanted):.1g} off"


def listed(names: Sequence[str], most: int = 2) -> str:
    """List names, of many the first ones and how many more there are."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
