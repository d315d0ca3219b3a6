"""Laws about state: what a block keeps between calls, and whether it changes its input."""

from __future__ import annotations

import torch

from mhsa_cli.check.laws.outcome import HOLDS, Outcome, fails, within
from mhsa_cli.check.laws.outputs import rounding
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.tensors import max_difference


def same_answer_twice(c: Context) -> Outcome:
    """Two calls in eval mode give the same bits."""
    return within(c.repeat_difference(), 0.0, "differs")


def no_memory(c: Context) -> Outcome:
    """Other inputs in between, longer, shorter and of the same size, change nothing."""
    before = c.y(c.x)
    for T in (c.x.size(1), c.x.size(1) - 3):
        if not c.block.built_for_one_length or c.x.size(1) == T:
            c.y(torch.full((3, T, c.x.size(2)), 0.7))
    off = max_difference(c.y(c.x), before)
    return fails("remembers", off) if off else _compare_with_new(c)


def _compare_with_new(c: Context) -> Outcome:
    """Compare an instance that was called with another input of the same size with a new one."""
    x, other = c.x, -1.5 * c.x.flip(0, 1)
    used, new, third = c.rebuild(), c.rebuild(), c.rebuild()
    first, limit = c.y(x, used), rounding(c, c.y(x, new))
    if max_difference(c.y(x, third), first) > limit:
        return Outcome(True, 0.0)  # instances differ from the start: calls are not the cause
    second, alone = c.y(other, used), c.y(other, c.rebuild())
    if (off := max_difference(second, alone)) > limit:
        return fails("stale", off)
    return within(max_difference(c.y(x, used), first), limit, "remembers")


def input_left_alone(c: Context) -> Outcome:
    """The caller's tensor is unchanged."""
    x = c.x
    before = x.clone()
    c.run(x)
    return HOLDS if torch.equal(x, before) else fails("changed")
