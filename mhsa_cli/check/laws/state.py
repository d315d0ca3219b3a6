"""The laws that ask what a block keeps from one call to the next, and whether it leaves its input alone."""

from __future__ import annotations

import torch

from mhsa_cli.check.laws.outputs import rounding
from mhsa_cli.check.laws.seen import HOLDS, Seen, fails, within
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.tensors import worst


def same_answer_twice(c: Context) -> Seen:
    """Ask for the same bits in eval, called twice."""
    return within(c.unlike_itself(), 0.0, "differs")


def no_memory(c: Context) -> Seen:
    """Ask that other inputs in between, longer, shorter and of the same size, change nothing."""
    before = c.y(c.x)
    for T in (c.x.size(1), c.x.size(1) - 3):
        if not c.block.built_for_one_length or c.x.size(1) == T:
            c.y(torch.full((3, T, c.x.size(2)), 0.7))
    off = worst(c.y(c.x), before)
    return fails("remembers", off) if off else _beside_a_new_one(c)


def _beside_a_new_one(c: Context) -> Seen:
    """Compare one that has seen another input of the same size with one that is new."""
    x, other = c.x, -1.5 * c.x.flip(0, 1)
    used, new, third = c.again(), c.again(), c.again()
    first, limit = c.y(x, used), rounding(c, c.y(x, new))
    if worst(c.y(x, third), first) > limit:
        return Seen(True, 0.0)  # each is another from the start: no matter of calls
    second, alone = c.y(other, used), c.y(other, c.again())
    if (off := worst(second, alone)) > limit:
        return fails("stale", off)
    return within(worst(c.y(x, used), first), limit, "remembers")


def input_left_alone(c: Context) -> Seen:
    """Ask that the caller's tensor stays as it is."""
    x = c.x
    before = x.clone()
    c.run(x)
    return HOLDS if torch.equal(x, before) else fails("changed")
