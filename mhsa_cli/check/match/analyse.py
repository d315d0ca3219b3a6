"""Analyse a block: its axes, its mask, the layout of its weights, and the variant that it equals."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import torch

from mhsa_cli.check.call.block import Block
from mhsa_cli.check.call.call_form import CallForm, angle_layouts, with_masks
from mhsa_cli.check.call.instance import Instance, entry_point
from mhsa_cli.check.locate.evidence import (
    draws_random_numbers,
    drops,
    has_mask,
    has_rotation,
    makes_layers,
    may_rotate,
)
from mhsa_cli.check.match import search
from mhsa_cli.check.match.context import SEED, CallContext, Context
from mhsa_cli.check.match.influence import detect_time_first, find_partial_mask, sees_future, visible_keys
from mhsa_cli.check.match.kinds import find_kinds, measured_keys
from mhsa_cli.check.match.layout_probe import confirmed_frames, confirmed_layouts
from mhsa_cli.check.match.measured_layout import measured_layouts
from mhsa_cli.check.match.rotation_bases import rotation_bases
from mhsa_cli.check.match.search import Case, Match
from mhsa_cli.check.read.masks import looks_ahead
from mhsa_cli.check.read.reference import FRAMES, ROPES
from mhsa_cli.check.read.weight_layouts import Layout, layouts
from mhsa_cli.check.tensors import max_difference
from mhsa_cli.records.check import GradeOptions

MANY = 30  # so many possible layouts of weights without names are too many to compare each


class MaskForms(NamedTuple):
    """The call forms that pass a mask, whether the parameter rejects all of them, and whether it is for padding."""

    forms: Sequence[CallForm]
    rejected: bool = False
    padding: bool = False


def analyse(block: Block, instance: Instance, options: GradeOptions, on_stage: Callable[[str], None]) -> Context:
    """Draw wide weights, then find how the block is masked, the layout of its weights, and the variant it equals."""
    c = CallContext(block, instance, block.call_form, instance.sizes.n_heads, instance.draw(SEED))
    nondeterminism = _nondeterminism(c)
    if nondeterminism == "dropout_in_eval" and not c.repeat_difference(dropout_disabled=True):
        c = replace(c, dropout_disabled=True)
    if nondeterminism and not c.dropout_disabled:
        return _context(c, nondeterminism=nondeterminism)
    c = without_unused_positions(detect_time_first(c))
    on_stage("comparing with the reference and its known faults")
    causal_inside = not sees_future(c)
    masks = MaskForms([c.call_form]) if causal_inside or not c.call_form.mask_name else mask_forms(c)
    padding = c.call_form.padding_names[:1] if c.call_form.padding else (c.call_form.mask_name,) * masks.padding
    mentions_mask = has_mask(c.called, c.hides_scores) and not masks.rejected
    causal = options.causal
    if causal is None:
        takes_mask = bool(c.call_form.mask_name) and not masks.rejected and not masks.padding
        causal = causal_inside or mentions_mask or takes_mask
    forms = [laid_out for form in masks.forms for laid_out in angle_layouts(form)]
    found = _match(c, forms, causal, options)
    if found is None and options.causal is None and not causal_inside and c.call_form.mask_name and not mentions_mask:
        found = _match(c, [c.call_form], False, options)
    known: dict[str, Any] = {"nondeterminism": nondeterminism, "rejects_masks": masks.rejected, "causal": causal}
    known["padding"] = "".join(padding)
    if found is not None:
        c, known["match"], known["causal"] = found
        known["leaks"] = sees_future(c)
        known["partial_mask"] = "some_later" if looks_ahead(known["match"].spec.mask) else ""
    else:
        c = replace(c, call_form=next((f for f in forms if not sees_future(replace(c, call_form=f))), forms[0]))
        case = case_of(c, causal, options)
        if measured := _measured(c, case):
            case = case.with_measured(measured)
        confirmed = 0 < case.n_confirmed < len(case.layouts) or len(case.layouts) == 1
        known |= {"likely_layout": case.layouts[0] if confirmed else None, "leaks": sees_future(c)}
        seen = measured_keys(c, case) if case.layouts else None
        known["visible"] = visible_keys(c) if seen is None else seen
        known["partial_mask"], known["mask_gap"] = find_partial_mask(known["visible"], sure=seen is not None)
    return _context(c, **known)


def _context(c: CallContext, **known: Any) -> Context:
    return Context(**{one.name: getattr(c, one.name) for one in fields(c)}, **known)


def without_unused_positions(c: CallContext) -> CallContext:
    """Pass no optional positions to a block that has no rotation."""
    form = c.call_form
    if not form.positions or form.needs_positions or has_rotation(c.called):
        return c
    return replace(c, call_form=replace(form, positions=""))


def _match(
    c: CallContext, forms: Sequence[CallForm], causal: bool, options: GradeOptions
) -> tuple[CallContext, Match, bool] | None:
    """Search the right form under every call form and layout, then the faults.

    Returns the block with the call form and number of heads of the match, the match, and whether it is causal.
    """
    cases: list[tuple[CallContext, Case]] = []
    for heads in [c.heads, 1] if c.heads > 1 else [1]:
        these: list[tuple[CallContext, Case]] = []
        found_right = None
        for called in sorted((replace(c, call_form=form, heads=heads) for form in forms), key=sees_future):
            these.append((called, case_of(called, causal, options)))
            if found_right := _find_right(these[-1:]):
                break
        measured = _measured(*these[0]) if found_right is None else []
        if measured:
            these = [(called, case.with_measured(measured)) for called, case in these]
            found_right = _find_right(these)
        cases += these
        if found_right is not None:
            called, match = found_right
            if heads == 1 and c.heads > 1 and c.block.has_size("n_heads"):
                match = replace(match, faults=("heads_ignored",))
            return called, match, causal
        if measured:
            break  # the number of heads is measured as well
    one_head = not c.block.has_size("n_heads")  # several heads were never asked for
    searched = [(called, case) for called, case in cases if (called.heads == c.heads or one_head) and case.layouts]
    searches = (search.find_one_fault, lambda _: find_kinds(searched), search.find_several_faults)
    found = next((one for find in searches if (one := find([case for _, case in searched]))), None)
    if found is None:
        return None
    causal = causal and (options.causal is True or not looks_ahead(found[1].spec.mask))
    return next(called for called, case in searched if case is found[0]), found[1], causal


def _find_right(cases: Sequence[tuple[CallContext, Case]]) -> tuple[CallContext, Match] | None:
    """Search the right form in each case."""
    for called, case in cases:
        if case.layouts and (match := search.find_right(case)):
            return called, match
    return None


def _measured(c: CallContext, case: Case) -> list[Layout]:
    """Measure the layout of the weights, unless their names say it and the block confirms that."""
    if 0 < case.n_confirmed < len(case.layouts) and case.layouts[0].named:
        return []
    return measured_layouts(c)


def case_of(c: CallContext, causal: bool, options: GradeOptions) -> Case:
    """Put together what a search compares: the layouts of the weights, one output, and the possible right forms."""
    s = c.instance.sizes
    possible = list(layouts(c.slots, c.numbers, s.d_model, c.heads))
    if len(possible) > MANY and not possible[0].named:
        possible = measured_layouts(c) or possible
    if options.order:
        possible = [one for one in possible if one.name.order == options.order] or possible
    has_angles = c.call_form.needs_positions or has_rotation(c.called)
    must_rotate = has_angles if options.rope is None else options.rope != "none"
    if options.rope is None:
        ropes = ("none", *ROPES) if must_rotate or may_rotate(c.called) else ("none",)
    else:
        ropes = (options.rope,)
    frames = confirmed_frames(c, FRAMES) if possible else FRAMES
    confirmed = (confirmed_layouts(c, possible) if len(possible) > 1 else []) or possible
    rest = [one for one in possible if all(one is not other for other in confirmed)]
    return Case([*confirmed, *rest], len(confirmed), c.x.double(), c.y(c.x), c.positions(s.seq_len),
                ("causal",) if causal else ("none",), ropes, frames, must_rotate, rotation_bases(c))  # fmt: skip


def mask_forms(c: CallContext) -> MaskForms:
    """List the ways to pass the mask that do not raise, the first of each meaning; if all do, the call without it."""
    forms: dict[str, CallForm] = {}
    for form in with_masks(c.call_form):
        assert form.mask is not None
        if form.mask.meaning in forms:
            continue
        try:
            y = c.instance.run(form, c.x).y
        except (Exception, SystemExit) as error:
            c.block.record_failure("call", form.describe(), error)
            continue
        if tuple(y.shape)[:2] == tuple(c.x.shape)[:2] or y.numel() == c.x.numel():
            forms[form.mask.meaning] = form
    if forms:
        return MaskForms(list(forms.values()))
    padding = _takes_padding(c)
    return MaskForms([c.call_form], rejected=not padding, padding=padding)


def _takes_padding(c: CallContext) -> bool:
    for dtype in (torch.bool, torch.int64, torch.float32):
        supplied = {**c.instance.supplied, c.call_form.mask_name: torch.ones(c.x.shape[:2], dtype=dtype)}
        try:
            replace(c.instance, supplied=supplied).run(c.call_form, c.x)
        except (Exception, SystemExit):
            continue
        return True
    return False


def _nondeterminism(c: CallContext) -> str:
    """Find why two calls differ: dropout in eval mode, layers created in the call, state, or something else."""
    if not c.repeat_difference():
        return ""
    with torch.no_grad():
        copies = [copy.deepcopy(c.instance.obj) for _ in range(2)]
        a, b = (replace(c.instance, obj=o, call=entry_point(o)).run(c.call_form, c.x).y for o in copies)
    if max_difference(a, b) == 0 and not draws_random_numbers(c.called):
        return "state_between_calls"
    if not c.repeat_difference(dropout_disabled=True):
        return "dropout_in_eval"
    if makes_layers(c.called):
        return "projections_created_in_forward"
    return "dropout_in_eval" if drops(c.called) or draws_random_numbers(c.called) else "random"
