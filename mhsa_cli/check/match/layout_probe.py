"""Test layouts on the block itself: which of its numbers make values and outputs. Fewer layouts are then searched."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn

from mhsa_cli.check.match.context import CallContext
from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_layouts import Layout, index_layouts
from mhsa_cli.check.tensors import editable_weights, max_difference, scale_of

NEAR = 1e-5
SPOTS = ((0, 0), (-1, -1), (-1, 1))  # heads and features of the values


def confirmed_layouts(c: CallContext, layouts: Sequence[Layout]) -> Sequence[Layout]:
    """Select the layouts that the block confirms.

    With every weight zero except one of the values, from input i, and one of the output, to column j, the output
    changes with feature i of the input only, and in column j only, whatever the scores are.
    """
    roles_of = index_layouts(c.slots, c.instance.sizes.d_model, c.heads, layouts)
    possible = [one for one in layouts if one.fault is None and one.name in roles_of]
    # A norm would mix the columns, so torch's is bypassed.
    with mock.patch.object(nn.LayerNorm, "forward", lambda self, x: x), _zeroed(c) as (zeroed, write):
        try:
            write(zeroed)
            rest = c.y(c.x).nan_to_num()
            for out in (True, False):  # a missing or repeated output projection still confirms the values
                probe = _Probe(c, zeroed, write, rest, out)
                kept = [one for one in possible if all(probe.confirms(roles_of[one.name], *spot) for spot in SPOTS)]
                if kept:
                    return kept
        except (Exception, SystemExit):
            return []
    return []


def confirmed_frames(c: CallContext, frames: Sequence[str]) -> Sequence[str]:
    """Select the frames that the block confirms, by its output with all weights zero except those of a norm."""
    with _zeroed(c) as (zeroed, write):
        try:
            write(zeroed)
            y, other = c.y(c.x), c.y(2 * c.x.flip(-1))
        except (Exception, SystemExit):
            return frames
    if y.shape != c.x.shape:
        return frames
    known = y.isfinite() & other.isfinite()  # a softmax over another axis gives NaN where all is masked
    if not bool(known.any()):
        return frames
    if max_difference(y[known], c.x.to(y.dtype)[known]) < NEAR:
        kept = [frame for frame in frames if frame in ("residual", "pre-norm residual")]
    elif max_difference(y[known], other[known]) < NEAR:
        kept = [frame for frame in frames if "residual" not in frame]
    else:
        kept = [frame for frame in frames if frame == "post-norm residual"]
    kept = kept or list(frames)
    if any("pre-norm" in frame for frame in kept) and len(kept) > 1:
        residual = any("residual" in frame for frame in kept)
        once, twice = ((c.y(x) - (x if residual else 0)).nan_to_num() for x in (c.x, 2 * c.x))
        normed = max_difference(once, twice) < 1e-2 * scale_of(once)  # a norm removes the scale
        kept = [frame for frame in kept if frame.startswith("pre-norm") == normed or frame.startswith("post")] or kept
    return kept


@contextmanager
def _zeroed(c: CallContext) -> Iterator[tuple[Tensor, Callable[[Tensor], None]]]:
    """Give all numbers with every weight zero except those of a norm, and a function that overwrites them."""
    norms = torch.cat([torch.full((math.prod(slot.value.shape),), slot.is_norm) for slot in c.slots])
    with editable_weights(c.slots) as (numbers, write):
        yield torch.where(norms, numbers, torch.zeros_like(numbers)), write


class _Probe(NamedTuple):
    """The output `rest` of a block with `zeroed` weights, and whether its output projection is tested as well."""

    c: CallContext
    zeroed: Tensor
    write: Callable[[Tensor], None]
    rest: Tensor
    out: bool

    def confirms(self, roles: Roles, head: int, feature: int) -> bool:
        """Whether one number of the values and one of the output have the effect that a layout predicts."""
        c, rest, D = self.c, self.rest, self.c.instance.sizes.d_model
        i, j = min(3, D - 1), 8 if D > 8 else 0  # a feature of the input and another column
        heads, width = roles.v.size(0), roles.v.size(1)
        head, feature = head % heads, feature % width
        numbers = self.zeroed.clone()
        numbers[roles.v[head, feature, i]] = 1.0
        if self.out and roles.out is not None:
            for first in range(0, roles.out.size(1), width):  # wherever the heads are merged to
                numbers[roles.out[j, first + feature]] = 1.0
        elif roles.out is not None:  # the identity, however often it is applied
            numbers[roles.out.diagonal()] = 1.0
        self.write(numbers)
        moved = c.y(c.x).nan_to_num() - rest
        if not bool((moved.abs() > 1e-9).any()):
            return False
        if self.out and roles.out is not None:
            column = torch.ones(moved.size(-1), dtype=torch.bool)
            column[j] = False
            if bool((moved[..., column].abs() > 1e-9).any()):
                return False
        other = c.x.clone()
        other[..., i + 1 :] += 1.0
        other[..., :i] -= 0.5
        residual = torch.zeros_like(rest)
        if rest.shape == c.x.shape:
            residual = torch.where(rest.abs() > 1e-9, (other - c.x).to(rest.dtype), residual)
        return bool(((c.y(other).nan_to_num() - residual - rest - moved).abs() < 1e-9).all())
