"""Which later tokens a block hides, where it hides some of them and not all."""

from __future__ import annotations

import torch
from torch import Tensor

from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.search_case import inputs


def hidden_in_part(c: Context) -> tuple[str, dict[str, int]]:
    """Say which it hides if some later tokens and not all, or ""; and which one a token sees past which it does not.

    The second is no design: one that looks ahead sees the nearest first, and one that sees a window hides a past too.
    """
    seen = _seen(c)
    if seen is None:
        return "", {}
    later = [[bool(seen[i, j]) for j in range(i + 1, len(seen))] for i in range(len(seen))]
    flat = [one for row in later for one in row]
    if all(flat) or not any(flat):
        return "", {}
    # A mask goes by distance. What a wrong split or merge mixes up does not, and is no mask.
    by_distance = all(len(set(seen.diagonal(d).tolist())) == 1 for d in range(1, len(seen)))
    past = bool(seen.tril().sum() == torch.ones_like(seen).tril().sum())
    hides = "some_later" if past else "some_later_and_earlier"
    for i, row in enumerate(later):
        if past and by_distance and False in row and True in row[row.index(False) :]:
            near = row.index(False)
            far = near + row[near:].index(True)
            return hides, {"token": i, "near": i + 1 + near, "far": i + 1 + far}
    return hides, {}


def _seen(c: Context) -> Tensor | None:
    """Find which token j (column) moves which output i (row): (T, T), or None where the output has other axes.

    Several inputs are drawn, and small ones: one weight may be zero by rounding, or by a choice of the largest.
    """
    s = c.built.sizes
    seen = torch.zeros(s.seq_len, s.seq_len, dtype=torch.bool)
    for seed, size in ((1, 1.0), (2, 0.3), (3, 0.1)):
        x = size * inputs(s.batch_size, s.seq_len, s.d_model, seed)
        try:
            y = c.y(x)
            if y.dim() != 3 or y.size(1) != s.seq_len:
                return None
            for j in range(s.seq_len):
                other = x.clone()
                other[:, j] *= -1.5  # no shift: a LayerNorm inside would not see it
                seen[:, j] |= (c.y(other) != y).any(-1).any(0)
        except (Exception, SystemExit):
            return None
    return seen
