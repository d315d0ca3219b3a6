"""Find the variant of the reference whose output a candidate's equals: the right one, or faults by name.

Every reading of the weights is tried against the right form first, then against each fault, then against pairs, then
against more of those that meet often. Few faults win over many.
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

from mhsa_cli.core.check.faults import FAULTS, Form
from mhsa_cli.core.check.layouts import Layout
from mhsa_cli.core.check.reference import FRAMES, ROPES, Reference, Spec
from mhsa_cli.core.check.tensors import worst

TOLERANCE = 1e-5  # of the largest output, at least 1
SECONDS = 3.0  # of this process's own time, for the search of several faults at once
# Faults that meet often, by stage: of these, any number at once is looked for.
OFTEN = ("scale", "softmax", "mask", "split", "merge", "out")
# Looked for alone and in pairs only: two cannot be computed for many at once, the others are rare.
ALONE = ("batch_folded_wrong", "output_transposed", "softmax_over_batch", "softmax_over_all", "softmax_is_sigmoid",
         "mask_fill_weak", "groups_tiled", "scale_d_model_unrooted", "scale_d_model_multiplied")  # fmt: skip
BESIDE = ("out_missing", "merge_by_view", "softmax_over_queries", "mask_no_effect")  # faults beside an odd factor


@dataclass(frozen=True, slots=True)
class Match:
    """A variant that gives the candidate's output: the reading of its weights, the forms, its faults, how closely."""

    layout: Layout
    spec: Spec
    faults: tuple[str, ...]
    difference: float
    factor: float | None = None  # of the scores, where it is none of the usual ones


@dataclass
class Case:
    """One call of a candidate: the readings of its weights, x and y, and which bases are right for it."""

    layouts: Sequence[Layout]
    likely: int  # so many of the layouts, the first ones, are those that the candidate bears out
    x: Tensor
    y: Tensor
    positions: Tensor | None = None
    masks: Sequence[str] = ("causal", "none")
    ropes: Sequence[str] = ("none", *ROPES)
    frames: Sequence[str] = FRAMES
    turned: bool = False  # it must rotate: positions without effect are a fault
    theta: float = 10000.0
    _references: dict[int, Reference] = field(default_factory=dict)

    @cached_property
    def tolerance(self) -> float:
        """Give how far an output may be off and still count as equal."""
        finite = self.y[self.y.isfinite()]
        return TOLERANCE * max(1.0, float(finite.abs().max()) if finite.numel() else 1.0)

    @cached_property
    def _usable(self) -> bool:
        return int(self.y.isfinite().sum()) * 2 >= self.y.numel()

    def reference(self, at: int) -> Reference:
        """Give the reference with the weights read in one way."""
        if at not in self._references:
            self._references[at] = Reference(self.layouts[at].roles, self.x, self.positions, self.theta)
        return self._references[at]

    def difference(self, at: int, spec: Spec) -> float:
        """Compare the candidate's output with a variant's; infinite if it cannot be computed."""
        try:
            made = self.reference(at).output(spec)
        except (RuntimeError, ValueError, IndexError):
            return math.inf  # a reading whose shapes do not go with this form
        if made.shape != self.y.shape or not self._usable:
            return math.inf
        return worst(made, self.y)

    def bases(self, at: int) -> Iterator[Spec]:
        """List the right forms that a reading of the weights may have, the simplest first."""
        roles = self.layouts[at].roles
        frames = [f for f in self.frames if roles.norm is not None or "norm" not in f]
        ropes = [r for r in self.ropes if r == "none" or roles.q.size(1) % 2 == 0]
        for frame, rope, mask in itertools.product(frames, ropes, self.masks):
            yield Spec(frame=frame, rope=rope, mask=mask)


def right(case: Case) -> Match | None:
    """Find a reading and a base under which the candidate is right."""
    for at, layout in enumerate(case.layouts):
        if layout.fault is not None or (layout.roles.out is None and layout.roles.n_heads > 1):
            continue
        for base in case.bases(at):
            if case.turned and base.rope == "none":
                continue
            if (off := case.difference(at, base)) <= case.tolerance:
                return Match(layout, base, (), off)
    return None


def wrong(cases: Sequence[Case]) -> tuple[Case, Match] | None:
    """Find the fewest faults that explain one of the cases, or None if no known ones do within the time."""
    until = time.process_time() + SECONDS
    looks: list[Callable[[Case], Match | None]] = [
        lambda case: _one(case, range(case.likely)),
        lambda case: _constant(case, (), until),
        lambda case: _often(case, until),
        lambda case: _one(case, range(case.likely, len(case.layouts))),
        lambda case: _two(case, until),
        lambda case: _constant(case, BESIDE, until),
    ]
    for look in looks:
        for case in cases:
            if match := look(case):
                return case, match
    return None


def _forms(layout: Layout, base: Spec, turned: bool, names: Iterable[str] = FAULTS) -> Iterator[tuple[str, Form]]:
    """List the faults that make sense on a base, with their forms."""
    for name in names:
        if name.startswith("names_") and not layout.named:
            continue
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


def _with_layout(layout: Layout, faults: Sequence[str]) -> tuple[str, ...]:
    if {"split_by_view", "merge_by_view"} <= set(faults):
        faults = [*(f for f in faults if f not in ("split_by_view", "merge_by_view")), "split_and_merge_by_view"]
    own = [layout.fault] if layout.fault else []
    if layout.roles.out is None and layout.roles.n_heads > 1:
        own.append("out_missing")
    return (*own, *faults)


def _one(case: Case, numbers: range) -> Match | None:
    layouts = [(at, case.layouts[at]) for at in numbers]
    for at, layout in layouts:  # what the reading of the weights implies, alone
        if _with_layout(layout, ()):
            for base in case.bases(at):
                if (off := case.difference(at, base)) <= case.tolerance:
                    return Match(layout, base, _with_layout(layout, ()), off)
    for at, layout in layouts:
        for base in case.bases(at):
            for name, form in _forms(layout, base, len(case.ropes) > 1):
                spec = base._replace(**form)
                if (off := case.difference(at, spec)) <= case.tolerance:
                    return Match(layout, spec, _with_layout(layout, (name,)), off)
    return None


def _constant(case: Case, beside: Sequence[str], until: float) -> Match | None:
    """Fit the factor of the scores: alone, or beside another fault."""
    for at, layout in enumerate(case.layouts[: case.likely]):
        for base in case.bases(at):
            forms = _forms(layout, base, False, beside) if beside else [("", Form())]
            for extra, form in forms:
                if time.process_time() > until:
                    return None
                factor, off = _fit(case, at, base._replace(**form))
                if off <= case.tolerance:
                    names = ("scale_constant", *([extra] if extra else []))
                    spec = base._replace(**form, scale=f"x{factor!r}")
                    return Match(layout, spec, _with_layout(layout, names), off, factor)
    return None


def _fit(case: Case, at: int, base: Spec) -> tuple[float, float]:
    """Find the factor of the scores that comes nearest, by a grid and a golden-section search."""

    def off(log: float) -> float:
        return case.difference(at, base._replace(scale=f"x{math.exp(log)!r}"))

    step = math.log(1e5) / 32
    best = min((math.log(1e-3) + i * step for i in range(33)), key=off)
    low, high = best - step, best + step
    if not math.isfinite(off(best)):
        return 1.0, math.inf
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(40):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        if off(a) < off(b):
            high = b
        else:
            low = a
    found = math.exp((low + high) / 2)
    rounded = float(f"{found:.6g}")  # 0.2, not 0.20000000013
    return (rounded, off(math.log(rounded)))


def _together(a: Form, b: Form) -> Form | None:
    """Join two forms; None if they want one stage to be two things."""
    return None if any(a[stage] != b[stage] for stage in a.keys() & b.keys()) else {**a, **b}


def _two(case: Case, until: float) -> Match | None:
    for at, layout in enumerate(case.layouts[: case.likely]):
        for base in case.bases(at):
            forms = list(_forms(layout, base, len(case.ropes) > 1))
            for (name, form), (other, more) in itertools.combinations(forms, 2):
                both = None if name == other else _together(form, more)
                if both is None or set(both) == set(form) or set(both) == set(more):
                    continue
                spec = base._replace(**both)
                if (off := case.difference(at, spec)) <= case.tolerance:
                    return Match(layout, spec, _with_layout(layout, (name, other)), off)
                if time.process_time() > until:
                    return None
    return None


def _often(case: Case, until: float) -> Match | None:
    """Look for several at once of the faults that meet often: all their combinations, those with the fewest first."""
    looks = [(at, base, *_choices(case.layouts[at], base)) for at in range(case.likely) for base in case.bases(at)]
    for late in range(4):  # so many faults of the split, the merge and the output
        best: Match | None = None
        for at, base, early, rests in looks:
            for rest in rests:
                if time.process_time() > until:
                    return best
                if _count(rest) == late:
                    found = _fewest(case, at, base, early, rest)
                    best = min((m for m in (best, found) if m), key=lambda match: len(match.faults), default=None)
        if best is not None:
            return best
    return None


def _choices(layout: Layout, base: Spec) -> tuple[list[Chosen], list[Chosen]]:
    """List what may be wrong up to the weights, and after them."""
    stages: dict[str, list[tuple[str, Form]]] = {stage: [("", {})] for stage in OFTEN}
    for name, form in _forms(layout, base, False):
        if (stage := _stage(form)) in stages and name not in ALONE and form.get("fill") != "added":
            stages[stage].append((name, form))
    early = itertools.product(*(stages[stage] for stage in ("scale", "softmax", "mask")))
    late = itertools.product(*(stages[stage] for stage in ("split", "merge", "out")))
    return [one for one in early if _joined(one) is not None], list(late)


Chosen = tuple[tuple[str, Form], ...]


def _stage(form: Form) -> str:
    """Name the one stage that a form changes, "" for several; the fill of masked scores belongs to the mask."""
    stages = list(form.keys() - {"fill"}) or ["mask"]
    return stages[0] if form and len(stages) == 1 else ""


def _count(chosen: Chosen) -> int:
    return sum(1 for name, _ in chosen if name)


def _joined(chosen: Chosen) -> Form | None:
    form: Form | None = {}
    for _, one in chosen:
        form = None if form is None else _together(form, one)
    return form


def _fewest(case: Case, at: int, base: Spec, early: Sequence[Chosen], rest: Chosen) -> Match | None:
    """Compare all forms of the scores and weights at once, with one way to split, merge and project."""
    layout = case.layouts[at]
    specs = [base._replace(**(_joined((*one, *rest)) or {})) for one in early]
    try:
        made = case.reference(at).outputs(specs)
    except (RuntimeError, ValueError, IndexError):
        return None
    if made.shape[1:] != case.y.shape:
        return None
    same = (made == case.y) | (made.isnan() & case.y.isnan())
    off = torch.where(same, torch.zeros_like(made), (made - case.y).abs()).nan_to_num(nan=math.inf)
    hits = (off.flatten(1).amax(1) <= case.tolerance).nonzero().flatten().tolist()
    found = []
    for hit in hits:
        names = tuple(name for name, _ in (*early[hit], *rest) if name)
        found.append(Match(layout, specs[hit], _with_layout(layout, names), float(off[hit].max())))
    return min(found, key=lambda match: len(match.faults)) if found else None


def inputs(batch_size: int, seq_len: int, d_model: int, seed: int) -> Tensor:
    """Draw an input (B, T, D) in float64."""
    return torch.randn(batch_size, seq_len, d_model, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
