"""Find the variant of the reference with the block's output: the right one, or one with known faults.

Every layout of the weights is compared with the right form first, then with each fault, then with pairs, then with more
of the common faults at once. Few faults are preferred to many.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from mhsa_cli.check.faults import FAULTS, Form
from mhsa_cli.check.read.reference import FRAMES, MOST_NUMBERS, ROPES, Reference, Roles, Spec
from mhsa_cli.check.read.weight_layouts import Layout
from mhsa_cli.check.tensors import abs_difference, max_difference, scale_of

TOLERANCE = 1e-5  # of the largest output, at least 1
TRIES = 12_000  # variants that are compared in a search for faults; a verdict depends on no clock
AT_ONCE = 10  # so many variants that are computed together count as one,
LARGE = 20_000  # and one of so many attention weights as two
GRID, ZOOMS = 33, 11  # factors of the scores that are tried at a time, and how often around the best
WITH_CONSTANT = ("out_missing", "merge_by_view", "softmax_over_queries", "mask_no_effect")  # beside an odd scale
# Stages of the common faults, any number of which is searched at once.
EARLY, LATE = ("scale", "softmax", "mask"), ("split", "key", "merge", "out")
OF_WEIGHTS = {"scale", "mask", "fill", "softmax"}  # stages that change the weights alone
# Searched alone and in pairs only: two cannot be computed for many specs at once, the others are rare.
ALONE = ("batch_folded_wrong", "output_transposed", "softmax_over_batch", "softmax_over_all", "softmax_is_sigmoid",
         "mask_fill_weak", "mask_sees_two", "mask_hides_self_after_first", "groups_tiled", "groups_repeated_wrong",
         "groups_merged_wrong", "split_by_view_q", "split_by_view_k", "split_by_view_v", "split_by_view_qk",
         "split_by_view_kv", "scale_d_model_unrooted", "scale_d_model_multiplied")  # fmt: skip
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
class Tries:
    """What is left of the tries of a search."""

    left: int

    def take(self, case: Case, count: int) -> bool:
        """Use up those of a number of variants computed together, more for large ones; False if none are left."""
        self.left -= 1 + count * (1 + case.numbers // LARGE) // AT_ONCE
        return self.left >= 0


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
    rates: Sequence[str] = ("10000",)  # bases of a rotation, the likeliest first
    _references: dict[int, Reference] = field(default_factory=dict)

    @cached_property
    def tolerance(self) -> float:
        """Largest difference that counts as equal."""
        return TOLERANCE * scale_of(self.y[self.y.isfinite()])

    def with_measured(self, measured: Sequence[Layout]) -> Case:
        """Make a case in which measured layouts come first, instead of those that only the shapes allow."""
        others = self.layouts[: self.n_confirmed] if self.n_confirmed < len(self.layouts) else ()
        layouts = [*measured, *others]
        return replace(self, layouts=layouts, n_confirmed=len(layouts), _references={})

    @cached_property
    def _usable(self) -> bool:
        return int(self.y.isfinite().sum()) >= self.x.size(-1)  # one token may be all that is finite

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

    @cached_property
    def numbers(self) -> int:
        """How many attention weights a variant has."""
        return self.x.size(0) * self.layouts[0].roles.n_heads * self.x.size(1) ** 2

    def differences(self, at: int, specs: Sequence[Spec], late: Spec) -> list[float]:
        """Differences between the block's output and many variants'; `late` as in `Reference.outputs`."""
        most = max(1, MOST_NUMBERS // self.numbers)
        return [off for n in range(0, len(specs), most) for off in self._differences(at, specs[n : n + most], late)]

    def _differences(self, at: int, specs: Sequence[Spec], late: Spec) -> list[float]:
        none = [math.inf] * len(specs)
        try:
            outputs = self.reference(at).outputs(specs, late)
        except (RuntimeError, ValueError, IndexError):
            return none
        if outputs.shape[1:] != self.y.shape or not self._usable:
            return none
        finite = bool(self.y.isfinite().all())  # the usual case, and faster: a NaN in a variant is then a difference
        off = (outputs - self.y).abs() if finite else abs_difference(outputs, self.y)
        return off.flatten(1).amax(1).nan_to_num(nan=math.inf).tolist()

    def match(self, at: int, spec: Spec, *faults: str, factor: float | None = None) -> Match | None:
        """Compare with a variant that has these faults and those of its layout; None if the outputs differ."""
        off, layout = self.difference(at, spec), self.layouts[at]
        return Match(layout, spec, add_layout_faults(layout, faults), off, factor) if off <= self.tolerance else None

    def bases(self, at: int, rates: Sequence[str] | None = None) -> Iterator[Spec]:
        """List the right forms for a layout, the simplest first; `rates` of a rotation, or only the likeliest."""
        roles = self.layouts[at].roles
        frames = [f for f in self.frames if roles.norm is not None or "norm" not in f]
        ropes = [r for r in self.ropes if r == "none" or roles.q.size(1) % 2 == 0]
        first = self.rates[:1]
        turned = [(rope, base) for rope in ropes for base in (rates or first if rope != "none" else first)]
        for frame, (rope, base), mask in itertools.product(frames, turned, self.masks):
            yield Spec(frame=frame, rope=rope, rates=base, mask=mask)


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
            if any(one.startswith("groups_") for one in form.values()) and not _groups_matter(form, layout.roles):
                continue
            if form.get("out") == "without_bias" and layout.roles.out_bias is None:
                continue
            yield name, form


def _groups_matter(form: Form, roles: Roles) -> bool:
    """Whether a wrong form of shared keys and values differs from the right one, and from that of plain heads."""
    groups = roles.k.size(0)
    return groups < roles.n_heads if form.get("split", "").startswith("groups_over") else 1 < groups < roles.n_heads


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
        for base in case.bases(at, case.rates):
            unrotated = case.must_rotate and base.rope == "none"
            if not unrotated and (match := case.match(at, base)):
                return match
    return None


def find_one_fault(cases: Sequence[Case]) -> tuple[Case, Match] | None:
    """Find the one fault that explains one of the cases, in the layouts that the block confirms."""
    for case in cases:
        if match := _single_fault(case, range(case.n_confirmed)):
            return case, match
    return None


def find_several_faults(cases: Sequence[Case]) -> tuple[Case, Match] | None:
    """Find a scale, several faults at once, or one in a layout that the block does not confirm, within the tries."""
    tries = Tries(TRIES)
    # Layouts are confirmed by the numbers that make values: not those of a block that projects these with others.
    projected = [name for name, fault in FAULTS.items() if any("project" in form for form in fault.forms)]
    searches: list[Callable[[Case], Match | None]] = [
        lambda case: _single_fault(case, _unconfirmed(case), tries, projected),
        lambda case: _constant(case, (), tries),
        lambda case: find_common_faults(case, tries),
        lambda case: _single_fault(case, _unconfirmed(case), tries),
        lambda case: _two_faults(case, tries),
        lambda case: _constant(case, WITH_CONSTANT, tries),
    ]
    for search in searches:
        for case in cases:
            if match := search(case):
                return case, match
    return None


def _unconfirmed(case: Case) -> range:
    return range(case.n_confirmed, len(case.layouts))


def _single_fault(
    case: Case, layouts: range, tries: Tries | None = None, names: Iterable[str] = FAULTS
) -> Match | None:
    for at in layouts:  # the faults of the layout alone
        for base in case.bases(at) if add_layout_faults(case.layouts[at], ()) else ():
            if match := case.match(at, base):
                return match
    for at in layouts:
        for base in case.bases(at):
            if match := single_fault(case, at, base, tries, names):
                return match
    return None


def single_fault(
    case: Case, at: int, base: Spec, tries: Tries | None = None, names: Iterable[str] = FAULTS
) -> Match | None:
    """Find the one fault of the table that, in a right form, explains the block; within the tries, if they count."""
    for name, form in fault_forms(case.layouts[at], base, len(case.ropes) > 1, names):
        if tries is not None and not tries.take(case, 0):
            return None
        if match := case.match(at, base._replace(**form), name):
            return match
    return None


def with_fitted_scale(case: Case, at: int, base: Spec, *faults: str) -> Match | None:
    """Compare with a spec whose scores have the factor that fits best."""
    factor = _fit(case, at, base)
    return case.match(at, base._replace(scale=f"x{factor!r}"), "scale_constant", *faults, factor=factor)


def _constant(case: Case, beside: Sequence[str], tries: Tries) -> Match | None:
    """Fit the scale of the scores: alone, or beside another fault."""
    for at, layout in enumerate(case.layouts[: case.n_confirmed]):
        for base in case.bases(at):
            forms = fault_forms(layout, base, False, beside) if beside else [("", Form())]
            for extra, form in forms:
                if not tries.take(case, GRID * ZOOMS):
                    return None
                if match := with_fitted_scale(case, at, base._replace(**form), *([extra] if extra else [])):
                    return match
    return None


def _fit(case: Case, at: int, base: Spec) -> float:
    """Fit the scale of the scores by a grid of factors, and finer ones around its best."""
    low, high = math.log(1e-3), math.log(100)
    for _ in range(ZOOMS):
        step = (high - low) / (GRID - 1)
        logs = [low + i * step for i in range(GRID)]
        off = case.differences(at, [base._replace(scale=f"x{math.exp(log)!r}") for log in logs], base)
        best = min(range(GRID), key=off.__getitem__)
        if not math.isfinite(off[best]):
            return 1.0
        low, high = logs[best] - step, logs[best] + step
    return float(f"{math.exp((low + high) / 2):.6g}")  # 0.2, not 0.20000000013


def _two_faults(case: Case, tries: Tries) -> Match | None:
    """Search all pairs of faults; those of which one at least spoils the weights alone, many at once."""
    for at, layout in enumerate(case.layouts[: case.n_confirmed]):
        for base in case.bases(at):
            forms: list[FaultSet] = [((name,), form) for name, form in fault_forms(layout, base, len(case.ropes) > 1)]
            early = [one for one in forms if one[1].keys() <= OF_WEIGHTS]
            late = [one for one in forms if not one[1].keys() <= OF_WEIGHTS]
            batches: list[tuple[FaultSet, list[FaultSet]]] = [
                (((), {}), _pairs(early)),
                *((one, early) for one in late),
            ]
            for other, sets in batches:
                if not tries.take(case, len(sets)):
                    return None
                if found := _compare_at_once(case, at, base, sets, other):
                    return found[0]
            for names, form in _pairs(late):
                if not tries.take(case, 0):
                    return None
                if match := case.match(at, base._replace(**form), *names):
                    return match
    return None


def _pairs(sets: Sequence[FaultSet]) -> list[FaultSet]:
    """Combine two sets at a time, except those that disagree, and those of which one adds nothing."""
    found = []
    for (names, form), (others, more) in itertools.combinations(sets, 2):
        both = None if names == others else combine(form, more)
        if both is not None and set(both) not in (set(form), set(more)):
            found.append(((*names, *others), both))
    return found


def _compare_at_once(case: Case, at: int, base: Spec, early: Sequence[FaultSet], late: FaultSet) -> list[Match]:
    """Compare all of some sets of faults of the weights beside one set of others."""
    layout = case.layouts[at]
    specs = [base._replace(**form) for _, form in early]
    off = case.differences(at, specs, base._replace(**late[1])) if specs else []
    return [Match(layout, specs[n]._replace(**late[1]), add_layout_faults(layout, (*early[n][0], *late[0])), off[n])
            for n in range(len(off)) if off[n] <= case.tolerance]  # fmt: skip


def find_common_faults(case: Case, tries: Tries) -> Match | None:
    """Search combinations of the common faults, those with the fewest late faults first.

    Beside several faults of the split, the merge and the output, at most two of the weights are searched.
    """
    bases = [(at, base, _fault_sets(case, at, base)) for at in range(case.n_confirmed) for base in case.bases(at)]
    for count in range(len(LATE) + 1):
        found: list[Match] = []
        for at, base, (early, lates) in bases:
            sets = [one for one in early if count < 2 or len(one[0]) < 3]
            for late in lates:
                if len(late[0]) != count:
                    continue
                if not tries.take(case, len(sets)):
                    return _fewest(found)
                found += _compare_at_once(case, at, base, sets, late)
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
