"""What a search looks at: one output of a block, and the variants that it may be."""

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
from mhsa_cli.check.tensors import worst

TOLERANCE = 1e-5  # of the largest output, at least 1


@dataclass(frozen=True, slots=True)
class Match:
    """A variant that gives the block's output: the reading of its weights, the forms, its faults, how closely."""

    layout: Layout
    spec: Spec
    faults: tuple[str, ...]
    difference: float
    factor: float | None = None  # of the scores, where it is none of the usual ones


@dataclass
class Case:
    """One call of a block: the readings of its weights, x and y, and which bases are right for it."""

    layouts: Sequence[Layout]
    likely: int  # so many of the layouts, the first ones, are those that the block bears out
    x: Tensor
    y: Tensor
    positions: Tensor | None = None
    masks: Sequence[str] = ("causal", "none")
    ropes: Sequence[str] = ("none", *ROPES)
    frames: Sequence[str] = FRAMES
    turned: bool = False  # it must rotate: positions without effect are a fault
    _references: dict[int, Reference] = field(default_factory=dict)

    @cached_property
    def tolerance(self) -> float:
        """Give how far an output may be off and still count as equal."""
        finite = self.y[self.y.isfinite()]
        return TOLERANCE * max(1.0, float(finite.abs().max()) if finite.numel() else 1.0)

    @cached_property
    def _usable(self) -> bool:
        return int(self.y.isfinite().sum()) * 10 >= self.y.numel()

    def reference(self, at: int) -> Reference:
        """Give the reference with the weights read in one way."""
        if at not in self._references:
            self._references[at] = Reference(self.layouts[at].roles, self.x, self.positions)
        return self._references[at]

    def difference(self, at: int, spec: Spec) -> float:
        """Compare the block's output with a variant's; infinite if it cannot be computed."""
        try:
            made = self.reference(at).output(spec)
        except (RuntimeError, ValueError, IndexError):
            return math.inf  # a reading whose shapes do not go with this form
        if made.shape != self.y.shape or not self._usable:
            return math.inf
        return worst(made, self.y)

    def match(self, at: int, spec: Spec, *faults: str, factor: float | None = None) -> Match | None:
        """Compare with a variant that has some faults beside those of its reading; None if it is another output."""
        off, layout = self.difference(at, spec), self.layouts[at]
        return Match(layout, spec, with_layout(layout, faults), off, factor) if off <= self.tolerance else None

    def bases(self, at: int) -> Iterator[Spec]:
        """List the right forms that a reading of the weights may have, the simplest first."""
        roles = self.layouts[at].roles
        frames = [f for f in self.frames if roles.norm is not None or "norm" not in f]
        ropes = [r for r in self.ropes if r == "none" or roles.q.size(1) % 2 == 0]
        for frame, rope, mask in itertools.product(frames, ropes, self.masks):
            yield Spec(frame=frame, rope=rope, mask=mask)


def fault_forms(layout: Layout, base: Spec, turned: bool, names: Iterable[str] = FAULTS) -> Iterator[tuple[str, Form]]:
    """List the faults that make sense on a base, with their forms."""
    for name in names:
        if name.startswith("names_") and not layout.named:
            continue
        if name in ("names_k_v_swapped", "names_turned") and layout.paths.get("k") == layout.paths.get("v", ""):
            continue  # both orders of one matrix for keys and values are right
        for form in FAULTS[name].forms:
            if "rope" in form and (not turned or base.rope != "none"):
                continue  # a wrong rotation takes the place of none: once is enough
            if base.mask == "none" and ("mask" in form or form.get("fill", "inf") != "inf"):
                continue
            if "out" in form and layout.roles.out is None and form["out"] != "transposed":
                continue
            if form.get("split") == "groups_tiled" and layout.roles.k.size(0) in (1, layout.roles.n_heads):
                continue
            if form.get("out") == "without_bias" and layout.roles.out_bias is None:
                continue
            yield name, form


def with_layout(layout: Layout, faults: Sequence[str]) -> tuple[str, ...]:
    """Add the faults that a reading of the weights implies to those of the forms."""
    if {"split_by_view", "merge_by_view"} <= set(faults):
        faults = [*(f for f in faults if f not in ("split_by_view", "merge_by_view")), "split_and_merge_by_view"]
    own = [layout.fault] if layout.fault else []
    if layout.roles.out is None and layout.roles.n_heads > 1:
        own.append("out_missing")
    return (*own, *faults)


def together(a: Form, b: Form) -> Form | None:
    """Join two forms; None if they want one stage to be two things."""
    return None if any(a[stage] != b[stage] for stage in a.keys() & b.keys()) else {**a, **b}


def inputs(batch_size: int, seq_len: int, d_model: int, seed: int) -> Tensor:
    """Draw an input (B, T, D) in float64."""
    return torch.randn(batch_size, seq_len, d_model, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
