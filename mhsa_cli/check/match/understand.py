"""Understand a block: which axes are which, how it is masked, what its weights are, which variant it equals."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from mhsa_cli.check.call.block import Block
from mhsa_cli.check.call.call_plan import Plan, masked
from mhsa_cli.check.call.instance import Built, entry
from mhsa_cli.check.match import search
from mhsa_cli.check.match.context import SEED, Called, Context
from mhsa_cli.check.match.influence import hidden_in_part, see_axes, sees_future
from mhsa_cli.check.match.layout_probe import borne_frames, probed
from mhsa_cli.check.match.search_case import Case, Match
from mhsa_cli.check.read.reference import FRAMES, ROPES
from mhsa_cli.check.read.weight_layouts import layouts
from mhsa_cli.check.tensors import worst
from mhsa_cli.records.check import GradeOptions


class Masks(NamedTuple):
    """The ways to call that give a mask, whether its argument takes none of ours, and whether it is one for padding."""

    ways: Sequence[Plan]
    raises: bool = False
    padding: bool = False


def understand(block: Block, built: Built, options: GradeOptions, tell: Callable[[str], None]) -> Context:
    """Draw wide weights and find how it is masked, what its weights are and which variant it equals."""
    c = Called(block, built, block.plan, built.sizes.n_heads, built.draw(SEED))
    noise = _noise(c)
    c = replace(c, quiet=noise == "dropout_in_eval" and not c.unlike_itself(still=True))
    if noise and not c.quiet:
        return Context(**vars(c), noise=noise)
    c = see_axes(c)
    tell("comparing it with the reference and its known faults")
    inside = not sees_future(c)
    masks = Masks([c.plan]) if inside or not c.plan.mask_name else masked_ways(c)
    spoken = block.masking and not masks.raises
    causal = options.causal
    if causal is None:
        causal = inside or spoken or (bool(c.plan.mask_name) and not masks.raises and not masks.padding)
    found = _match(c, masks.ways, causal, options)
    if found is None and options.causal is None and not inside and c.plan.mask_name and not spoken:
        found = _match(c, [c.plan], False, options)
    more: dict[str, Any] = {"noise": noise, "mask_raises": masks.raises, "causal": causal}
    more["padding"] = c.plan.mask_name if masks.padding else ""
    if found is not None:
        c, more["match"], more["causal"] = found
        more["leaks"] = sees_future(c)
    else:
        ways = masks.ways
        c = replace(c, plan=next((w for w in ways if not sees_future(replace(c, plan=w))), ways[0]))
        case = case_of(c, causal, options)
        sure = 0 < case.likely < len(case.layouts) or len(case.layouts) == 1
        more |= {"guess": case.layouts[0] if sure else None, "leaks": sees_future(c)}
        more["hides"], more["hole"] = hidden_in_part(c)
    return Context(**vars(c), **more)


def _match(c: Called, ways: Sequence[Plan], causal: bool, options: GradeOptions) -> tuple[Called, Match, bool] | None:
    """Look for the right form under every way to call and every reading, then for faults.

    Gives the block as it is called and cut into heads then, the variant that it equals, and whether that is causal.
    """
    cases = []
    for heads in [c.heads, 1] if c.heads > 1 else [1]:
        for way in ways:
            called = replace(c, plan=way, heads=heads)
            case = case_of(called, causal, options)
            cases.append((called, case))
            if case.layouts and (match := search.right(case)):
                if heads == 1 and c.heads > 1 and c.block.takes("n_heads"):
                    match = replace(match, faults=("heads_ignored",))
                return called, match, causal
    single = not c.block.takes("n_heads")  # nobody asked it for several heads
    likely = sorted((one for one in cases if one[0].heads == c.heads or single), key=lambda one: sees_future(one[0]))
    found = search.wrong([case for _, case in likely if case.layouts])
    if found is None:
        return None
    return next(called for called, case in likely if case is found[0]), found[1], causal


def case_of(c: Called, causal: bool, options: GradeOptions) -> Case:
    """Put together what a search compares: the readings of the weights, one output, and which bases are right."""
    s = c.built.sizes
    readings = list(layouts(c.slots, c.numbers, s.d_model, c.heads))
    if options.order:
        readings = [r for r in readings if r.name.order == options.order] or readings
    turned = c.block.must_turn(c.plan) if options.rope is None else options.rope != "none"
    may = turned or c.block.turning
    ropes = (("none", *ROPES) if may else ("none",)) if options.rope is None else (options.rope,)
    added = re.search(r"residual|shortcut|skip|\bx\s*\+[^=]|\+\s*x\b|\+=", c.block.source.text)
    frames = [f for f in FRAMES if added or "residual" not in f]
    frames = list(borne_frames(c, frames)) if readings else frames
    likely = list(probed(c, readings))
    rest = [r for r in readings if all(r is not one for one in likely)]
    return Case([*likely, *rest], len(likely), c.x.double(), c.y(c.x), c.positions(s.seq_len),
                ("causal",) if causal else ("none",), ropes, frames, turned)  # fmt: skip


def masked_ways(c: Called) -> Masks:
    """List the ways to give the mask that do not raise, of each meaning the first; without one, as it is called now."""
    ways: dict[str, Plan] = {}
    for way in masked(c.plan):
        assert way.mask is not None
        if way.mask.meaning in ways:
            continue
        try:
            y = c.built.run(way, c.x).y
        except (Exception, SystemExit) as error:
            c.block.failed("call", way.says(), error)
            continue
        if tuple(y.shape)[:2] == tuple(c.x.shape)[:2] or y.numel() == c.x.numel():
            ways[way.mask.meaning] = way
    if ways:
        return Masks(list(ways.values()))
    padding = _takes_padding(c)
    return Masks([c.plan], raises=not padding, padding=padding)


def _takes_padding(c: Called) -> bool:
    """Tell whether its mask is one of (B, T): which tokens are there."""
    for dtype in (torch.bool, torch.int64, torch.float32):
        given = {**c.built.supplied, c.plan.mask_name: torch.ones(c.x.shape[:2], dtype=dtype)}
        try:
            replace(c.built, supplied=given).run(c.plan, c.x)
        except (Exception, SystemExit):
            continue
        return True
    return False


def _noise(c: Called) -> str:
    """Find why two calls differ: dropout that drops in eval, layers made in forward, or something else."""
    if not c.unlike_itself():
        return ""
    with torch.no_grad():
        copies = [copy.deepcopy(c.built.thing) for _ in range(2)]
        a, b = (replace(c.built, thing=t, call=entry(t)).run(c.plan, c.x).y for t in copies)
    if worst(a, b) == 0 and not c.block.speaks(r"rng|random|rand\w*\(", constructor=False):
        return "state_between_calls"
    if not c.unlike_itself(still=True):
        return "dropout_in_eval"
    if c.block.speaks(r"randn|normal\(|Linear\(|xavier|kaiming|torch\.empty", constructor=False):
        return "projections_created_in_forward"
    drops = c.block.speaks(r"drop|rand|bernoulli|binomial", constructor=False)
    return "dropout_in_eval" if drops else "random"
