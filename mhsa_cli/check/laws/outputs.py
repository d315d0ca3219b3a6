"""Laws about outputs and returned weights: equal to those of the reference, and independent of other calls."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mhsa_cli.check.call.instance import Instance
from mhsa_cli.check.call.name_lexicon import input_kind
from mhsa_cli.check.laws.outcome import HOLDS, Outcome, close, fails, not_tested, within
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.influence import influence
from mhsa_cli.check.match.search import TOLERANCE
from mhsa_cli.check.read.reference import Reference
from mhsa_cli.check.source.packages import error_line
from mhsa_cli.check.tensors import max_difference, scale_of

# Difference due to rounding, relative to the largest output: far above a change of summation order, far below a leak.
ROUNDING = {torch.float64: 1e-11, torch.float32: 1e-5}


def shape(c: Context) -> Outcome:
    """The output is (B, T, D)."""
    found, expected = tuple(c.y(c.x).shape), tuple(c.x.shape)
    if c.heads == 1 and c.match is not None and c.match.layout.roles.out is None:
        expected = (*expected[:2], c.match.layout.roles.v.size(1))  # a single head gives its own width
    return HOLDS if found == expected else fails("other_shape", expected=expected, found=found)


def several_sizes(c: Context) -> Outcome:
    """Other numbers of rows and tokens are accepted."""
    D, T = c.instance.sizes.d_model, c.instance.sizes.seq_len
    width = c.y(c.x).size(-1)
    lengths = (T, T, T) if c.block.built_for_one_length else (T, T - 2, 2)
    for B, tokens in zip((1, 3, 5), lengths, strict=True):
        try:
            found = tuple(c.y(torch.ones(B, tokens, D)).shape)
        except (Exception, SystemExit) as error:
            return fails("raised_at", B=B, T=tokens, message=error_line(error))
        if found != (B, tokens, width):
            return fails("other_shape", B=B, T=tokens, found=found)
    return HOLDS


def shorter_sequences(c: Context) -> Outcome:
    """Sequences shorter than the longest are accepted."""
    return fails("one_length", T=c.instance.sizes.seq_len) if c.block.built_for_one_length else HOLDS


def one_token(c: Context) -> Outcome:
    """A single token attends to itself: y = out(v)."""
    if c.match is None or c.block.built_for_one_length or c.match.spec.mask == "others":
        return not_tested("no_layout")
    x = c.x[:, :1]
    return close(c.y(x), reference_output(c, x), "differs")


def equal_to_reference(c: Context) -> Outcome:
    """The output equals the reference in float64."""
    if c.match is None:
        return fails("no_match")
    return close(c.y(c.x), reference_output(c, c.x), "differs")


def causal(c: Context) -> Outcome:
    """A later token changes no earlier output, except by rounding."""
    if not c.causal:
        return not_tested(c.partial_mask or "no_mask")
    x, y = c.x, c.y(c.x)
    earlier = influence(
        c.y, x, y, range(1, x.size(1)), onward=True, nonfinite=math.inf
    ).triu()  # a NaN would hide a leak
    most, leaks = float(earlier.max()), (rounding(c, y) < earlier.T).nonzero().tolist()
    return fails("leaks", most, later=leaks[0][0] + 1, first=leaks[0][1]) if leaks else Outcome(True, most)


def rows_sum_to_one(c: Context) -> Outcome:
    """Rows of returned weights sum to one; without them, equal tokens give equal outputs."""
    weights, why = returned_weights(c)
    if weights is not None and weights.dim() == 4:
        sums = weights.sum(-1)
        return close(sums, torch.ones_like(sums), "row_differs")
    if c.match is None:  # another kind may add something to each token
        return not_tested(why or "no_layout")
    x = c.x[:, :1].expand(-1, c.x.size(1), -1).contiguous()
    y = c.y(x)
    return close(y, y[:, :1].expand_as(y), "tokens_differ")


def batch_rows_independent(c: Context) -> Outcome:
    """Another row of the batch changes nothing, except by rounding."""
    y, off = _effect_of_other_rows(c, 2.0)
    return within(off, rounding(c, y), "row_moves")


def nan_stays_in_its_row(c: Context) -> Outcome:
    """A NaN in another row of the batch changes nothing."""
    y, off = _effect_of_other_rows(c, math.nan, c.rebuild())  # a new one: the NaN may be kept
    return within(off, rounding(c, y), "row_moves")


def _effect_of_other_rows(c: Context, number: float, instance: Instance | None = None) -> tuple[Tensor, float]:
    """Output of row 0, and its change when all other rows are filled with a number."""
    x, y = c.x, c.y(c.x, instance)[0]
    x[1:] = number
    return y, max_difference(c.y(x, instance)[0], y)


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


def weights_returned(c: Context) -> Outcome:
    """Returned weights are those that produced the output."""
    found, why = returned_weights(c)
    if found is None:
        return not_tested(why)
    if c.match is None:
        return not_tested("no_layout")
    expected = expected_weights(c)
    if found.size(1) == 1 and c.heads > 1:
        expected = expected.mean(1, keepdim=True)
    return close(found, expected, "differs")


def extreme_scores(c: Context) -> Outcome:
    """Huge scores neither overflow nor leak past the mask."""
    if c.match is None or c.match.faults:
        return not_tested("not_right")
    x = 300 * c.x
    y = c.y(x)
    if not bool(y.isfinite().all()):
        return fails("not_finite", math.inf)
    expected = reference_output(c, x)
    off = max_difference(y, expected) / scale_of(expected)
    limit = 1e-5 if c.instance.dtype == torch.float64 else 1e-2
    return within(off, limit, "leaks")


def inputs_used(c: Context) -> Outcome:
    """Of queries, keys and values that are given apart, each changes the output, or the queries alone."""
    form = c.call_form
    names = {input_kind(name).replace("x", "q"): name for name in form.inputs}
    if sorted(names) != ["k", "q", "v"] or form.unbatched:
        return not_tested("one_input")
    instance = c.rebuild()  # a new one: something may be kept from earlier calls
    y, other = c.y(c.x, instance), c.x.flip(1) + 1
    other = other.transpose(0, 1) if form.time_first else other
    unread = []
    for name in names.values():
        left = tuple(one for one in form.inputs if one != name)
        value = np.asarray(other.numpy()) if c.instance.numpy else other
        apart = replace(c, call_form=replace(form, inputs=left, fixed={**form.fixed, name: value}))
        try:
            unread += [name] if max_difference(apart.y(c.x, instance), y) <= rounding(c, y) else []
        except (Exception, SystemExit):
            return not_tested("one_input")  # it is for self-attention, and insists on that
    if {names["k"], names["v"]} <= {*unread}:
        return not_tested("one_input")  # self-attention that is called like any other
    return fails("no_effect", name=unread[0]) if unread else HOLDS


def rounding(c: Context, y: Tensor) -> float:
    """Largest difference of two outputs due to rounding; y is one of them."""
    return ROUNDING.get(c.instance.dtype, 1e-2) * scale_of(y)


def reference_output(c: Context, x: Tensor) -> Tensor:
    """Output of the reference with the block's weights: (B, T, D_out) in float64."""
    assert c.match is not None
    return Reference(c.match.layout.roles, x.double(), c.positions(x.size(1))).output(c.right_spec)


def expected_weights(c: Context) -> Tensor:
    """Attention weights (B, H, T, T) of the variant that the block equals."""
    assert c.match is not None
    return Reference(c.match.layout.roles, c.x.double(), c.positions(c.x.size(1))).weights(c.match.spec)


def returned_weights(c: Context, instance: Instance | None = None) -> tuple[Tensor | None, str]:
    """Weights (B, H, T, T) returned for `c.x`, in float64; or None and the code of the reason.

    Some blocks return their scores instead.
    """
    returned = c.run(c.x, instance, weights=True).weights
    if returned is None:
        return None, "no_weights"
    found = returned.to(torch.float64)
    return (None, "scores") if _are_scores(c, found) else (found, "")


def _are_scores(c: Context, found: Tensor) -> bool:
    """Whether returned weights are scores, masked or not, scaled or not: their softmax gives the weights."""
    if bool(found.isinf().any()):
        return True
    if c.match is None:
        return bool((found < -TOLERANCE).any())
    expected = expected_weights(c)
    if found.shape != expected.shape or max_difference(found, expected) <= TOLERANCE:
        return False
    later = torch.ones(found.shape[-2:], dtype=torch.bool).triu(1)
    for factor in (1.0, 1 / math.sqrt(c.match.layout.roles.q.size(1))):
        scores = factor * found
        hidden = scores.masked_fill(later, -math.inf) if c.causal else scores
        if any(max_difference(one.softmax(-1), expected) <= TOLERANCE for one in (scores, hidden)):
            return True
    return False
