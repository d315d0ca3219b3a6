"""The laws that ask about heads: they change one head's own numbers, and need a reading of the weights that is sure.

Sure is a reading under which the output is the reference's or a known fault's, or one that takes up every weight and
that the block bears out number by number.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mhsa_cli.check.laws.seen import Seen, close, not_asked
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.layout_probe import bearing
from mhsa_cli.check.read.parameter_index import addresses_of, lent, scaled
from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_layouts import Layout
from mhsa_cli.check.roles import is_bias, role_of
from mhsa_cli.check.tensors import Slot, worst

OF_HEADS = ("q", "k", "v", "q_bias", "k_bias", "v_bias")


def heads_separate(c: Context) -> Seen:
    """Ask that the queries of a head move nothing once its values are zero."""
    roles = _addresses(c)
    if isinstance(roles, Seen):
        return roles
    with lent(c.slots) as (numbers, write):

        def y(changed: Tensor) -> Tensor:
            write(changed)
            return c.y(c.x)

        if c.match is None:  # are queries, or keys, normalised? Then twice their size changes nothing
            before = c.y(c.x)
            near = 1e-3 * max(1.0, float(before.abs().nan_to_num().max()))
            doubled = [scaled(numbers, 2.0, *of) for of in ((roles.q, roles.q_bias), (roles.k, roles.k_bias))]
            if min(worst(y(twice), before) for twice in doubled) < near:
                return not_asked("normalised")
        silent = scaled(numbers, 0.0, roles.v[0], None if roles.v_bias is None else roles.v_bias[0])
        moved = silent.clone()
        moved[roles.q[0]] += 1.0
        before = y(silent)
        return close(y(moved), before, "queries_move")


def order_of_heads(c: Context) -> Seen:
    """Ask that heads given in reverse order, in all their matrices, give the same output."""
    roles = _addresses(c)
    if isinstance(roles, Seen):
        return roles
    if roles.out is None:
        return not_asked("no_out")
    if kept := [] if c.match else _kept_by_head(c):
        return not_asked("kept_by_head", names=kept)
    out = roles.out.view(roles.out.size(0), c.heads, -1)
    with lent(c.slots) as (numbers, write):
        before, single = c.y(c.x), _of_one_token(c)
        turned = numbers.clone()
        turned[out] = numbers[out.flip(1)]
        for where in (getattr(roles, name) for name in OF_HEADS):
            if where is not None:
                turned[where] = numbers[where.flip(0)]
        write(turned)
        seen = close(c.y(c.x), before, "differs")
        if seen.passed or c.match is not None or not close(_of_one_token(c), single).passed:
            return seen  # one token has no others: whatever kind of attention, its heads are alike
        blind = (roles.q, roles.q_bias, roles.k, roles.k_bias)
        write(scaled(numbers, 0.0, *blind))
        before = c.y(c.x)
        write(scaled(turned, 0.0, *blind))
        # Scores are all zero here: what still tells heads apart is a bias or a mask of their own, as ALiBi's.
        return seen if close(c.y(c.x), before).passed else not_asked("positions_by_head")


def _of_one_token(c: Context) -> Tensor:
    if not c.block.built_for_one_length:
        return c.y(c.x[:, :1])
    return c.y(c.x)[:, :1] if c.causal and not c.leaks else torch.zeros(1)  # the first sees itself alone, or not


def left_over(c: Context) -> list[str]:
    """List the weights, norms aside, that its reading does not take up; without a reading, those of no role by name."""
    reading = c.reading
    if reading is not None:
        return [slot.path for slot in _beyond(c, reading) if not slot.norm]
    unknown = [s for s in c.slots if not (s.norm or is_bias(s.path) or role_of(s.path))]
    named = any(role_of(slot.path) for slot in c.slots)
    return [slot.path for slot in unknown if named or math.prod(slot.value.shape) == c.heads]


def _beyond(c: Context, reading: Layout) -> list[Slot]:
    """List the tensors with a number that no role of a reading takes up."""
    roles = addresses_of(c.slots, c.built.sizes.d_model, c.heads).get(reading.name)
    parts = [getattr(roles, name, None) for name in (*OF_HEADS, "out", "out_bias")]
    known = {address for part in parts if part is not None for address in part.flatten().tolist()}
    found, start = [], 0
    for slot in c.slots:
        end = start + math.prod(slot.value.shape)
        if not known.issuperset(range(start, end)):
            found.append(slot)
        start = end
    return found


def _addresses(c: Context) -> Roles | Seen:
    """Give the places of each head's numbers, or why they are not sure."""
    if c.heads == 1:
        return not_asked("one_head")
    reading = c.reading
    if reading is None:
        return not_asked("no_reading")
    if reading.fault or reading.roles.k.size(0) != c.heads:
        return not_asked("heads_share")
    if c.match is None:  # no output confirms it: it may be another one
        if beyond := [slot.path for slot in _beyond(c, reading)]:
            return not_asked("left_out", names=beyond)
        if not bearing(c, [reading]):
            return not_asked("not_borne_out")
    return addresses_of(c.slots, c.built.sizes.d_model, c.heads)[reading.name]


def _kept_by_head(c: Context) -> list[str]:
    """List what a module keeps for each head besides its weights: a table of slopes, a temperature."""
    if c.built.module is None:
        return []
    weights = {id(slot.value) for slot in c.slots}
    found = []
    for name, part in c.built.module.named_modules():
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
