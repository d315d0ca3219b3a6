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

from mhsa_cli.core.check.calling import CallError, raised
from mhsa_cli.core.check.context import Context
from mhsa_cli.core.check.laws_of_modules import (
    dropout_only_in_training,
    half_precision,
    heads_must_divide,
    mask_moves,
    parameters_registered,
    parameters_used,
    saved_and_loaded,
    too_long,
    weights_before_dropout,
)
from mhsa_cli.core.check.naming import more_than_attention
from mhsa_cli.core.check.places import Places, at
from mhsa_cli.core.check.reference import Reference, Roles
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
    return close(c.y(x), _right(c, x), "T=1: y is not out(v)")


def equal_to_reference(c: Context) -> Seen:
    """Compare with the reference in float64."""
    if c.match is None:
        return Seen(False, None, "no reading of its weights gives the reference, nor a known fault of it")
    y, wanted = c.y(c.x), _right(c, c.x)
    return close(y, wanted, "")


def causal(c: Context) -> Seen:
    """Ask that a later token changes no bit of an earlier output."""
    if not c.causal:
        return Seen(None, None, "it has no causal mask: every token sees all")
    x, y = c.x, c.y(c.x)
    most, seen = 0.0, ""
    for later in range(1, x.size(1)):
        other = x.clone()
        other[:, later:] *= -1.5  # no shift: a LayerNorm inside would not see it
        moved = (c.y(other)[:, :later] - y[:, :later]).abs()
        if bool((moved != 0).any()):
            most = max(most, float(moved.nan_to_num(nan=math.inf).max()))
            first = int((moved != 0).any(-1).any(0).nonzero()[0])
            seen = seen or f"token {later} changes the output of token {first}"
    return Seen(not seen, most, seen)


def rows_sum_to_one(c: Context) -> Seen:
    """Ask that weights sum to one: by the weights returned, else by equal tokens, which must all come out alike."""
    weights = c.run(c.x, weights=True).weights
    if weights is not None and weights.dim() == 4:
        sums = weights.to(torch.float64).sum(-1)
        return close(sums, torch.ones_like(sums), "a row of weights does not sum to one")
    if c.match is None and more_than_attention(c.slots):
        return Seen(None, None, "it does not return them, and holds more than attention")
    x = c.x[:, :1].expand(-1, c.x.size(1), -1).contiguous()
    y = c.y(x)
    return close(y, y[:, :1].expand_as(y), "equal tokens come out different: rows of weights have different sums")


def batch_rows_are_independent(c: Context) -> Seen:
    """Ask that another row of the batch changes nothing, not even a NaN in it."""
    x, y = c.x, c.y(c.x)
    for new, says in ((2.0, "another row"), (math.nan, "a NaN in another row")):
        other = x.clone()
        other[1:] = new
        moved = (c.y(other)[0] - y[0]).abs().nan_to_num(nan=math.inf)
        if bool((moved > 0).any()):
            return Seen(False, float(moved.max()), f"{says} of the batch changes row 0")
    return Seen(True, 0.0, "")


def _places(c: Context) -> Places | None:
    reading = c.reading
    if reading is None or c.heads == 1 or reading.fault or reading.roles.k.size(0) != c.heads:
        return None
    return Places(c.slots, reading, c.built.sizes.d_model, c.heads)


def heads_are_separate(c: Context) -> Seen:
    """Ask that the queries of a head move nothing once its values are zero."""
    places = _places(c)
    if places is None:
        return Seen(None, None, "one head, or heads that share, or unread weights")

    def silent(roles: Roles, numbers: Tensor) -> None:
        numbers[at(roles.v[0])] = 0.0
        if roles.v_bias is not None:
            numbers[at(roles.v_bias[0])] = 0.0

    def moved(roles: Roles, numbers: Tensor) -> None:
        silent(roles, numbers)
        numbers[at(roles.q[0])] += 1.0

    try:
        places.change(silent)
        before = c.y(c.x)
        places.change(moved)
        return close(c.y(c.x), before, "the queries of head 0 move the output although its values are zero")
    finally:
        places.restore()


def order_of_heads(c: Context) -> Seen:
    """Ask that heads given in reverse order, in all their matrices, give the same output."""
    places = _places(c)
    if places is None or (c.reading and c.reading.roles.out is None):
        return Seen(None, None, "one head, or heads that share, or unread weights")

    def turned(roles: Roles, numbers: Tensor) -> None:
        old = numbers.clone()
        for name in ("q", "k", "v", "q_bias", "k_bias", "v_bias"):
            where = getattr(roles, name)
            if where is not None:
                numbers[at(where)] = old[at(where.flip(0))]
        if roles.out is not None:
            out = roles.out.view(roles.out.size(0), c.heads, -1)
            numbers[at(out)] = old[at(out.flip(1))]

    try:
        before = c.y(c.x)
        places.change(turned)
        return close(c.y(c.x), before, "heads in another order give another output")
    finally:
        places.restore()


def same_answer_twice(c: Context) -> Seen:
    """Ask for the same bits in eval, called twice."""
    with torch.no_grad():
        a, b = (c.built.run(c.plan, c.x).y for _ in range(2))
    off = worst(a, b)
    return Seen(off == 0, off, "" if off == 0 else "two calls on one input differ")


def no_memory(c: Context) -> Seen:
    """Ask that other inputs in between, longer and shorter, change nothing."""
    before = c.y(c.x)
    for T in (c.x.size(1), c.x.size(1) - 3):
        if not c.candidate.built_for_one_length or c.x.size(1) == T:
            c.y(torch.full((3, T, c.x.size(2)), 0.7))
    off = worst(c.y(c.x), before)
    return Seen(off == 0, off, "" if off == 0 else "the same input gives another output after other calls")


def weights_returned(c: Context) -> Seen:
    """Ask that the weights returned are those that made the output."""
    weights = c.run(c.x, weights=True).weights
    if weights is None:
        return Seen(None, None, "it does not return its weights")
    if c.match is None:
        return Seen(None, None, "its weights could not be read")
    wanted = Reference(c.match.layout.roles, c.x.double(), c.positions(c.x.size(1))).weights(c.match.spec)
    found = weights.to(torch.float64)
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
    wanted = _right(c, x)
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


def _right(c: Context, x: Tensor) -> Tensor:
    """Compute what the reference gives with the candidate's own weights."""
    assert c.match is not None
    spec = c.match.spec._replace(project="right", split="right", scale="d_head", fill="inf", softmax="keys",
                                 values="right", merge="right", out="right",
                                 rope=c.right_rope, mask="causal" if c.causal else "none")  # fmt: skip
    return Reference(c.match.layout.roles, x.double(), c.positions(x.size(1))).output(spec)


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
    "weights returned in training": _Entry(weights_before_dropout),
    "saved and loaded": _Entry(saved_and_loaded),
    "the mask moves with the module": _Entry(mask_moves),
    "gradients are finite": _Entry(gradients_are_finite),
    "the input is left alone": _Entry(input_left_alone),
    "heads that do not divide": _Entry(heads_must_divide),
    "rows that are too long": _Entry(too_long),
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
