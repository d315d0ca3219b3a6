"""Find the variant of the reference with the block's output: the right one, or one with known faults.

Every layout of the weights is compared with the right form first, then with each fault, then with pairs, then with more
of the common faults at once. Few faults are preferred to many.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from mhsa_cli.check.faults import FAULTS, Form
from mhsa_cli.check.read.reference import FRAMES, ROPES, Reference, Spec
from mhsa_cli.check.read.weight_layouts import Layout
from mhsa_cli.check.tensors import abs_difference, max_difference, scale_of

TOLERANCE = 1e-5  # of the largest output, at least 1
SECONDS = 3.0  # of CPU time, for the search of several faults at once
WITH_CONSTANT = ("out_missing", "merge_by_view", "softmax_over_queries", "mask_no_effect")  # beside an odd scale
# Stages of the common faults, any number of which is searched at once.
EARLY, LATE = ("scale", "softmax", "mask"), ("split", "merge", "out")
# Searched alone and in pairs only: two cannot be computed for many specs at once, the others are rare.
ALONE = ("batch_folded_wrong", "output_transposed", "softmax_over_batch", "softmax_over_all", "softmax_is_sigmoid",
         "mask_fill_weak", "groups_tiled", "scale_d_model_unrooted", "scale_d_model_multiplied")  # fmt: skip
FaultSet = tuple[tuple[str, ...], Form]  # some faults, and the form that they make together


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


def find_right(case: Case) -> Match | None:
    """Find a layout and a base under which the block is right."""
    for at, layout in enumerate(case.layouts):
        if layout.fault is not None or (layout.roles.out is None and layout.roles.n_heads > 1):
            continue
        for base in case.bases(at):
            unrotated = case.must_rotate and base.rope == "none"
            if not unrotated and (match := case.match(at, base)):
                return match
    return None


def find_faults(cases: Sequence[Case]) -> tuple[Case, Match] | None:
    """Find the fewest faults that explain one of the cases, or None if no known ones do within the time."""
    until = time.process_time() + SECONDS
    searches: list[Callable[[Case], Match | None]] = [
        lambda case: _single_fault(case, range(case.n_confirmed)),
        lambda case: _constant(case, (), until),
        lambda case: find_common_faults(case, until),
        lambda case: _single_fault(case, range(case.n_confirmed, len(case.layouts))),
        lambda case: _two_faults(case, until),
        lambda case: _constant(case, WITH_CONSTANT, until),
    ]
    for search in searches:
        for case in cases:
            if match := search(case):
                return case, match
    return None


def _single_fault(case: Case, layouts: range) -> Match | None:
    for at in layouts:  # the faults of the layout alone
        for base in case.bases(at) if add_layout_faults(case.layouts[at], ()) else ():
            if match := case.match(at, base):
                return match
    for at in layouts:
        for base in case.bases(at):
            for name, form in fault_forms(case.layouts[at], base, len(case.ropes) > 1):
                if match := case.match(at, base._replace(**form), name):
                    return match
    return None


def _constant(case: Case, beside: Sequence[str], until: float) -> Match | None:
    """Fit the scale of the scores: alone, or beside another fault."""
    for at, layout in enumerate(case.layouts[: case.n_confirmed]):
        for base in case.bases(at):
            forms = fault_forms(layout, base, False, beside) if beside else [("", Form())]
            for extra, form in forms:
                if time.process_time() > until:
                    return None
                factor = _fit(case, at, base._replace(**form))
                names = ("scale_constant", *([extra] if extra else []))
                spec = base._replace(**form, scale=f"x{factor!r}")
                if match := case.match(at, spec, *names, factor=factor):
                    return match
    return None


def _fit(case: Case, at: int, base: Spec) -> float:
    """Fit the scale of the scores by a grid and a golden-section search."""

    def off(log: float) -> float:
        return case.difference(at, base._replace(scale=f"x{math.exp(log)!r}"))

    step = math.log(1e5) / 32
    best = min((math.log(1e-3) + i * step for i in range(33)), key=off)
    low, high = best - step, best + step
    if not math.isfinite(off(best)):
        return 1.0
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(40):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        if off(a) < off(b):
            high = b
        else:
            low = a
    return float(f"{math.exp((low + high) / 2):.6g}")  # 0.2, not 0.20000000013


def _two_faults(case: Case, until: float) -> Match | None:
    for at, layout in enumerate(case.layouts[: case.n_confirmed]):
        for base in case.bases(at):
            forms = list(fault_forms(layout, base, len(case.ropes) > 1))
            for (name, form), (other, more) in itertools.combinations(forms, 2):
                both = None if name == other else combine(form, more)
                if both is None or set(both) == set(form) or set(both) == set(more):
                    continue
                if match := case.match(at, base._replace(**both), name, other):
                    return match
                if time.process_time() > until:
                    return None
    return None


def find_common_faults(case: Case, until: float) -> Match | None:
    """Search all combinations of the common faults, those with the fewest late faults first."""
    bases = [(at, base, *_fault_sets(case, at, base)) for at in range(case.n_confirmed) for base in case.bases(at)]
    for count in range(len(LATE) + 1):  # number of faults of the split, the merge and the output
        found: list[Match] = []
        for at, base, early, lates in bases:
            for late in lates:
                if time.process_time() > until:
                    return _fewest(found)
                if len(late[0]) == count:
                    found += _compare_at_once(case, at, base, early, late)
        if found:
            return _fewest(found)
    return None


def _fewest(found: Sequence[Match]) -> Match | None:
    return min(found, key=lambda match: len(match.faults), default=None)


def _fault_sets(case: Case, at: int, base: Spec) -> tuple[list[FaultSet], list[FaultSet]]:
    """List the sets of common faults up to the weights, and those after them."""
    stages: dict[str, list[FaultSet]] = {stage: [((), {})] for stage in (*EARLY, *LATE)}
    for name, form in fault_forms(case.layouts[at], base, False):
        changed = list(form.keys() - {"fill"}) or ["mask"]  # the fill of masked scores belongs to the mask
        if form and len(changed) == 1 and changed[0] in stages and name not in ALONE and form.get("fill") != "added":
            stages[changed[0]].append(((name,), form))
    return _combinations(stages[stage] for stage in EARLY), _combinations(stages[stage] for stage in LATE)


def _combinations(stages: Iterable[Sequence[FaultSet]]) -> list[FaultSet]:
    """Combine one set of each stage, except those that disagree on a stage."""
    found: list[FaultSet] = [((), {})]
    for stage in stages:
        found = [((*names, *more), both) for names, form in found for more, other in stage
                 if (both := combine(form, other)) is not None]  # fmt: skip
    return found


def _compare_at_once(case: Case, at: int, base: Spec, early: Sequence[FaultSet], late: FaultSet) -> list[Match]:
    """Compare all forms of the scores and weights at once, with one way to split, merge and project."""
    specs = [base._replace(**form, **late[1]) for _, form in early]
    try:
        outputs = case.reference(at).outputs(specs)
    except (RuntimeError, ValueError, IndexError):
        return []
    if outputs.shape[1:] != case.y.shape:
        return []
    off = abs_difference(outputs, case.y).flatten(1).amax(1).tolist()
    return [Match(case.layouts[at], specs[n], add_layout_faults(case.layouts[at], (*early[n][0], *late[0])), off[n])
            for n in range(len(specs)) if off[n] <= case.tolerance]  # fmt: skip
