"""Find the variant of the reference whose output a block's equals: the right one, or faults by name.

Every reading of the weights is tried against the right form first, then against each fault, then against pairs, then
against more of those that meet often. Few faults win over many.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence

from mhsa_cli.check.faults.fault import Form
from mhsa_cli.check.match.search_case import Case, Match, fault_forms, together, with_layout
from mhsa_cli.check.match.search_combinations import often
from mhsa_cli.check.read.reference import Spec

SECONDS = 3.0  # of this process's own time, for the search of several faults at once
BESIDE = ("out_missing", "merge_by_view", "softmax_over_queries", "mask_no_effect")  # faults beside an odd factor


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
