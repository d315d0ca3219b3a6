"""Analyse a block: its axes, its mask, the layout of its weights, and the variant that it equals."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from mhsa_cli.check.call.block import Block
from mhsa_cli.check.call.call_form import CallForm, with_masks
from mhsa_cli.check.call.instance import Instance, entry_point
from mhsa_cli.check.match import search
from mhsa_cli.check.match.context import SEED, CallContext, Context
from mhsa_cli.check.match.influence import detect_time_first, find_partial_mask, sees_future
from mhsa_cli.check.match.layout_probe import confirmed_frames, confirmed_layouts
from mhsa_cli.check.match.search import Case, Match
from mhsa_cli.check.read.reference import FRAMES, ROPES
from mhsa_cli.check.read.weight_layouts import layouts
from mhsa_cli.check.tensors import max_difference
from mhsa_cli.records.check import GradeOptions


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
        return Context(**vars(c), nondeterminism=nondeterminism)
    c = detect_time_first(c)
    on_stage("comparing with the reference and its known faults")
    causal_inside = not sees_future(c)
    masks = MaskForms([c.call_form]) if causal_inside or not c.call_form.mask_name else mask_forms(c)
    mentions_mask = block.mentions_mask and not masks.rejected
    causal = options.causal
    if causal is None:
        takes_mask = bool(c.call_form.mask_name) and not masks.rejected and not masks.padding
        causal = causal_inside or mentions_mask or takes_mask
    found = _match(c, masks.forms, causal, options)
    if found is None and options.causal is None and not causal_inside and c.call_form.mask_name and not mentions_mask:
        found = _match(c, [c.call_form], False, options)
    known: dict[str, Any] = {"nondeterminism": nondeterminism, "rejects_masks": masks.rejected, "causal": causal}
    known["padding"] = c.call_form.mask_name if masks.padding else ""
    if found is not None:
        c, known["match"], known["causal"] = found
        known["leaks"] = sees_future(c)
    else:
        forms = masks.forms
        c = replace(c, call_form=next((f for f in forms if not sees_future(replace(c, call_form=f))), forms[0]))
        case = case_of(c, causal, options)
        confirmed = 0 < case.n_confirmed < len(case.layouts) or len(case.layouts) == 1
        known |= {"likely_layout": case.layouts[0] if confirmed else None, "leaks": sees_future(c)}
        known["partial_mask"], known["mask_gap"] = find_partial_mask(c)
    return Context(**vars(c), **known)


def _match(
    c: CallContext, forms: Sequence[CallForm], causal: bool, options: GradeOptions
) -> tuple[CallContext, Match, bool] | None:
    """Search the right form under every call form and layout, then the faults.

    Returns the block with the call form and number of heads of the match, the match, and whether it is causal.
    """
    cases = []
    for heads in [c.heads, 1] if c.heads > 1 else [1]:
        for form in forms:
            called = replace(c, call_form=form, heads=heads)
            case = case_of(called, causal, options)
            cases.append((called, case))
            if case.layouts and (match := search.find_right(case)):
                if heads == 1 and c.heads > 1 and c.block.has_size("n_heads"):
                    match = replace(match, faults=("heads_ignored",))
                return called, match, causal
    one_head = not c.block.has_size("n_heads")  # several heads were never asked for
    searched = sorted(
        (one for one in cases if one[0].heads == c.heads or one_head), key=lambda one: sees_future(one[0])
    )
    found = search.find_faults([case for _, case in searched if case.layouts])
    if found is None:
        return None
    return next(called for called, case in searched if case is found[0]), found[1], causal


def case_of(c: CallContext, causal: bool, options: GradeOptions) -> Case:
    """Put together what a search compares: the layouts of the weights, one output, and the possible right forms."""
    s = c.instance.sizes
    possible = list(layouts(c.slots, c.numbers, s.d_model, c.heads))
    if options.order:
        possible = [one for one in possible if one.name.order == options.order] or possible
    must_rotate = c.block.must_rotate(c.call_form) if options.rope is None else options.rope != "none"
    may_rotate = must_rotate or c.block.mentions_rope
    ropes = (("none", *ROPES) if may_rotate else ("none",)) if options.rope is None else (options.rope,)
    residual = re.search(r"residual|shortcut|skip|\bx\s*\+[^=]|\+\s*x\b|\+=", c.block.source.text)
    frames: Sequence[str] = [f for f in FRAMES if residual or "residual" not in f]
    frames = confirmed_frames(c, frames) if possible else frames
    confirmed = (confirmed_layouts(c, possible) if len(possible) > 1 else []) or possible
    rest = [one for one in possible if all(one is not other for other in confirmed)]
    return Case([*confirmed, *rest], len(confirmed), c.x.double(), c.y(c.x), c.positions(s.seq_len),
                ("causal",) if causal else ("none",), ropes, frames, must_rotate)  # fmt: skip


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
    if max_difference(a, b) == 0 and not c.block.code_matches(r"rng|random|rand\w*\(", constructor=False):
        return "state_between_calls"
    if not c.repeat_difference(dropout_disabled=True):
        return "dropout_in_eval"
    if c.block.code_matches(r"randn|normal\(|Linear\(|xavier|kaiming|torch\.empty", constructor=False):
        return "projections_created_in_forward"
    drops = c.block.code_matches(r"drop|rand|bernoulli|binomial", constructor=False)
    return "dropout_in_eval" if drops else "random"
