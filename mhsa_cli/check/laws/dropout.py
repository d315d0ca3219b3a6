"""The laws that ask about dropout: when it drops, what it drops, and what is returned."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mhsa_cli.check.call.instance import Built
from mhsa_cli.check.laws.outputs import rounding, weights_of
from mhsa_cli.check.laws.seen import Seen, close, fails, not_asked
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.influence import influence
from mhsa_cli.check.tensors import worst

DROPOUT = 0.4
DRAWS = 3


def dropout_only_in_training(c: Context) -> Seen:
    """Ask that dropout rests in eval, and in training drops something, and nothing that the mask needs."""
    if c.quiet:
        return fails("drops_in_eval")
    plain, other = c.y(c.x, c.again()), c.again(dropout=DROPOUT)  # both new: a call may leave something behind
    other.thing.eval()
    seen = close(c.y(c.x, other), plain, "changes_in_eval")
    if not seen.passed:
        return seen if close(c.y(c.x, c.again()), plain).passed else not_asked("two_differ")
    other.thing.train()
    try:
        return _in_training(c, other, plain, seen)
    finally:
        other.thing.eval()


def _in_training(c: Context, other: Built, plain: Tensor, seen: Seen) -> Seen:
    drawn = [c.y(c.x, other) for _ in range(DRAWS)]
    if bool(plain.isfinite().all()) and not all(bool(y.isfinite().all()) for y in drawn):
        return fails("not_finite", math.inf)
    if not any(worst(y, plain) > 0 for y in drawn):
        drops = any(isinstance(part, nn.Dropout) and part.p > 0 for part in other.thing.modules())
        return fails("never_drops") if drops else not_asked("no_dropout")
    if c.causal and not c.leaks and (leak := _leak(c, other)):
        return fails("leaks", leak)
    return Seen(True, seen.worst)


def _leak(c: Context, other: Built) -> float:
    """Give how far later tokens move earlier outputs while the same is dropped; 0.0 if not at all."""

    def drawn(x: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return c.y(x, other)

    before = drawn(c.x)
    if worst(drawn(c.x), before) > 0:
        return 0.0  # what it drops does not come from torch's generator
    most = float(influence(drawn, c.x, before, range(1, c.x.size(1)), onward=True).triu().max())
    return most if most > rounding(c, before) else 0.0


def weights_before_dropout(c: Context) -> Seen:
    """Ask that weights returned in training are those before dropout."""
    given, why = weights_of(c)
    if c.built.module is None or given is None:
        return not_asked(why or "no_module")
    other = c.again(dropout=DROPOUT)
    sums = []
    for training in (True, False):
        other.thing.train(training)
        weights = c.run(c.x, other, weights=True).weights
        sums.append(torch.ones(1) if weights is None else weights.to(torch.float64).sum(-1))
    off, rested = (worst(s, torch.ones_like(s)) for s in sums)
    if off > 1e-3 >= rested:
        own = any(isinstance(part, nn.MultiheadAttention) for part in c.built.module.modules())
        return fails("after_dropout_in_torch" if own else "after_dropout", off)
    return Seen(True, off)
