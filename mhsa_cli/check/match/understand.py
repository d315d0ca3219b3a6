"""Understand a candidate: which axes are which, how it is masked, what its weights are, which variant it equals."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from mhsa_cli.check.call.adapters import Candidate
from mhsa_cli.check.call.call_plan import Plan, masked
from mhsa_cli.check.call.instance import Built, entry
from mhsa_cli.check.locate import lines
from mhsa_cli.check.match import search
from mhsa_cli.check.match.context import SEED, Context, held_still
from mhsa_cli.check.match.layout_probe import borne_frames, probed
from mhsa_cli.check.match.mask_pattern import hidden_in_part
from mhsa_cli.check.match.search_case import Case, Match
from mhsa_cli.check.read.reference import FRAMES, ROPES
from mhsa_cli.check.read.weight_layouts import layouts
from mhsa_cli.check.tensors import worst
from mhsa_cli.records.check import Wishes


def understand(candidate: Candidate, built: Built, wishes: Wishes, tell: Callable[[str], None]) -> tuple[Context, str]:
    """Draw wide weights and find how it is masked, what its weights are and which variant it equals."""
    c = Context(candidate, built, candidate.plan, False, None, built.sizes.n_heads)
    c.numbers = built.draw(SEED)
    noise = _noise(c)
    c.quiet = noise == "dropout_in_eval" and not _differs(c, still=True)
    if noise and not c.quiet:
        return c, noise
    see_axes(c)
    tell("comparing it with the reference and its known faults")
    inside = not sees_future(c)
    ways = [c.plan] if inside or not c.plan.mask_name else masked_ways(c)
    spoken = candidate.masking and not c.mask_raises
    must = (
        wishes.causal
        if wishes.causal is not None
        else inside or spoken or (bool(c.plan.mask_name) and not c.mask_raises and not c.padding)
    )
    found = _match(c, ways, must, wishes)
    if found is None and wishes.causal is None and not inside and c.plan.mask_name and not spoken:
        found = _match(c, [c.plan], False, wishes)
    c.causal = must if found is None else found[2]
    if found is not None:
        c.plan, c.match, _, c.heads = found
    else:
        c.plan = next((w for w in ways if not sees_future(replace(c, plan=w))), ways[0])
        case = case_of(c, must, wishes)
        c.guess = case.layouts[0] if 0 < case.likely < len(case.layouts) or len(case.layouts) == 1 else None
    c.right_rope, c.leaks = _right_rope(c), sees_future(c)
    if c.match is None:
        c.hides, c.hole = hidden_in_part(c)
    return c, noise


Found = tuple[Plan, Match, bool, int]


def _match(c: Context, ways: Sequence[Plan], causal: bool, wishes: Wishes) -> Found | None:
    """Look for the right form under every way to call and every reading, then for faults."""
    cases = []
    counts = [c.heads, 1] if c.heads > 1 else [1]
    for heads in counts:
        for way in ways:
            trial = replace(c, plan=way, heads=heads)
            case = case_of(trial, causal, wishes)
            cases.append((way, case, heads))
            if case.layouts and (match := search.right(case)):
                if heads == 1 and c.heads > 1 and c.candidate.takes("n_heads"):
                    match = replace(match, faults=("heads_ignored",))
                return way, match, causal, heads
    single = not c.candidate.takes("n_heads")  # nobody asked it for several heads
    likely = sorted(
        (one for one in cases if one[2] == c.heads or single), key=lambda one: sees_future(replace(c, plan=one[0]))
    )
    found = search.wrong([case for _, case, _ in likely if case.layouts])
    if found is None:
        return None
    way, _, heads = next(one for one in likely if one[1] is found[0])
    return way, found[1], causal, heads


def case_of(c: Context, causal: bool, wishes: Wishes) -> Case:
    """Put together what a search compares: the readings of the weights, one output, and which bases are right."""
    s = c.built.sizes
    readings = list(layouts(c.slots, c.numbers, s.d_model, c.heads))
    if wishes.order:
        readings = [r for r in readings if r.name.order == wishes.order] or readings
    turned = c.candidate.must_turn(c.plan) if wishes.rope is None else wishes.rope != "none"
    may = turned or c.candidate.turning
    ropes = (("none", *ROPES) if may else ("none",)) if wishes.rope is None else (wishes.rope,)
    added = re.search(r"residual|shortcut|skip|\bx\s*\+[^=]|\+\s*x\b|\+=", c.candidate.source.text)
    frames = [f for f in FRAMES if added or "residual" not in f]
    frames = list(borne_frames(c, frames)) if readings else frames
    likely = list(probed(c, readings))
    rest = [r for r in readings if all(r is not one for one in likely)]
    return Case([*likely, *rest], len(likely), c.x.double(), c.y(c.x), c.positions(s.seq_len),
                ("causal",) if causal else ("none",), ropes, frames, turned)  # fmt: skip


def _right_rope(c: Context) -> str:
    """Say how a right one would rotate: as this one does, its fault left out."""
    if c.match is None:
        return "none"
    layout = c.match.spec.rope.partition(":")[0]
    return layout if layout in ROPES else "interleaved" if c.match.spec.rope == "none:ignored" else "none"


def masked_ways(c: Context) -> list[Plan]:
    """List the ways to give the mask that do not raise, of each meaning the first."""
    ways: dict[str, Plan] = {}
    for way in masked(c.plan):
        assert way.mask is not None
        if way.mask.meaning in ways:
            continue
        try:
            y = c.built.run(way, c.x).y
        except (Exception, SystemExit) as error:
            c.candidate.failed("call", way.says(), error)
            continue
        if tuple(y.shape)[:2] == tuple(c.x.shape)[:2] or y.numel() == c.x.numel():
            ways[way.mask.meaning] = way
    if not ways and _takes_padding(c):
        c.padding = c.plan.mask_name
        return [c.plan]
    c.mask_raises = not ways
    return list(ways.values()) or [c.plan]


def _takes_padding(c: Context) -> bool:
    """Tell whether its mask is one of (B, T): which tokens are there."""
    for dtype in (torch.bool, torch.int64, torch.float32):
        given = {**c.built.supplied, c.plan.mask_name: torch.ones(c.x.shape[:2], dtype=dtype)}
        try:
            replace(c.built, supplied=given).run(c.plan, c.x)
        except (Exception, SystemExit):
            continue
        return True
    return False


def sees_future(c: Context) -> bool:
    """Tell whether the last token changes an earlier output."""
    x = c.x
    other = x.clone()
    other[:, -1] *= -1.5  # no shift: a LayerNorm inside would not see it
    try:
        a, b = c.y(x), c.y(other)
    except (Exception, SystemExit):
        return True
    if a.dim() != 3 or a.size(1) != x.size(1):
        return True
    return worst(a[:, :-1], b[:, :-1]) > 1e-9 * max(1.0, float(a.abs().nan_to_num().max()))


def see_axes(c: Context) -> None:
    """Find out whether time comes first: then a row of the batch lies along the second axis."""
    x, y = c.x, c.y(c.x)
    if x.size(0) == x.size(1) or y.shape != x.shape or c.plan.unbatched:
        return
    row, column = x.clone(), x.clone()
    row[0] *= -1.5
    column[:, 0] *= -1.5
    leaks = worst(c.y(row)[1:], y[1:]) > 1e-9
    alone = worst(c.y(column)[:, 1:], y[:, 1:]) <= 1e-9
    if leaks and alone:
        c.plan = replace(c.plan, time_first=True)


def _differs(c: Context, still: bool) -> bool:
    with torch.no_grad(), held_still(still):
        a, b = (c.built.run(c.plan, c.x).y for _ in range(2))
    return worst(a, b) != 0


def _noise(c: Context) -> str:
    """Find why two calls differ: dropout that drops in eval, layers made in forward, or something else."""
    if not _differs(c, still=False):
        return ""
    text, names = c.candidate.source.text, c.candidate.names_used

    def speaks(pattern: str) -> bool:
        return lines.speaks(text, names, pattern, constructor=False)

    with torch.no_grad():
        copies = [copy.deepcopy(c.built.thing) for _ in range(2)]
        a, b = (replace(c.built, thing=t, call=entry(t)).run(c.plan, c.x).y for t in copies)
    if worst(a, b) == 0 and not speaks(r"rng|random|rand\w*\("):
        return "state_between_calls"
    if not _differs(c, still=True):
        return "dropout_in_eval"
    if speaks(r"randn|normal\(|Linear\(|xavier|kaiming|torch\.empty"):
        return "projections_created_in_forward"
    return "dropout_in_eval" if speaks(r"drop|rand|bernoulli|binomial") else "random"
