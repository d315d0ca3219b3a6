"""Which tokens move which outputs: whether a block sees the future, and what it hides where it hides some of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from mhsa_cli.check.match.context import Called
from mhsa_cli.check.match.search_case import inputs
from mhsa_cli.check.tensors import distance, worst


def influence(
    call: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, tokens: Iterable[int], *, onward: bool = False,
    alike: float = 0.0,
) -> Tensor:  # fmt: skip
    """Measure how far each output (row) moves when a token (column), or all from it `onward`, is another: (T, n).

    Shapes: x (B, T, D), and y, what the call gives for it. `alike` counts where an output is the same infinity, or no
    number, before and after.
    """
    columns = []
    for token in tokens:
        other = x.clone()
        other[:, token : None if onward else token + 1] *= -1.5  # no shift: a LayerNorm inside would not see it
        columns.append(distance(call(other), y, alike).transpose(0, 1).flatten(1).amax(1))
    return torch.stack(columns, 1)


def sees_future(c: Called) -> bool:
    """Tell whether the last token changes an earlier output."""
    x = c.x
    try:
        y = c.y(c.x)  # not of x: a block may change it
        if y.dim() != 3 or y.size(1) != x.size(1):
            return True
        moved = influence(c.y, x, y, [x.size(1) - 1])[:-1]
    except (Exception, SystemExit):
        return True
    return float(moved.max()) > 1e-9 * max(1.0, float(y.abs().nan_to_num().max()))


def see_axes(c: Called) -> Called:
    """Find out whether time comes first: then a row of the batch lies along the second axis."""
    x, y = c.x, c.y(c.x)
    if x.size(0) == x.size(1) or y.shape != x.shape or c.plan.unbatched:
        return c
    row, column = x.clone(), x.clone()
    row[0] *= -1.5
    column[:, 0] *= -1.5
    leaks = worst(c.y(row)[1:], y[1:]) > 1e-9
    alone = worst(c.y(column)[:, 1:], y[:, 1:]) <= 1e-9
    return replace(c, plan=replace(c.plan, time_first=True)) if leaks and alone else c


def hidden_in_part(c: Called) -> tuple[str, dict[str, int]]:
    """Say which it hides if some later tokens and not all, or ""; and which one a token sees past which it does not.

    The second is no design: one that looks ahead sees the nearest first, and one that sees a window hides a past too.
    """
    seen = _seen(c)
    if seen is None:
        return "", {}
    later = [seen[i, i + 1 :].tolist() for i in range(len(seen))]
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


def _seen(c: Called) -> Tensor | None:
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
            seen |= influence(c.y, x, y, range(s.seq_len), alike=1.0) > 0
        except (Exception, SystemExit):
            return None
    return seen
