"""Which tokens influence which outputs: whether later tokens are hidden, all of them or some."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from mhsa_cli.check.match.context import CallContext
from mhsa_cli.check.match.search import random_input
from mhsa_cli.check.tensors import abs_difference, max_difference, scale_of


def influence(
    call: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, tokens: Iterable[int], *, onward: bool = False,
    nonfinite: float = 0.0,
) -> Tensor:  # fmt: skip
    """Measure how far each output (row) moves when a token (column), or all from it `onward`, changes: (T, n).

    Shapes: x (B, T, D), and y, the output for it. `nonfinite` is the difference of two equal infinities, or of two NaN.
    """
    columns = []
    for token in tokens:
        other = x.clone()
        other[:, token : None if onward else token + 1] *= -1.5  # no shift: a LayerNorm inside would remove it
        columns.append(abs_difference(call(other), y, nonfinite).transpose(0, 1).flatten(1).amax(1))
    return torch.stack(columns, 1)


def sees_future(c: CallContext) -> bool:
    """Whether the last token changes an earlier output."""
    x = c.x
    try:
        y = c.y(c.x)  # not of x: a block may change it
        if y.dim() != 3 or y.size(1) != x.size(1):
            return True
        moved = influence(c.y, x, y, [x.size(1) - 1])[:-1]
    except (Exception, SystemExit):
        return True
    return float(moved.max()) > 1e-9 * scale_of(y)


def detect_time_first(c: CallContext) -> CallContext:
    """Find out whether time is the first axis: then the rows of the batch lie along the second one."""
    x, y = c.x, c.y(c.x)
    if x.size(0) == x.size(1) or y.shape != x.shape or c.call_form.unbatched:
        return c
    row, column = x.clone(), x.clone()
    row[0] *= -1.5
    column[:, 0] *= -1.5
    mixes_first = max_difference(c.y(row)[1:], y[1:]) > 1e-9
    mixes_second = max_difference(c.y(column)[:, 1:], y[:, 1:]) > 1e-9
    return replace(c, call_form=replace(c.call_form, time_first=True)) if mixes_first and not mixes_second else c


def find_partial_mask(visible: Tensor | None, *, sure: bool = False) -> tuple[str, dict[str, int]]:
    """Name the mask if it hides some later tokens and not all, and a visible token beyond a hidden one.

    Such a gap is no design: a block that looks ahead sees the nearest tokens first, a window hides earlier ones too.
    `sure`: nothing but a mask hides them.
    """
    if visible is None:
        return "", {}
    later = [visible[i, i + 1 :].tolist() for i in range(len(visible))]
    flat = [one for row in later for one in row]
    if all(flat) or not any(flat):
        return "", {}
    # A mask depends on the distance; what a wrong split or merge mixes does not, and is no mask.
    by_distance = sure or all(len(set(visible.diagonal(d).tolist())) == 1 for d in range(1, len(visible)))
    sees_past = bool(visible.tril().sum() == torch.ones_like(visible).tril().sum())
    name = "some_later" if sees_past else "some_later_and_earlier"
    for i, row in enumerate(later):
        if sees_past and by_distance and False in row and True in row[row.index(False) :]:
            near = row.index(False)
            far = near + row[near:].index(True)
            return name, {"token": i, "near": i + 1 + near, "far": i + 1 + far}
    return name, {}


def visible_keys(c: CallContext) -> Tensor | None:
    """Whether token j (column) influences output i (row): (T, T), or None if the output has other axes.

    Several inputs are drawn, small ones too: one weight may be zero by rounding, or by a choice of the largest.
    """
    s = c.instance.sizes
    visible = torch.zeros(s.seq_len, s.seq_len, dtype=torch.bool)
    for seed, size in ((1, 1.0), (2, 0.3), (3, 0.1)):
        x = size * random_input(s.batch_size, s.seq_len, s.d_model, seed)
        try:
            y = c.y(x)
            if y.dim() != 3 or y.size(1) != s.seq_len:
                return None
            visible |= influence(c.y, x, y, range(s.seq_len), nonfinite=1.0) > 0
        except (Exception, SystemExit):
            return None
    return visible
