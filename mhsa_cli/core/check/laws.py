"""The laws of attention: each asks one thing of a candidate and says what it saw, in plain words.

A law is a function of a `Context`; it gives whether it holds (None: it cannot be asked), the worst figure, and what was
seen. A new law is a function and a line in `LAWS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.core.check.answers import own_weights, right_output, rounding, weights_of
from mhsa_cli.core.check.built import Built
from mhsa_cli.core.check.calling import CallError, raised
from mhsa_cli.core.check.context import Context
from mhsa_cli.core.check.laws_of_dropout import dropout_only_in_training, weights_before_dropout
from mhsa_cli.core.check.laws_of_heads import heads_are_separate, left_over, order_of_heads
from mhsa_cli.core.check.laws_of_modules import (
    half_precision,
    heads_must_divide,
    mask_moves,
    parameters_registered,
    parameters_used,
    saved_and_loaded,
    too_long,
)
from mhsa_cli.core.check.laws_of_state import no_memory, same_answer_twice, second_step
from mhsa_cli.core.check.naming import more_than_attention
from mhsa_cli.core.check.seen import Seen, close
from mhsa_cli.core.check.tensors import worst
from mhsa_cli.records.check import Law


def shape(c: Context) -> Seen:
    """Ask for (B, T, D)."""
    found, wanted = tuple(c.y(c.x).shape), tuple(c.x.shape)
    if c.heads == 1 and c.match is not None and c.match.layout.roles.out is None:
        wanted = (*wanted[:2], c.match.layout.roles.v.size(1))  # one head alone gives its own width
    return Seen(found == wanted, None, "" if found == wanted else f"{wanted} in, {found} out")


def several_sizes(c: Context) -> Seen:
    """Ask for other numbers of rows and tokens."""
    D, T = c.built.sizes.d_model, c.built.sizes.seq_len
    width = c.y(c.x).size(-1)
    if c.candidate.built_for_one_length:
        return Seen(False, None, f"it takes rows of exactly {T} tokens, and fails on shorter ones")
    for B, tokens in ((1, T), (3, T - 2), (5, 2)):
        try:
            found = tuple(c.y(torch.ones(B, tokens, D)).shape)
        except (Exception, SystemExit) as error:
            return Seen(False, None, f"B={B}, T={tokens}: {raised(error)}")
        if found != (B, tokens, width):
            return Seen(False, None, f"B={B}, T={tokens}: the output is {found}")
    return Seen(True, None, "")


def one_token(c: Context) -> Seen:
    """Ask that one token alone attends to itself: y = out(v)."""
    if c.match is None or c.candidate.built_for_one_length:
        return Seen(None, None, "its weights could not be read")
    x = c.x[:, :1]
    return close(c.y(x), right_output(c, x), "T=1: y is not out(v)")


def equal_to_reference(c: Context) -> Seen:
    """Compare with the reference in float64."""
    if c.match is None:
        return Seen(False, None, "no reading of its weights gives the reference, nor a known fault of it")
    y, wanted = c.y(c.x), right_output(c, c.x)
    return close(y, wanted, "")


def causal(c: Context) -> Seen:
    """Ask that a later token changes nothing of an earlier output but by rounding."""
    if not c.causal:
        return Seen(None, None, f"it {c.hides}" if c.hides else "it has no causal mask: every token sees all")
    x, y = c.x, c.y(c.x)
    most, seen, limit = 0.0, "", rounding(c, y)
    for later in range(1, x.size(1)):
        other = x.clone()
        other[:, later:] *= -1.5  # no shift: a LayerNorm inside would not see it
        moved = (c.y(other)[:, :later] - y[:, :later]).abs().nan_to_num(nan=math.inf)
        most = max(most, float(moved.max()))
        if bool((moved > limit).any()):
            first = int((moved > limit).any(-1).any(0).nonzero()[0])
            seen = seen or f"token {later} changes the output of token {first}"
    return Seen(not seen, most, seen)


def rows_sum_to_one(c: Context) -> Seen:
    """Ask that weights sum to one: by the weights returned, else by equal tokens, which must all come out alike."""
    weights, why = weights_of(c)
    if weights is not None and weights.dim() == 4:
        sums = weights.sum(-1)
        return close(sums, torch.ones_like(sums), "a row of weights does not sum to one")
    if c.match is None and (more := more_than_attention(c.slots) or left_over(c)):
        return Seen(None, None, f"{why}, and it holds more than attention: {', '.join(more)}")
    x = c.x[:, :1].expand(-1, c.x.size(1), -1).contiguous()
    y = c.y(x)
    return close(y, y[:, :1].expand_as(y), "equal tokens come out different: rows of weights have different sums")


def batch_rows_are_independent(c: Context) -> Seen:
    """Ask that another row of the batch changes nothing but by rounding."""
    y, off = _beside(c, 2.0)
    passed = off <= rounding(c, y)
    return Seen(passed, off, "" if passed else "another row of the batch changes row 0")


def nan_stays_in_its_row(c: Context) -> Seen:
    """Ask that a NaN in another row of the batch changes nothing."""
    y, off = _beside(c, math.nan, c.again())  # a new one: others may keep the NaN
    passed = off <= rounding(c, y)
    return Seen(passed, off, "" if passed else "a NaN in another row of the batch changes row 0")


def _beside(c: Context, number: float, built: Built | None = None) -> tuple[Tensor, float]:
    """Give the output of row 0, and how far it moves when all other rows hold one number."""
    x, y = c.x, c.y(c.x, built)[0]
    x[1:] = number
    return y, worst(c.y(x, built)[0], y)


def weights_returned(c: Context) -> Seen:
    """Ask that the weights returned are those that made the output."""
    found, why = weights_of(c)
    if found is None:
        return Seen(None, None, why)
    if c.match is None:
        return Seen(None, None, "its weights could not be read")
    wanted = own_weights(c)
    if found.size(1) == 1 and c.heads > 1:
        wanted = wanted.mean(1, keepdim=True)
    return close(found, wanted, "the weights returned are not those that made the output")


def extreme_scores(c: Context) -> Seen:
    """Ask that huge scores neither overflow nor leak past the mask."""
    if c.match is None or c.match.faults:
        return Seen(None, None, "asked of what is right at usual scores")
    x = 300 * c.x
    y = c.y(x)
    if not bool(y.isfinite().all()):
        return Seen(False, math.inf, "scores of about 10^5 give NaN or infinity: subtract the largest of a row first")
    wanted = right_output(c, x)
    scale = max(1.0, float(wanted.abs().max()))
    off = worst(y, wanted) / scale
    limit = 1e-5 if c.built.dtype == torch.float64 else 1e-2
    leaks = "at scores of about 10^5 the fill no longer hides masked keys: use -inf"
    return Seen(off <= limit, off, "" if off <= limit else leaks)


def input_left_alone(c: Context) -> Seen:
    """Ask that the caller's tensor stays as it is."""
    x = c.x
    before = x.clone()
    c.run(x)
    return Seen(torch.equal(x, before), None, "" if torch.equal(x, before) else "x is changed in place")


def gradients_are_finite(c: Context) -> Seen:
    """Ask for a finite gradient at every input."""
    if c.built.numpy:
        return Seen(None, None, "NumPy has no gradient")
    x = c.x.requires_grad_()
    try:
        c.built.run(c.plan, x).y.square().sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if "a second time" not in str(error):
            raise
        # A cache for generating holds on to the graph of an earlier law.
        c.again().run(c.plan, x).y.square().sum().backward()  # type: ignore[no-untyped-call]
    finite = x.grad is not None and bool(x.grad.isfinite().all())
    return Seen(finite, None, "" if finite else "the gradient of the input is missing or not finite")


class _Entry(NamedTuple):
    ask: Callable[[Context], Seen]
    edge: bool = False


LAWS: dict[str, _Entry] = {
    "shape": _Entry(shape),
    "equal to the reference": _Entry(equal_to_reference),
    "causal": _Entry(causal),
    "rows of weights sum to one": _Entry(rows_sum_to_one),
    "one token attends to itself": _Entry(one_token),
    "other batch and row sizes": _Entry(several_sizes),
    "batch rows are independent": _Entry(batch_rows_are_independent),
    "heads are separate": _Entry(heads_are_separate),
    "order of heads": _Entry(order_of_heads),
    "every parameter is used": _Entry(parameters_used),
    "parameters are registered": _Entry(parameters_registered),
    "same answer twice in eval": _Entry(same_answer_twice),
    "dropout only in training": _Entry(dropout_only_in_training),
    "no memory of earlier calls": _Entry(no_memory),
    "weights returned are those used": _Entry(weights_returned),
    "weights returned in training": _Entry(weights_before_dropout, edge=True),
    "saved and loaded": _Entry(saved_and_loaded),
    "the mask moves with the module": _Entry(mask_moves),
    "gradients are finite": _Entry(gradients_are_finite),
    "the input is left alone": _Entry(input_left_alone),
    "heads that do not divide": _Entry(heads_must_divide),
    "rows that are too long": _Entry(too_long),
    "a second step of training": _Entry(second_step, edge=True),
    "a NaN stays in its row": _Entry(nan_stays_in_its_row, edge=True),
    "extreme scores": _Entry(extreme_scores, edge=True),
    "half precision": _Entry(half_precision, edge=True),
}


def ask(c: Context) -> list[Law]:
    """Ask every law; one that the candidate answers with an exception fails, and says with which."""
    found = []
    for name, (law, edge) in LAWS.items():
        try:
            seen = law(c)
        except (Exception, SystemExit) as error:
            seen = Seen(False, None, str(error) if isinstance(error, CallError) else raised(error))
        found.append(Law(name, seen.passed, seen.worst, seen.says, edge))
    return found
