"""The laws that ask about the output and the weights that a block gives, and what a right one would give."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mhsa_cli.check.call.call_plan import raised
from mhsa_cli.check.call.instance import Built
from mhsa_cli.check.laws.heads import left_over
from mhsa_cli.check.laws.seen import HOLDS, Seen, close, fails, not_asked, within
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.influence import influence
from mhsa_cli.check.match.search_case import TOLERANCE
from mhsa_cli.check.read.reference import Reference
from mhsa_cli.check.read.weight_names import more_than_attention
from mhsa_cli.check.tensors import worst

# What rounding may move, of the largest output: far above that of sums in another order, far below any leak.
ROUNDING = {torch.float64: 1e-11, torch.float32: 1e-5}


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
    if c.block.built_for_one_length:
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
    if c.match is None or c.block.built_for_one_length:
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
    earlier = influence(c.y, x, y, range(1, x.size(1)), onward=True, alike=math.inf).triu()  # a NaN hides what moves
    most, leaks = float(earlier.max()), (rounding(c, y) < earlier.T).nonzero().tolist()
    return fails("leaks", most, later=leaks[0][0] + 1, first=leaks[0][1]) if leaks else Seen(True, most)


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


def rounding(c: Context, y: Tensor) -> float:
    """Give how far two outputs may be apart that are the same but for rounding; y is one of them."""
    return ROUNDING.get(c.built.dtype, 1e-2) * max(1.0, float(y.abs().nan_to_num().max()) if y.numel() else 1.0)


def right_output(c: Context, x: Tensor) -> Tensor:
    """Compute what the reference gives with the block's own weights: (B, T, D_out) in float64."""
    assert c.match is not None
    spec = c.match.spec._replace(project="right", split="right", scale="d_head", fill="inf", softmax="keys",
                                 values="right", merge="right", out="right",
                                 rope=c.right_rope, mask="causal" if c.causal else "none")  # fmt: skip
    return Reference(c.match.layout.roles, x.double(), c.positions(x.size(1))).output(spec)


def own_weights(c: Context) -> Tensor:
    """Compute the weights (B, H, T, T) of the variant that the block equals."""
    assert c.match is not None
    return Reference(c.match.layout.roles, c.x.double(), c.positions(c.x.size(1))).weights(c.match.spec)


def weights_of(c: Context, built: Built | None = None) -> tuple[Tensor | None, str]:
    """Give the weights (B, H, T, T) that it returns for `c.x`, in float64; or None and the code of why.

    Some return their scores in place of them.
    """
    given = c.run(c.x, built, weights=True).weights
    if given is None:
        return None, "no_weights"
    found = given.to(torch.float64)
    return (None, "scores") if _are_scores(c, found) else (found, "")


def _are_scores(c: Context, found: Tensor) -> bool:
    """Tell whether they are the scores, masked or not, scaled or not: a softmax of them is the weights."""
    if bool(found.isinf().any()):
        return True
    if c.match is None:
        return bool((found < -TOLERANCE).any())
    wanted = own_weights(c)
    if found.shape != wanted.shape or worst(found, wanted) <= TOLERANCE:
        return False
    later = torch.ones(found.shape[-2:], dtype=torch.bool).triu(1)
    for factor in (1.0, 1 / math.sqrt(c.match.layout.roles.q.size(1))):
        scores = factor * found
        hidden = scores.masked_fill(later, -math.inf) if c.causal else scores
        if min(worst(scores.softmax(-1), wanted), worst(hidden.softmax(-1), wanted)) <= TOLERANCE:
            return True
    return False
