"""Laws about dropout: when it drops, what it drops, and which weights are returned."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mhsa_cli.check.call.instance import Instance
from mhsa_cli.check.laws.outcome import Outcome, close, fails, not_tested
from mhsa_cli.check.laws.outputs import returned_weights, rounding
from mhsa_cli.check.match.context import DROPOUT, Context
from mhsa_cli.check.match.influence import influence
from mhsa_cli.check.tensors import max_difference

DRAWS = 3


def dropout_only_in_training(c: Context) -> Outcome:
    """Dropout does nothing in eval mode; in training it drops something, and nothing that the mask needs."""
    if c.dropout_disabled:
        return fails("drops_in_eval")
    plain, other = c.y(c.x, c.rebuild()), c.rebuild(dropout=DROPOUT)  # both new: a call may leave state behind
    other.obj.eval()
    outcome = close(c.y(c.x, other), plain, "changes_in_eval")
    if not outcome.passed:
        return outcome if close(c.y(c.x, c.rebuild()), plain).passed else not_tested("two_differ")
    other.obj.train()
    try:
        return _in_training(c, other, plain, outcome)
    finally:
        other.obj.eval()


def _in_training(c: Context, other: Instance, plain: Tensor, in_eval: Outcome) -> Outcome:
    drawn = [c.y(c.x, other) for _ in range(DRAWS)]
    if bool(plain.isfinite().all()) and not all(bool(y.isfinite().all()) for y in drawn):
        return fails("not_finite", math.inf)
    if not any(max_difference(y, plain) > 0 for y in drawn):
        drops = any(isinstance(part, nn.Dropout) and part.p > 0 for part in other.obj.modules())
        return fails("never_drops") if drops else not_tested("no_dropout")
    if c.causal and not c.leaks and (leak := _leak(c, other)):
        return fails("leaks", leak)
    return Outcome(True, in_eval.max_difference)


def _leak(c: Context, other: Instance) -> float:
    """How far later tokens change earlier outputs under the same dropout; 0.0 if only by rounding."""

    def drawn(x: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return c.y(x, other)

    before = drawn(c.x)
    if max_difference(drawn(c.x), before) > 0:
        return 0.0  # its random numbers are not those of torch's generator
    most = float(influence(drawn, c.x, before, range(1, c.x.size(1)), onward=True).triu().max())
    return most if most > rounding(c, before) else 0.0


def weights_before_dropout(c: Context) -> Outcome:
    """Weights returned in training are those before dropout."""
    returned, why = returned_weights(c)
    if c.instance.module is None or returned is None:
        return not_tested(why or "no_module")
    other = c.rebuild(dropout=DROPOUT)
    sums = []
    for training in (True, False):
        other.obj.train(training)
        weights = c.run(c.x, other, weights=True).weights
        sums.append(torch.ones(1) if weights is None else weights.to(torch.float64).sum(-1))
    in_training, in_eval = (max_difference(s, torch.ones_like(s)) for s in sums)
    if in_training > 1e-3 >= in_eval:
        in_torch = any(isinstance(part, nn.MultiheadAttention) for part in c.instance.module.modules())
        return fails("after_dropout_in_torch" if in_torch else "after_dropout", in_training)
    return Outcome(True, in_training)
