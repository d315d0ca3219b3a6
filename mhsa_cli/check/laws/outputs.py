"""What a candidate answers with its output, and what a right one with its weights would."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mhsa_cli.check.call.instance import Built
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.search_case import TOLERANCE
from mhsa_cli.check.read.reference import Reference
from mhsa_cli.check.tensors import worst

# What rounding may move, of the largest output: far above that of sums in another order, far below any leak.
ROUNDING = {torch.float64: 1e-11, torch.float32: 1e-5}


def rounding(c: Context, y: Tensor) -> float:
    """Give how far two outputs may be apart that are the same but for rounding; y is one of them."""
    return ROUNDING.get(c.built.dtype, 1e-2) * max(1.0, float(y.abs().nan_to_num().max()) if y.numel() else 1.0)


def right_output(c: Context, x: Tensor) -> Tensor:
    """Compute what the reference gives with the candidate's own weights: (B, T, D_out) in float64."""
    assert c.match is not None
    spec = c.match.spec._replace(project="right", split="right", scale="d_head", fill="inf", softmax="keys",
                                 values="right", merge="right", out="right",
                                 rope=c.right_rope, mask="causal" if c.causal else "none")  # fmt: skip
    return Reference(c.match.layout.roles, x.double(), c.positions(x.size(1))).output(spec)


def own_weights(c: Context) -> Tensor:
    """Compute the weights (B, H, T, T) of the variant that the candidate equals."""
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
