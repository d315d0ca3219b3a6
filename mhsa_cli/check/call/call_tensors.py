"""What a call takes beside x: a causal mask, angles of a rotation, a padding mask, and the ways to write each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Mask:
    """A way to write the causal mask: the meaning of its values, a key of `sentences.MASKS`, and its axes."""

    meaning: str
    axes: str

    def make(self, T: int, B: int) -> Tensor:
        """Write the mask for T tokens and B rows."""
        keep = torch.ones(T, T, dtype=torch.bool).tril()
        mask = {
            "true_attends": keep,
            "true_blocks": ~keep,
            "added": torch.zeros(T, T, dtype=torch.float64).masked_fill(~keep, -math.inf),
            "one_attends": keep.to(torch.int64),
            "one_blocks": (~keep).to(torch.int64),
            "counts": torch.arange(1, T + 1),
        }[self.meaning]
        sizes = {"B": B, "T": T, "1": 1}
        return mask.expand([sizes[axis] for axis in self.axes.strip("()").split(", ")]).clone()


MEANINGS = ("true_attends", "true_blocks", "added", "one_attends", "one_blocks")
AXES = ("(T, T)", "(1, T, T)", "(1, 1, T, T)", "(B, 1, T, T)", "(B, T, T)")


@dataclass(frozen=True, slots=True)
class Angles:
    """A way to write the rotations that a call takes: their axes before the features, and how these are laid out.

    `real`: angles in place of complex numbers; `swapped`: sines before cosines, in a pair.
    """

    axes: str
    layout: str = ""  # "halves" or "pairs", if there is one angle for each feature
    real: bool = False
    swapped: bool = False

    def describe(self) -> str:
        """Write the shape."""
        return f"({self.axes}, d) in {self.layout}" if self.layout else f"({self.axes}, d/2)"

    def tables(self, T: int, d: int, x: Tensor) -> dict[str, Tensor | tuple[Tensor, Tensor]]:
        """Tabulate cosines, sines, both as a pair, and both as complex numbers or the angles, by kind of parameter."""
        rate = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
        angle = torch.outer(2 * torch.arange(T, dtype=torch.float64), rate)
        if self.layout == "halves":
            angle = torch.cat([angle, angle], -1)
        elif self.layout == "pairs":
            angle = angle.repeat_interleave(2, -1)
        angle = angle.view(*[T if axis == "T" else 1 for axis in self.axes.split(", ")], -1)
        real = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        turns = torch.polar(torch.ones_like(angle), angle).to(real.to_complex())
        pair = (sin, cos) if self.swapped else (cos, sin)
        return {"cos": cos, "sin": sin, "cos_sin": pair, "freqs": angle.to(x.dtype) if self.real else turns}


@dataclass(frozen=True, slots=True)
class Padding:
    """A padding mask that hides nothing: the value of all its elements, and its axes; or the length of each row."""

    value: bool | int | float | None
    axes: str

    def make(self, T: int, B: int) -> Tensor:
        """Write the mask for T tokens and B rows."""
        shape = [{"B": B, "T": T, "1": 1}[axis] for axis in self.axes.split(", ")]
        return torch.full(shape, T if self.value is None else self.value)


ANGLES = [Angles(axes, layout) for axes in ("T", "1, T", "1, 1, T", "1, T, 1") for layout in ("", "halves", "pairs")]
REAL_ANGLES = [replace(one, real=True) for one in ANGLES]  # the angles themselves, for what is called freqs
ANGLE_KINDS = ("freqs", "cos", "sin", "cos_sin")
PADDINGS = [
    Padding(value, axes) for axes in ("B, T", "B, 1, 1, T", "B, 1, T") for value in (True, False, 1, 0, 1.0, 0.0)
]
LENGTHS = Padding(None, "B")
