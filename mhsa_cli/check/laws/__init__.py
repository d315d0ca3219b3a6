"""The laws of attention: each asks one thing of a candidate and says which of a few outcomes it saw.

A law is a function of a `Context`; it gives whether it holds (None: it cannot be asked), the worst figure, a code and
facts. A new law is a function and an entry in `LAWS`, and its sentences are one in `sentences.LAWS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.check.call.call_plan import raised
from mhsa_cli.check.call.instance import Built
from mhsa_cli.check.foreign_words import is_second_backward
from mhsa_cli.check.laws.dropout import dropout_only_in_training, weights_before_dropout
from mhsa_cli.check.laws.heads import heads_separate, left_over, order_of_heads
from mhsa_cli.check.laws.law_result import HOLDS, Seen, close, fails, not_asked, within
from mhsa_cli.check.laws.modules import (
    half_precision,
    heads_must_divide,
    mask_moves,
    parameters_registered,
    parameters_used,
    saved_and_loaded,
    too_long,
)
from mhsa_cli.check.laws.outputs import own_weights, right_output, rounding, weights_of
from mhsa_cli.check.laws.state import no_memory, same_answer_twice, second_step
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.read.weight_names import more_than_attention
from mhsa_cli.check.say import CallError
from mhsa_cli.check.tensors import worst
from mhsa_cli.records.check import REFERENCE


def shape(c: Context) -> Seen:
    """Ask for (B, T, D)."""
    found, wanted = tuple(c.y(c.x).shape), tuple(c.x.shape)
    if c.heads == 1 and c.match is not None and c.match.layout.roles.out is None:
        wanted = (*wanted[:2], c.match.layout.roles.v.size(1))  # one head alone gives its own width
    return HOLDS if found == wanted else fails("other_shape", wanted=wanted, found=found)


def several_sizes(c: Context) -> Seen:
    """Ask for other numbers of rows and tokens."""
    D, T = c.built.sizes.d_model, c.built.sizes.seq_len
    width = c.y(c.x).size(-1)
    if c.candidate.built_for_one_length:
        return fails("one_length", T=T)
    for B, tokens in ((1, T), (3, T - 2), (5, 2)):
        try:
            found = tuple(c.y(torch.ones(B, tokens, D)).shape)
        except (Exception, SystemExit) as error:
            return fails("raised_at", B=B, T=tokens, said=raised(error))
        if found != (B, tokens, width):
            return fails("other_shape", B=B, T=tokens, found=found)
    return HOLDS


def one_token(c: Context) -> Seen:
    """Ask that one token alone attends to itself: y = out(v)."""
    if c.match is None or c.candidate.built_for_one_length:
        return not_asked("no_reading")
    x = c.x[:, :1]
    return close(c.y(x), right_output(c, x), "differs")


def equal_to_reference(c: Context) -> Seen:
    """Compare with the reference in float64."""
    if c.match is None:
        return fails("no_match")
    return close(c.y(c.x), right_output(c, c.x), "differs")


def causal(c: Context) -> Seen:
    """Ask that a later token changes nothing of an earlier output but by rounding."""
    if not c.causal:
        return not_asked(c.hides or "no_mask")
    x, y = c.x, c.y(c.x)
    most, limit = 0.0, rounding(c, y)
    leak: tuple[int, int] | None = None
    for later in range(1, x.size(1)):
        other = x.clone()
        other[:, later:] *= -1.5  # no shift: a LayerNorm inside would not see it
        moved = (c.y(other)[:, :later] - y[:, :later]).abs().nan_to_num(nan=math.inf)
        most = max(most, float(moved.max()))
        if bool((moved > limit).any()):
            first = int((moved > limit).any(-1).any(0).nonzero()[0])
            leak = leak or (later, first)
    return fails("leaks", most, later=leak[0], first=leak[1]) if leak else Seen(True, most)


def rows_sum_to_one(c: Context) -> Seen:
    """Ask that weights sum to one: by the weights returned, else by equal tokens, which must all come out alike."""
    weights, why = weights_of(c)
    if weights is not None and weights.dim() == 4:
        sums = weights.sum(-1)
        return close(sums, torch.ones_like(sums), "row_differs")
    if c.match is None and (more := more_than_attention(c.slots) or left_over(c)):
        return not_asked(f"{why}_and_more", names=more)
    x = c.x[:, :1].expand(-1, c.x.size(1), -1).contiguous()
    y = c.y(x)
    return close(y, y[:, :1].expand_as(y), "tokens_differ")


def batch_rows_independent(c: Context) -> Seen:
    """Ask that another row of the batch changes nothing but by rounding."""
    y, off = _beside(c, 2.0)
    return within(off, rounding(c, y), "row_moves")


def nan_stays_in_its_row(c: Context) -> Seen:
    """Ask that a NaN in another row of the batch changes nothing."""
    y, off = _beside(c, math.nan, c.again())  # a new one: others may keep the NaN
    return within(off, rounding(c, y), "row_moves")


def _beside(c: Context, number: float, built: Built | None = None) -> tuple[Tensor, float]:
    """Give the output of row 0, and how far it moves when all other rows hold one number."""
    x, y = c.x, c.y(c.x, built)[0]
    x[1:] = number
    return y, worst(c.y(x, built)[0], y)


def weights_returned(c: Context) -> Seen:
    """Ask that the weights returned are those that made the output."""
    found, why = weights_of(c)
    if found is None:
        return not_asked(why)
    if c.match is None:
        return not_asked("no_reading")
    wanted = own_weights(c)
    if found.size(1) == 1 and c.heads > 1:
        wanted = wanted.mean(1, keepdim=True)
    return close(found, wanted, "differs")


def extreme_scores(c: Context) -> Seen:
    """Ask that huge scores neither overflow nor leak past the mask."""
    if c.match is None or c.match.faults:
        return not_asked("not_right")
    x = 300 * c.x
    y = c.y(x)
    if not bool(y.isfinite().all()):
        return fails("not_finite", math.inf)
    wanted = right_output(c, x)
    scale = max(1.0, float(wanted.abs().max()))
    off = worst(y, wanted) / scale
    limit = 1e-5 if c.built.dtype == torch.float64 else 1e-2
    return within(off, limit, "leaks")


def input_left_alone(c: Context) -> Seen:
    """Ask that the caller's tensor stays as it is."""
    x = c.x
    before = x.clone()
    c.run(x)
    return HOLDS if torch.equal(x, before) else fails("changed")


def gradients_finite(c: Context) -> Seen:
    """Ask for a finite gradient at every input."""
    if c.built.numpy:
        return not_asked("numpy")
    x = c.x.requires_grad_()
    try:
        c.built.run(c.plan, x).y.square().sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if not is_second_backward(error):
            raise
        # A cache for generating holds on to the graph of an earlier law.
        c.again().run(c.plan, x).y.square().sum().backward()  # type: ignore[no-untyped-call]
    finite = x.grad is not None and bool(x.grad.isfinite().all())
    return HOLDS if finite else fails("not_finite")


class _Entry(NamedTuple):
    """A law: how it is asked, the fault that each outcome of it shows where the output named none, and its place.

    The smaller its `rank`, the sooner is it told of laws that fail: some say why, others follow from it. An edge does
    not make a block wrong.
    """

    ask: Callable[[Context], Seen]
    rank: int = 8
    shows: Mapping[str, str] = {}
    edge: bool = False


LAWS: dict[str, _Entry] = {
    "shape": _Entry(shape, 0),
    REFERENCE: _Entry(equal_to_reference, 9),  # that it differs does not say in what
    "causal": _Entry(causal, 4),
    "rows_sum_to_one": _Entry(rows_sum_to_one, 7),
    "one_token": _Entry(one_token),
    "several_sizes": _Entry(several_sizes),
    "batch_rows_independent": _Entry(batch_rows_independent, 6),
    "heads_separate": _Entry(heads_separate),
    "order_of_heads": _Entry(order_of_heads),
    "parameters_used": _Entry(parameters_used, 5),
    "parameters_registered": _Entry(parameters_registered, shows={"unknown": "parameters_not_registered"}),
    "same_answer_twice": _Entry(same_answer_twice, 2),
    "dropout_only_in_training": _Entry(
        dropout_only_in_training,
        shows={
            "drops_in_eval": "dropout_in_eval",
            "changes_in_eval": "dropout_in_eval",
            "not_finite": "dropout_on_scores",
            "leaks": "dropout_on_scores",
        },
    ),
    "no_memory": _Entry(no_memory, 3, {"remembers": "state_between_calls", "stale": "state_between_calls"}),
    "weights_returned": _Entry(weights_returned, shows={"differs": "weights_not_used"}),
    "weights_before_dropout": _Entry(
        weights_before_dropout, shows={"after_dropout": "weights_after_dropout"}, edge=True
    ),
    "saved_and_loaded": _Entry(saved_and_loaded),
    "mask_moves": _Entry(mask_moves, shows={"stays": "mask_not_a_buffer"}),
    "gradients_finite": _Entry(gradients_finite),
    "input_left_alone": _Entry(input_left_alone, 1, {"changed": "input_changed_in_place"}),
    "heads_must_divide": _Entry(heads_must_divide, shows={"narrower": "heads_not_dividing"}),
    "too_long": _Entry(too_long, 10),  # fails for many reasons, and tells none
    "second_step": _Entry(second_step, edge=True),
    "nan_stays_in_its_row": _Entry(nan_stays_in_its_row, edge=True),
    "extreme_scores": _Entry(extreme_scores, edge=True),
    "half_precision": _Entry(half_precision, edge=True),
}


def ask(c: Context) -> dict[str, Seen]:
    """Ask every law; one that the candidate answers with an exception fails, and says with which."""
    found = {}
    for name, law in LAWS.items():
        try:
            found[name] = law.ask(c)
        except (Exception, SystemExit) as error:
            found[name] = fails("raised", said=str(error) if isinstance(error, CallError) else raised(error))
    return found
