"""Find the variant of the reference whose output a block's equals: the right one, or faults by name.

Every reading of the weights is tried against the right form first, then against each fault, then against pairs, then
against more of those that meet often. Few faults win over many.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence

from mhsa_cli.check.faults import Form
from mhsa_cli.check.match.search_case import Case, Match, fault_forms, together, with_layout
from mhsa_cli.check.read.reference import Spec
from mhsa_cli.check.tensors import distance

SECONDS = 3.0  # of this process's own time, for the search of several faults at once
BESIDE = ("out_missing", "merge_by_view", "softmax_over_queries", "mask_no_effect")  # faults beside an odd factor
# Faults that meet often, by stage: of these, any number at once is looked for.
EARLY, LATE = ("scale", "softmax", "mask"), ("split", "merge", "out")
# Looked for alone and in pairs only: two cannot be computed for many at once, the others are rare.
ALONE = ("batch_folded_wrong", "output_transposed", "softmax_over_batch", "softmax_over_all", "softmax_is_sigmoid",
         "mask_fill_weak", "groups_tiled", "scale_d_model_unrooted", "scale_d_model_multiplied")  # fmt: skip
Wrong = tuple[tuple[str, ...], Form]  # some faults, and the form that they make together


def right(case: Case) -> Match | None:
    """Find a reading and a base under which the block is right."""
    for at, layout in enumerate(case.layouts):
        if layout.fault is not None or (layout.roles.out is None and layout.roles.n_heads > 1):
            continue
        for base in case.bases(at):
            unturned = case.turned and base.rope == "none"
            if not unturned and (match := case.match(at, base)):
                return match
    return None


def wrong(cases: Sequence[Case]) -> tuple[Case, Match] | None:
    """Find the fewest faults that explain one of the cases, or None if no known ones do within the time."""
    until = time.process_time() + SECONDS
    looks: list[Callable[[Case], Match | None]] = [
        lambda case: _one(case, range(case.likely)),
        lambda case: _constant(case, (), until),
        lambda case: often(case, until),
        lambda case: _one(case, range(case.likely, len(case.layouts))),
        lambda case: _two(case, until),
        lambda case: _constant(case, BESIDE, until),
    ]
    for look in looks:
        for case in cases:
            if match := look(case):
                return case, match
    return None


def _one(case: Case, numbers: range) -> Match | None:
    for at in numbers:  # what the reading of the weights implies, alone
        for base in case.bases(at) if with_layout(case.layouts[at], ()) else ():
            if match := case.match(at, base):
                return match
    for at in numbers:
        for base in case.bases(at):
            for name, form in fault_forms(case.layouts[at], base, len(case.ropes) > 1):
                if match := case.match(at, base._replace(**form), name):
                    return match
    return None


def _constant(case: Case, beside: Sequence[str], until: float) -> Match | None:
    """Fit the factor of the scores: alone, or beside another fault."""
    for at, layout in enumerate(case.layouts[: case.likely]):
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
    """Find the factor of the scores that comes nearest, by a grid and a golden-section search."""

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


def _two(case: Case, until: float) -> Match | None:
    for at, layout in enumerate(case.layouts[: case.likely]):
        for base in case.bases(at):
            forms = list(fault_forms(layout, base, len(case.ropes) > 1))
            for (name, form), (other, more) in itertools.combinations(forms, 2):
                both = None if name == other else together(form, more)
                if both is None or set(both) == set(form) or set(both) == set(more):
                    continue
                if match := case.match(at, base._replace(**both), name, other):
                    return match
                if time.process_time() > until:
                    return None
    return None


def often(case: Case, until: float) -> Match | None:
    """Look for several at once of the faults that meet often: all their combinations, those with the fewest first."""
    looks = [(at, base, *_choices(case, at, base)) for at in range(case.likely) for base in case.bases(at)]
    for count in range(len(LATE) + 1):  # so many faults of the split, the merge and the output
        found: list[Match] = []
        for at, base, early, lates in looks:
            for late in lates:
                if time.process_time() > until:
                    return _fewest(found)
                if len(late[0]) == count:
                    found += _side_by_side(case, at, base, early, late)
        if found:
            return _fewest(found)
    return None


def _fewest(found: Sequence[Match]) -> Match | None:
    return min(found, key=lambda match: len(match.faults), default=None)


def _choices(case: Case, at: int, base: Spec) -> tuple[list[Wrong], list[Wrong]]:
    """List what may be wrong up to the weights, and what may be wrong after them."""
    stages: dict[str, list[Wrong]] = {stage: [((), {})] for stage in (*EARLY, *LATE)}
    for name, form in fault_forms(case.layouts[at], base, False):
        changed = list(form.keys() - {"fill"}) or ["mask"]  # the fill of masked scores belongs to the mask
        if form and len(changed) == 1 and changed[0] in stages and name not in ALONE and form.get("fill") != "added":
            stages[changed[0]].append(((name,), form))
    return _combined(stages[stage] for stage in EARLY), _combined(stages[stage] for stage in LATE)


def _combined(stages: Iterable[Sequence[Wrong]]) -> list[Wrong]:
    """Combine one of each stage; those that want a stage to be two things are left out."""
    found: list[Wrong] = [((), {})]
    for stage in stages:
        found = [((*names, *more), both) for names, form in found for more, other in stage
                 if (both := together(form, other)) is not None]  # fmt: skip
    return found


def _side_by_side(case: Case, at: int, base: Spec, early: Sequence[Wrong], late: Wrong) -> list[Match]:
    """Compare all forms of the scores and weights at once, with one way to split, merge and project."""
    specs = [base._replace(**form, **late[1]) for _, form in early]
    try:
        made = case.reference(at).outputs(specs)
    except (RuntimeError, ValueError, IndexError):
        return []
    if made.shape[1:] != case.y.shape:
        return []
    off = distance(made, case.y).flatten(1).amax(1).tolist()
    return [Match(case.layouts[at], specs[n], with_layout(case.layouts[at], (*early[n][0], *late[0])), off[n])
            for n in range(len(specs)) if off[n] <= case.tolerance]  # fmt: skip
