"""Attention of other kinds: what a block does to its scores is measured, and the reference that does the same compared.

With all queries and keys zero the attention weights show the mask and the bias of positions by themselves; queries that
may be doubled are normalised; a gate, and a rotation of a part of the features, are tried as they are written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.check.match.context import CallContext
from mhsa_cli.check.match.search import Case, Match, random_input, single_fault, with_fitted_scale
from mhsa_cli.check.read import masks
from mhsa_cli.check.read.around import ACTIVATIONS
from mhsa_cli.check.read.reference import FRAMES, ROPES, Reference, Roles, Spec
from mhsa_cli.check.read.weight_layouts import Layout, index_layouts
from mhsa_cli.check.tensors import editable_weights, max_difference, scale_of

HIDDEN = 1e-7  # a weight below it is that of a masked key
EPS = ("1e-06", "1e-05", "1e-08", "2.220446049250313e-16")
NEAR = 1e-5
MOST = 8  # forms whose faults are searched


class Measured(NamedTuple):
    """What positions alone do to the attention: the name of the mask, and of the bias."""

    mask: str
    bias: str


def kinds_of(spec: Spec) -> list[str]:
    """Kinds of attention that a spec has beside the plain one."""
    found = [masks.kind_of(spec.mask)]
    found += ["qk_norm"] if spec.norm != "none" else []
    found += ["partial_rope"] if " " in spec.rates else []
    found += [{"slopes": "alibi", "tilted": "alibi"}.get(spec.bias.split(" ")[0], "relative_bias")] * (
        spec.bias != "none"
    )
    found += ["gate"] if spec.gate != "none" else []
    found += ["mlp"] if spec.mlp != "none" else []
    return [kind for kind in found if kind]


def differs_by_head(spec: Spec) -> bool:
    """Whether each head has positions, a gate or a norm of its own."""
    return spec.bias != "none" or spec.gate != "none" or spec.mask.startswith("by_head ") or normed_together(spec)


def normed_together(spec: Spec) -> bool:
    """Whether the queries and keys of all heads are normalised together."""
    return spec.norm.split(" ")[1:2] == ["whole"]


def find_kinds(cases: Sequence[tuple[CallContext, Case]]) -> tuple[Case, Match] | None:
    """Find another kind of attention under one of the ways to call a block."""
    for c, case in cases:
        if match := find_kind(c, case):
            return case, match
    return None


def find_kind(c: CallContext, case: Case) -> Match | None:
    """Find another kind of attention that equals the block: right, or with one fault."""
    if not case.layouts or case.layouts[0].fault is not None:
        return None
    measured = _measure(c, case)
    normed = _normed_roles(c, case.layouts[0])
    if normed:
        case = _with_norm_of_queries(case)
    others: dict[tuple[int, Spec], Spec] = {}  # one of those that differ in eps only
    for at in range(case.n_confirmed):
        for spec in _right_forms(case, case.layouts[at].roles, measured, normed):
            if match := case.match(at, spec):
                return match
            if " " not in spec.rates and not spec.norm.startswith("l2"):
                others.setdefault((at, spec._replace(norm=spec.norm.rpartition(" ")[0])), spec)
    forms = [(at, spec) for (at, _), spec in others.items()][:MOST]
    for at, spec in forms:  # normalised queries and keys have any temperature
        if spec.norm != "none" and (match := with_fitted_scale(case, at, spec)):
            return replace(match, faults=())
    return next((match for at, spec in forms if (match := single_fault(case, at, spec))), None)


def _right_forms(case: Case, roles: Roles, measured: Measured | None, normed: str) -> Iterator[Spec]:
    """List the forms of other kinds that a block may have, those without anything special left out."""
    mask = [measured.mask] if measured and masks.kind_of(measured.mask) else list(case.masks)
    bias = measured.bias if measured else "none"
    ropes = [("none", "10000")] * (not case.must_rotate or "none" not in case.ropes)
    ropes += [(rope, rates) for rope in case.ropes if rope in ROPES for rates in (*case.rates, *_parts(case, roles))]
    gates = ["none"] if roles.gate is None else ["merged sigmoid", "out sigmoid", "merged silu"]
    frames = [frame for frame in _frames(case) if roles.norm is not None or "norm" not in frame]
    mlps = [f"{place} {one}" for place in ("after", "beside") for one in ACTIVATIONS] if roles.mlp else ["none"]
    for frame, (rope, rates), norm, gate, name, mlp in itertools.product(
        frames, ropes, _norms(roles, normed), gates, mask, mlps
    ):
        spec = Spec(frame=frame, norm=norm, rope=rope, rates=rates, bias=bias, mask=name, gate=gate, mlp=mlp)
        if kinds_of(spec):
            yield spec
            if norm.startswith("l2"):
                yield from (spec._replace(scale=scale) for scale in ("none", "multiplied"))
            if bias.startswith("table"):
                yield spec._replace(scale="none")


def _frames(case: Case) -> list[str]:
    """The frames of a case; an MLP after attention hides whether there is a norm before it."""
    hidden = case.layouts[0].roles.mlp is not None and "residual" in case.frames
    return [*case.frames, *(["pre-norm residual"] if hidden and "pre-norm residual" not in case.frames else [])]


def _parts(case: Case, roles: Roles) -> Iterator[str]:
    """Rates of a rotation of some features only: n of them, the first, the last, or pairs spread over all."""
    d = roles.q.size(1)
    for base, n in itertools.product(case.rates, range(2, d, 2)):
        yield from (f"{base} {part} {n}" for part in ("first", "last", "spread", "spread_back"))
    yield from (f"{base} {part} {d}" for base in case.rates for part in ("spread", "spread_back"))


def _norms(roles: Roles, normed: str) -> list[str]:
    """Norms of the queries and keys that are normalised, at each place in which they can be."""
    if not normed:
        return ["none"]
    given = [norm[2] for norm in (roles.q_norm, roles.k_norm) if norm is not None]
    eps = [repr(one) for one in dict.fromkeys(given)] or list(EPS)
    kinds = [f"{kind} {{}} {normed} {one}" for kind in ("rms", "layer") for one in (*eps, *EPS[-1:])]
    widths = {len(norm[0]) for norm in (roles.q_norm, roles.k_norm) if norm is not None}
    places = ["head", "rotated", "whole"] if not widths or widths == {roles.q.size(1)} else ["whole"]
    kinds += [] if widths else [f"l2 {{}} {normed} 1e-12"]
    return [kind.format(place) for place in places for kind in kinds]


def _normed_roles(c: CallContext, layout: Layout) -> str:
    """Which of queries and keys are normalised: doubling their projection changes nothing. "", "q", "k" or "qk"."""
    roles = index_layouts(c.slots, c.instance.sizes.d_model, c.heads, [layout]).get(layout.name)
    if roles is None:
        return ""
    found = ""
    with editable_weights(c.slots) as (numbers, write):
        try:
            before = c.y(c.x)
            for role, index, bias in (("q", roles.q, roles.q_bias), ("k", roles.k, roles.k_bias)):
                new = numbers.clone()
                for one in (index, bias):
                    if one is not None:
                        new[one.unique()] *= 2
                write(new)
                found += role if max_difference(c.y(c.x), before) < 1e-3 * scale_of(before) else ""
        except (Exception, SystemExit):
            return ""
    return found


def _with_norm_of_queries(case: Case) -> Case:
    """Read the only norm of a block as that of its queries and keys."""
    roles = case.layouts[0].roles
    if roles.norm is None or roles.q_norm or roles.k_norm:
        return case
    norm = roles.norm
    layouts = [replace(layout, roles=replace(layout.roles, norm=None, q_norm=norm, k_norm=norm))
               for layout in case.layouts]  # fmt: skip
    return replace(case, layouts=layouts, frames=[f for f in FRAMES if "norm" not in f], _references={})


def _measure(c: CallContext, case: Case) -> Measured | None:
    """Measure the mask and the bias of positions; None if the mask has no name."""
    prior = _prior(c, case)
    if prior is None or not (name := masks.name_of(prior > HIDDEN)):
        return None
    return Measured(name, _bias_of(prior, prior > HIDDEN))


def measured_keys(c: CallContext, case: Case) -> Tensor | None:
    """Which keys each query sees (T, T), if the mask can be measured and all heads have the same."""
    prior = _prior(c, case)
    if prior is None:
        return None
    visible = prior > HIDDEN
    return visible[0] if bool((visible == visible[0]).all()) else None


def _prior(c: CallContext, case: Case) -> Tensor | None:
    """Attention weights (H, T, T) while all queries and keys are zero; None if the output is no mixture of values."""
    for layout, frame in itertools.product(case.layouts[: max(case.n_confirmed, 1)], _frames(case)):
        if not frame.startswith("post-norm"):
            prior = _prior_in(c, layout, frame)
            if prior is not None and bool(((prior.sum(-1) - 1).abs() < NEAR).all()) and bool((prior > -HIDDEN).all()):
                return prior
    return None


def _prior_in(c: CallContext, layout: Layout, frame: str) -> Tensor | None:
    """Measure the weights token by token and head by head, in a frame."""
    s = c.instance.sizes
    indices, T = index_layouts(c.slots, s.d_model, c.heads, [layout]).get(layout.name), s.seq_len
    if indices is None or (indices.out is None and c.heads > 1):
        return None
    x = random_input(1, T, s.d_model, 5).repeat(T + 1, 1, 1)  # row j: token j is another one; the last row: none is
    x[range(T), range(T)] = random_input(1, T, s.d_model, 6)[0]
    values = Reference(layout.roles, x).heads(Spec(frame=frame), "v")
    own = (x[:T] - x[T:])[range(T), range(T)] if frame.endswith("residual") else None
    heads = []
    with editable_weights(c.slots) as (numbers, write):
        silent = numbers.clone()
        for index in (indices.q, indices.k, indices.q_bias, indices.k_bias, *(indices.mlp or ())):
            if index is not None:
                silent[index] = 0.0
        for h in range(c.heads):
            new, d = silent.clone(), values.size(-1)
            out = torch.eye(d, dtype=torch.float64)
            if indices.out is not None and layout.roles.out is not None:
                of_head = slice(h * d, h * d + d)
                new[indices.out] = 0.0
                new[indices.out[:, of_head]] = numbers[indices.out[:, of_head]]
                out = layout.roles.out[:, of_head]
            write(new)
            try:
                y = c.y(x)
            except (Exception, SystemExit):
                return None
            if y.shape[:2] != (T + 1, T) or y.size(-1) != out.size(0):
                return None
            moved = y[:T] - y[T:]  # (key, query, D_out)
            if own is not None:
                moved[range(T), range(T)] -= own
            unit = (values[:T, h] - values[T:, h])[range(T), range(T)] @ out.mT  # (key, D_out)
            weights = (moved * unit.unsqueeze(1)).sum(-1) / unit.square().sum(-1, keepdim=True)
            left = moved - weights.unsqueeze(-1) * unit.unsqueeze(1)
            if not bool((left.abs() < NEAR * scale_of(unit)).all()):
                return None
            heads.append(weights.mT)
    return torch.stack(heads)


def _bias_of(prior: Tensor, visible: Tensor) -> str:
    """Name the bias that depends on the distance only: slopes, or a table for each head; "none" for any other."""
    T = prior.size(-1)
    if not bool(visible.diagonal(dim1=-2, dim2=-1).all()):
        return "none"
    logs = prior.clamp_min(HIDDEN).log()
    logs = logs - logs.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    table = torch.zeros(len(prior), 2 * T - 1, dtype=torch.float64)
    for apart in range(1 - T, T):
        seen, found = visible.diagonal(-apart, -2, -1), logs.diagonal(-apart, -2, -1)
        for h in range(len(prior)):
            if bool(seen[h].any()):
                table[h, apart + T - 1] = found[h][seen[h]].mean()
                if float((found[h][seen[h]] - table[h, apart + T - 1]).abs().max()) > NEAR:
                    return "none"
    past, later = table[:, T:], table[:, : T - 1].flip(-1)
    if float(table.abs().max()) < NEAR or float(torch.cat([past, later - later[:, :1]], -1).abs().max()) < NEAR:
        return "none"  # a step between earlier and later tokens is a mask that hides too little
    slopes = -past[:, :1]
    line = -slopes * torch.arange(1, T)
    shown = visible.any(0) if visible.dim() == 3 else visible
    ahead = bool(shown.triu(1).any())
    if float((past - line)[:, : _reach(shown)].abs().max()) < NEAR:
        written = "|".join(repr(float(one)) for one in slopes[:, 0])
        if not ahead or float((later - line).abs().max()) < NEAR:
            return f"slopes {written}"
        if float((later + line).abs().max()) < NEAR:
            return f"tilted {written}"
    return "table " + "|".join(",".join(repr(float(one)) for one in head) for head in table)


def _reach(shown: Tensor) -> int:
    """The largest distance to an earlier token that is seen."""
    return max([n for n in range(1, len(shown)) if bool(shown.diagonal(-n).any())], default=1)
