"""What a figure is asked for, before matplotlib is loaded: its width, its theme and its parts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mhsa_cli.errors import UsageError

FORMATS = ("pdf", "svg", "png")  # the endings of figures
INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72}
NARROWEST, WIDEST = 1.5, 40.0  # inches
# The parts of each figure, from above; the last ones of a timeline and a comparison are of sweeps.
RUN_PARTS = ("curve", "lifts", "context", "maps", "effects")
HEADS_PARTS = ("maps", "effects")
TIMELINE_PARTS = ("curve", "lifts", "context", "onsets")
COMPARE_PARTS = ("curve", "costs", "steps", "loss")
SWEEP_PARTS = ("curve", "success", "steps", "loss", "onsets")
_WIDTH = re.compile(r"\s*(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})\s*(in|cm|mm|pt)?\s*", re.ASCII)


class Theme(StrEnum):
    """The background of a figure."""

    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True, slots=True)
class Page:
    """The width of a figure in inches, by default the text of a paper in one column, its theme, and its one part."""

    width: float = 5.5
    theme: Theme = Theme.LIGHT
    only: str | None = None


def inches(text: str) -> float | None:
    """Read a width such as 3.3in, 84mm, 8.4cm or 240pt; None if it is none, or out of range."""
    found = _WIDTH.fullmatch(text)
    width = math.nan if found is None else float(found[1]) * INCHES[found[2] or "in"]
    return width if NARROWEST <= width <= WIDEST else None


def wanted_width() -> str:
    """Say which widths there are."""
    return f"{NARROWEST:g}in to {WIDEST:g}in, as 3.3in, 84mm, 8.4cm or 240pt"


def need_matplotlib(ways: Sequence[str] = ()) -> None:
    """Raise UsageError if matplotlib is missing; `ways` are other ways out."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        hint = "; or ".join(["pip install 'mhsa-cli[plots]'", *ways])
        raise UsageError("figures need matplotlib", hint, "no-matplotlib") from error
