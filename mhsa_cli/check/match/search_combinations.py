"""Several faults at once: all combinations of those that meet often, computed side by side."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from mhsa_cli.check.faults.fault import Form
from mhsa_cli.check.match.search_case import Case, Match, fault_forms, together, with_layout
from mhsa_cli.check.read.reference import Spec
from mhsa_cli.check.read.weight_layouts import Layout
from mhsa_cli.check.tensors import distance

# Faults that meet often, by stage: of these, any number at once is looked for.
OFTEN = ("scale", "softmax", "mask", "split", "merge", "out")
# Looked for alone and in pairs only: two cannot be computed for many at once, the others are rare.
ALONE = ("batch_folded_wrong", "output_transposed", "softmax_over_batch", "softmax_over_all", "softmax_is_sigmoid",
         "mask_fill_weak", "groups_tiled", "scale_d_model_unrooted", "scale_d_model_multiplied")  # fmt: skip


def often(case: Case, until: float) -> Match | None:
    """Look for several at once of the faults that meet often: all their combinations, those with the fewest first."""
    looks = [(at, *_choices(case.layouts[at], base)) for at in range(case.likely) for base in case.bases(at)]
    for late in range(4):  # so many faults of the split, the merge and the output
        best: Match | None = None
        for at, early, rests in looks:
            for rest in rests:
                if time.process_time() > until:
                    return best
                if _count(rest) == late:
                    found = _fewest(case, at, early, rest)
                    best = min((m for m in (best, found) if m), key=lambda match: len(match.faults), default=None)
        if best is not None:
            return best
    return None


def _choices(layout: Layout, base: Spec) -> tuple[list[tuple[Chosen, Spec]], list[Chosen]]:
    """List what may be wrong up to the weights, with the spec that it makes, and what may be wrong after them."""
    stages: dict[str, list[tuple[str, Form]]] = {stage: [("", {})] for stage in OFTEN}
    for name, form in fault_forms(layout, base, False):
        if (stage := _stage(form)) in stages and name not in ALONE and form.get("fill") != "added":
            stages[stage].append((name, form))
    early = itertools.product(*(stages[stage] for stage in ("scale", "softmax", "mask")))
    late = itertools.product(*(stages[stage] for stage in ("split", "merge", "out")))
    joined = [(one, _joined(one)) for one in early]
    return [(one, base._replace(**form)) for one, form in joined if form is not None], list(late)


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
        form = None if form is None else together(form, one)
    return form


def _fewest(case: Case, at: int, early: Sequence[tuple[Chosen, Spec]], rest: Chosen) -> Match | None:
    """Compare all forms of the scores and weights at once, with one way to split, merge and project."""
    layout = case.layouts[at]
    form = _joined(rest)
    assert form is not None  # each changes a stage of its own
    specs = [spec._replace(**form) for _, spec in early]
    try:
        made = case.reference(at).outputs(specs)
    except (RuntimeError, ValueError, IndexError):
        return None
    if made.shape[1:] != case.y.shape:
        return None
    found = []
    for at, off in enumerate(distance(made, case.y).flatten(1).amax(1).tolist()):
        if off <= case.tolerance:
            names = [name for name, _ in (*early[at][0], *rest) if name]
            found.append(Match(layout, specs[at], with_layout(layout, names), off))
    return min(found, key=lambda match: len(match.faults), default=None)
