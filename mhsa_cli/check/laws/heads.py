"""The laws that ask about heads: they change one head's own numbers, and need a reading of the weights that is sure.

Sure is a reading under which the output is the reference's or a known fault's, or one that takes up every weight and
that the candidate bears out number by number.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mhsa_cli.check.laws.law_result import Seen, close, not_asked
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.layout_probe import bearing
from mhsa_cli.check.read.parameter_index import Places, addresses_of, at
from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_layouts import Layout
from mhsa_cli.check.read.weight_names import is_bias, role_of
from mhsa_cli.check.tensors import Slot, worst

MATRICES = ("q", "k", "v")
BIASES = ("q_bias", "k_bias", "v_bias")


def heads_separate(c: Context) -> Seen:
    """Ask that the queries of a head move nothing once its values are zero."""
    places = _places(c)
    if isinstance(places, Seen):
        return places

    def silent(roles: Roles, numbers: Tensor) -> None:
        numbers[at(roles.v[0])] = 0.0
        if roles.v_bias is not None:
            numbers[at(roles.v_bias[0])] = 0.0

    def moved(roles: Roles, numbers: Tensor) -> None:
        silent(roles, numbers)
        numbers[at(roles.q[0])] += 1.0

    try:
        if c.match is None and _is_scale_free(c, places):
            return not_asked("normalised")
        places.change(silent)
        before = c.y(c.x)
        places.change(moved)
        return close(c.y(c.x), before, "queries_move")
    finally:
        places.restore()


def order_of_heads(c: Context) -> Seen:
    """Ask that heads given in reverse order, in all their matrices, give the same output."""
    places = _places(c)
    if isinstance(places, Seen):
        return places
    if places.roles.out is None:
        return not_asked("no_out")
    if kept := [] if c.match else _kept_by_head(c):
        return not_asked("kept_by_head", names=kept)

    def turned(roles: Roles, numbers: Tensor) -> None:
        old = numbers.clone()
        for name in (*MATRICES, *BIASES):
            where = getattr(roles, name)
            if where is not None:
                numbers[at(where)] = old[at(where.flip(0))]
        if roles.out is not None:
            out = roles.out.view(roles.out.size(0), c.heads, -1)
            numbers[at(out)] = old[at(out.flip(1))]

    def blind(roles: Roles, numbers: Tensor) -> None:
        for name in ("q", "q_bias", "k", "k_bias"):
            where = getattr(roles, name)
            if where is not None:
                numbers[at(where)] = 0.0

    def blind_and_turned(roles: Roles, numbers: Tensor) -> None:
        turned(roles, numbers)
        blind(roles, numbers)

    try:
        before, single = c.y(c.x), _of_one_token(c)
        places.change(turned)
        seen = close(c.y(c.x), before, "differs")
        if seen.passed or c.match is not None or not close(_of_one_token(c), single).passed:
            return seen  # one token has no others: whatever kind of attention, its heads are alike
        places.change(blind)
        before = c.y(c.x)
        places.change(blind_and_turned)
        if not close(c.y(c.x), before).passed:
            # Scores are all zero here: what still tells heads apart is a bias or a mask of their own, as ALiBi's.
            return not_asked("positions_by_head")
        return seen
    finally:
        places.restore()


def _of_one_token(c: Context) -> Tensor:
    if not c.candidate.built_for_one_length:
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
    parts = [getattr(roles, name, None) for name in (*MATRICES, *BIASES, "out", "out_bias")]
    known = {int(address) for part in parts if part is not None for address in at(part).flatten()}
    found, start = [], 0
    for slot in c.slots:
        end = start + math.prod(slot.value.shape)
        if not known.issuperset(range(start, end)):
            found.append(slot)
        start = end
    return found


def _places(c: Context) -> Places | Seen:
    """Give the numbers of each head, or why they are not sure."""
    if c.heads == 1:
        return not_asked("one_head")
    reading = c.reading
    if reading is None:
        return not_asked("no_reading")
    if reading.fault or reading.roles.k.size(0) != c.heads:
        return not_asked("heads_share")
    doubt = _doubt(c, reading) if c.match is None else None
    return doubt or Places(c.slots, reading, c.built.sizes.d_model, c.heads)


def _doubt(c: Context, reading: Layout) -> Seen | None:
    """Say why a reading that no output confirms may be another one; None if it is sure all the same."""
    if beyond := [slot.path for slot in _beyond(c, reading)]:
        return not_asked("left_out", names=beyond)
    return None if bearing(c, [reading]) else not_asked("not_borne_out")


def _is_scale_free(c: Context, places: Places) -> bool:
    """Tell whether queries, or keys, of twice the size change nothing: then they are normalised."""

    def doubled(names: tuple[str, str]) -> float:
        def edit(roles: Roles, numbers: Tensor) -> None:
            for name in names:
                where = getattr(roles, name)
                if where is not None:
                    numbers[at(where)] *= 2.0

        places.change(edit)
        return worst(c.y(c.x), before)

    before = c.y(c.x)
    near = 1e-3 * max(1.0, float(before.abs().nan_to_num().max()))
    return min(doubled(("q", "q_bias")), doubled(("k", "k_bias"))) < near


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
