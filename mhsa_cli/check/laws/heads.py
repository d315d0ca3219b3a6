"""Laws about heads: they change the numbers of one head, and need a confirmed layout of the weights.

A layout is confirmed if the output equals that of the reference or of a known fault, or if it covers every weight and
the block confirms it number by number.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mhsa_cli.check.laws.outcome import Outcome, close, not_tested
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.layout_probe import confirmed_layouts
from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_layouts import Layout, index_layouts
from mhsa_cli.check.roles import is_bias, role_of
from mhsa_cli.check.tensors import Slot, editable_weights, max_difference, scale_of

OF_HEADS = ("q", "k", "v", "q_bias", "k_bias", "v_bias")


def heads_separate(c: Context) -> Outcome:
    """The queries of a head change nothing once its values are zero."""
    roles = _indices(c)
    if isinstance(roles, Outcome):
        return roles
    with editable_weights(c.slots) as (numbers, write):

        def y(changed: Tensor) -> Tensor:
            write(changed)
            return c.y(c.x)

        if c.match is None:  # doubling normalised queries or keys changes nothing
            before = c.y(c.x)
            near = 1e-3 * scale_of(before)
            doubled = [_scaled(numbers, 2.0, *of) for of in ((roles.q, roles.q_bias), (roles.k, roles.k_bias))]
            if min(max_difference(y(twice), before) for twice in doubled) < near:
                return not_tested("normalised")
        silent = _scaled(numbers, 0.0, roles.v[0], None if roles.v_bias is None else roles.v_bias[0])
        moved = silent.clone()
        moved[roles.q[0]] += 1.0
        before = y(silent)
        return close(y(moved), before, "queries_move")


def order_of_heads(c: Context) -> Outcome:
    """Reversing the order of heads, in all their matrices, gives the same output."""
    roles = _indices(c)
    if isinstance(roles, Outcome):
        return roles
    if roles.out is None:
        return not_tested("no_out")
    if kept := [] if c.match else _kept_by_head(c):
        return not_tested("kept_by_head", names=kept)
    out = roles.out.view(roles.out.size(0), c.heads, -1)
    with editable_weights(c.slots) as (numbers, write):
        before, single = c.y(c.x), _of_one_token(c)
        reversed_heads = numbers.clone()
        reversed_heads[out] = numbers[out.flip(1)]
        for where in (getattr(roles, name) for name in OF_HEADS):
            if where is not None:
                reversed_heads[where] = numbers[where.flip(0)]
        write(reversed_heads)
        outcome = close(c.y(c.x), before, "differs")
        if outcome.passed or c.match is not None or not close(_of_one_token(c), single).passed:
            return outcome  # a single token distinguishes no heads, whatever the kind of attention
        scores = (roles.q, roles.q_bias, roles.k, roles.k_bias)
        write(_scaled(numbers, 0.0, *scores))
        before = c.y(c.x)
        write(_scaled(reversed_heads, 0.0, *scores))
        # All scores are zero: heads that still differ have a bias or a mask of their own, as in ALiBi.
        return outcome if close(c.y(c.x), before).passed else not_tested("positions_by_head")


def _of_one_token(c: Context) -> Tensor:
    if not c.block.built_for_one_length:
        return c.y(c.x[:, :1])
    return c.y(c.x)[:, :1] if c.causal and not c.leaks else torch.zeros(1)  # the first token sees only itself


def _scaled(numbers: Tensor, factor: float, *roles: Tensor | None) -> Tensor:
    """Copy numbers, those at the indices of some roles multiplied; None is a missing role."""
    new = numbers.clone()
    for index in roles:
        if index is not None:
            new[index] *= factor
    return new


def unread_weights(c: Context) -> list[str]:
    """List the weights, norms excepted, that the layout does not cover; without a layout, those without a role."""
    if c.layout is not None:
        return [slot.path for slot in _uncovered(c, c.layout) if not slot.is_norm]
    unknown = [s for s in c.slots if not (s.is_norm or is_bias(s.path) or role_of(s.path))]
    named = any(role_of(slot.path) for slot in c.slots)
    return [slot.path for slot in unknown if named or math.prod(slot.value.shape) == c.heads]


def _uncovered(c: Context, layout: Layout) -> list[Slot]:
    """List the tensors with a number that no role of a layout covers."""
    roles = index_layouts(c.slots, c.instance.sizes.d_model, c.heads).get(layout.name)
    indices = [getattr(roles, name, None) for name in (*OF_HEADS, "out", "out_bias")]
    known = {index for one in indices if one is not None for index in one.flatten().tolist()}
    found, start = [], 0
    for slot in c.slots:
        end = start + math.prod(slot.value.shape)
        if not known.issuperset(range(start, end)):
            found.append(slot)
        start = end
    return found


def _indices(c: Context) -> Roles | Outcome:
    """Indices of each head's numbers, or why they are not known."""
    if c.heads == 1:
        return not_tested("one_head")
    layout = c.layout
    if layout is None:
        return not_tested("no_layout")
    if layout.fault or layout.roles.k.size(0) != c.heads:
        return not_tested("heads_share")
    if c.match is None:  # the output does not confirm the layout
        if names := [slot.path for slot in _uncovered(c, layout)]:
            return not_tested("not_covered", names=names)
        if not confirmed_layouts(c, [layout]):
            return not_tested("not_confirmed")
    return index_layouts(c.slots, c.instance.sizes.d_model, c.heads)[layout.name]


def _kept_by_head(c: Context) -> list[str]:
    """List tensors other than weights that differ by head: a table of slopes, a temperature."""
    if c.instance.module is None:
        return []
    weights = {id(slot.value) for slot in c.slots}
    found = []
    for name, part in c.instance.module.named_modules():
        own = {**part._parameters, **part._buffers, **vars(part)}
        for key, value in own.items():
            if isinstance(value, Tensor) and id(value) not in weights and _differs_by_head(value, c.heads):
                found.append(f"{name}.{key}".strip("."))
    return found


def _differs_by_head(value: Tensor, heads: int) -> bool:
    if isinstance(value, nn.Parameter) or value.numel() > 1_000_000:
        return heads in value.shape
    numbers = value.detach().to(torch.float64).nan_to_num()
    axes = [axis for axis, size in enumerate(value.shape) if size == heads]
    return any(bool((numbers != numbers.flip(axis)).any()) for axis in axes)
