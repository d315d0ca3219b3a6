"""Laws about heads: they change the numbers of one head, and need the layout of the weights.

It is known if the output equals that of the reference, of another kind or of a known fault.
"""

from __future__ import annotations

from torch import Tensor

from mhsa_cli.check.laws.outcome import Outcome, close, not_tested
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.kinds import differs_by_head, normed_together
from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_layouts import index_layouts
from mhsa_cli.check.tensors import editable_weights

OF_HEADS = ("q", "k", "v", "q_bias", "k_bias", "v_bias")


def heads_separate(c: Context) -> Outcome:
    """The queries of a head change nothing once its values are zero."""
    roles = _indices(c)
    if isinstance(roles, Outcome):
        return roles
    if c.match is not None and normed_together(c.match.spec):
        return not_tested("normed_together")
    with editable_weights(c.slots) as (numbers, write):

        def y(changed: Tensor) -> Tensor:
            write(changed)
            return c.y(c.x)

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
    assert c.match is not None
    if differs_by_head(c.match.spec):
        return not_tested("by_head")
    out = roles.out.view(roles.out.size(0), c.heads, -1)
    with editable_weights(c.slots) as (numbers, write):
        before = c.y(c.x)
        reversed_heads = numbers.clone()
        reversed_heads[out] = numbers[out.flip(1)]
        for where in (getattr(roles, name) for name in OF_HEADS):
            if where is not None:
                reversed_heads[where] = numbers[where.flip(0)]
        write(reversed_heads)
        return close(c.y(c.x), before, "differs")


def _scaled(numbers: Tensor, factor: float, *roles: Tensor | None) -> Tensor:
    """Copy numbers, those at the indices of some roles multiplied; None is a missing role."""
    new = numbers.clone()
    for index in roles:
        if index is not None:
            new[index] *= factor
    return new


def _indices(c: Context) -> Roles | Outcome:
    """Indices of each head's numbers, or why they are not known."""
    if c.heads == 1:
        return not_tested("one_head")
    if c.match is None:
        return not_tested("no_layout")
    layout = c.match.layout
    if layout.fault or layout.roles.k.size(0) != c.heads:
        return not_tested("heads_share")
    return index_layouts(c.slots, c.instance.sizes.d_model, c.heads, [layout])[layout.name]
