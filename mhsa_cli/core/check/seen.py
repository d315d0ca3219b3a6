"""What a law saw."""

from __future__ import annotations

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
    return f"at [{', '.join(map(str, where))}] it is {float(found[where]):.4g}, wanted {float(wanted[where]):.4g}"
