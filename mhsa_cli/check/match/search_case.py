"""One output of a block, and the variants of the reference that it may equal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from mhsa_cli.check.faults import FAULTS, Form
from mhsa_cli.check.read.reference import FRAMES, ROPES, Reference, Spec
from mhsa_cli.check.read.weight_layouts import Layout
from mhsa_cli.check.tensors import max_difference, scale_of

TOLERANCE = 1e-5  # of the largest output, at least 1


@dataclass(frozen=True, slots=True)
class Match:
    """A variant with the block's output: the layout of the weights, the spec, its faults, and the difference."""

    layout: Layout
    spec: Spec
    faults: tuple[str, ...]
    difference: float
    factor: float | None = None  # of the scores, if it is none of the usual ones


@dataclass
class Case:
    """One call of a block: the layouts of its weights, x and y, and the right forms it may have."""

    layouts: Sequence[Layout]
    n_confirmed: int  # number of layouts that the block confirms; they come first
    x: Tensor
    y: Tensor
    positions: Tensor | None = None
    masks: Sequence[str] = ("causal", "none")
    ropes: Sequence[str] = ("none", *ROPES)
    frames: Sequence[str] = FRAMES
    must_rotate: bool = False  # positions without effect are a fault
    _references: dict[int, Reference] = field(default_factory=dict)

    @cached_property
    def tolerance(self) -> float:
        """Largest difference that counts as equal."""
        return TOLERANCE * scale_of(self.y[self.y.isfinite()])

    @cached_property
    def _usable(self) -> bool:
        return int(self.y.isfinite().sum()) * 10 >= self.y.numel()

    def reference(self, at: int) -> Reference:
        """Reference with the weights in one layout."""
        if at not in self._references:
            self._references[at] = Reference(self.layouts[at].roles, self.x, self.positions)
        return self._references[at]

    def difference(self, at: int, spec: Spec) -> float:
        """Difference between the block's output and a variant's; infinite if that cannot be computed."""
        try:
            output = self.reference(at).output(spec)
        except (RuntimeError, ValueError, IndexError):
            return math.inf  # a layout whose shapes do not fit this form
        if output.shape != self.y.shape or not self._usable:
            return math.inf
        return max_difference(output, self.y)

    def match(self, at: int, spec: Spec, *faults: str, factor: float | None = None) -> Match | None:
        """Compare with a variant that has these faults and those of its layout; None if the outputs differ."""
        off, layout = self.difference(at, spec), self.layouts[at]
        return Match(layout, spec, add_layout_faults(layout, faults), off, factor) if off <= self.tolerance else None

    def bases(self, at: int) -> Iterator[Spec]:
        """List the right forms for a layout, the simplest first."""
        roles = self.layouts[at].roles
        frames = [f for f in self.frames if roles.norm is not None or "norm" not in f]
        ropes = [r for r in self.ropes if r == "none" or roles.q.size(1) % 2 == 0]
        for frame, rope, mask in itertools.product(frames, ropes, self.masks):
            yield Spec(frame=frame, rope=rope, mask=mask)


def fault_forms(layout: Layout, base: Spec, rotates: bool, names: Iterable[str] = FAULTS) -> Iterator[tuple[str, Form]]:
    """List the faults that a base can have, with their forms."""
    for name in names:
        if name.startswith("names_") and not layout.named:
            continue
        if name in ("names_k_v_swapped", "names_turned") and layout.paths.get("k") == layout.paths.get("v", ""):
            continue  # both orders of one matrix for keys and values are right
        for form in FAULTS[name].forms:
            if "rope" in form and (not rotates or base.rope != "none"):
                continue  # a wrong rotation replaces no rotation: once is enough
            if base.mask == "none" and ("mask" in form or form.get("fill", "inf") != "inf"):
                continue
            if "out" in form and layout.roles.out is None and form["out"] != "transposed":
                continue
            if form.get("split") == "groups_tiled" and layout.roles.k.size(0) in (1, layout.roles.n_heads):
                continue
            if form.get("out") == "without_bias" and layout.roles.out_bias is None:
                continue
            yield name, form


def add_layout_faults(layout: Layout, faults: Sequence[str]) -> tuple[str, ...]:
    """Add the faults that a layout implies to those of the forms."""
    if {"split_by_view", "merge_by_view"} <= set(faults):
        faults = [*(f for f in faults if f not in ("split_by_view", "merge_by_view")), "split_and_merge_by_view"]
    implied = [layout.fault] if layout.fault else []
    if layout.roles.out is None and layout.roles.n_heads > 1:
        implied.append("out_missing")
    return (*implied, *faults)


def combine(a: Form, b: Form) -> Form | None:
    """Join two forms; None if they disagree on a stage."""
    return None if any(a[stage] != b[stage] for stage in a.keys() & b.keys()) else {**a, **b}


def random_input(batch_size: int, seq_len: int, d_model: int, seed: int) -> Tensor:
    """Draw an input (B, T, D) in float64."""
    return torch.randn(batch_size, seq_len, d_model, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
