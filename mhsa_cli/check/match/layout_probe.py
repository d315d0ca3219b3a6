"""Ask a block itself which of its numbers make values and outputs, so that fewer readings of them need be tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn

from mhsa_cli.check.match.context import Called
from mhsa_cli.check.read.parameter_index import addresses_of, lent
from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_layouts import Layout
from mhsa_cli.check.tensors import worst

NEAR = 1e-5
SPOTS = ((0, 0), (-1, -1), (-1, 1))  # heads and features of the values


def probed(c: Called, readings: Sequence[Layout]) -> Sequence[Layout]:
    """Keep the readings that the block bears out; all of them if it bears out none."""
    return readings if len(readings) < 2 else bearing(c, readings) or readings


def bearing(c: Called, readings: Sequence[Layout]) -> Sequence[Layout]:
    """Give the readings that the block bears out.

    With every weight zero but one of the values, from input i, and one of the output, to column j, the output moves
    with feature i of the input alone, and in column j alone, whatever the scores do.
    """
    roles_of = addresses_of(c.slots, c.built.sizes.d_model, c.heads)
    sure = [(reading, roles_of[reading.name]) for reading in readings
            if reading.fault is None and reading.name in roles_of]  # fmt: skip
    # A norm would mix the columns; torch's is passed by for the while.
    with mock.patch.object(nn.LayerNorm, "forward", lambda self, x: x), _stilled(c) as (still, write):
        try:
            write(still)
            rest = c.y(c.x).nan_to_num()
            for out in (True, False):  # one that applies its output projection not once bears out the values alone
                probe = _Probe(c, still, write, rest, out)
                if kept := [one for one, roles in sure if all(probe.bears_out(roles, *spot) for spot in SPOTS)]:
                    return kept
        except (Exception, SystemExit):
            return []
    return []


def borne_frames(c: Called, frames: Sequence[str]) -> Sequence[str]:
    """Keep the frames that the block bears out: what it gives when all weights but a norm's are zero."""
    with _stilled(c) as (still, write):
        try:
            write(still)
            y, other = c.y(c.x).nan_to_num(), c.y(2 * c.x.flip(-1)).nan_to_num()
        except (Exception, SystemExit):
            return frames
    if y.shape != c.x.shape:
        return frames
    if worst(y, c.x.to(y.dtype)) < NEAR:
        kept = [frame for frame in frames if frame in ("residual", "pre-norm residual")]
    elif worst(y, other) < NEAR:
        kept = [frame for frame in frames if "residual" not in frame]
    else:
        kept = [frame for frame in frames if frame == "post-norm residual"]
    kept = kept or list(frames)
    if any("pre-norm" in frame for frame in kept) and len(kept) > 1:
        added = any("residual" in frame for frame in kept)
        once, twice = (c.y(x).nan_to_num() - (x if added else 0) for x in (c.x, 2 * c.x))
        normed = worst(once, twice) < 1e-2 * max(1.0, float(once.abs().max()))  # a norm does not see the scale
        kept = [frame for frame in kept if frame.startswith("pre-norm") == normed or frame.startswith("post")] or kept
    return kept


@contextmanager
def _stilled(c: Called) -> Iterator[tuple[Tensor, Callable[[Tensor], None]]]:
    """Give all numbers with every weight zero but a norm's, and what writes numbers for the while."""
    norms = torch.cat([torch.full((math.prod(slot.value.shape),), slot.norm) for slot in c.slots])
    with lent(c.slots) as (numbers, write):
        yield torch.where(norms, numbers, torch.zeros_like(numbers)), write


class _Probe(NamedTuple):
    """What a block gave with its weights `still`, and whether its output projection is looked at as well."""

    c: Called
    still: Tensor
    write: Callable[[Tensor], None]
    rest: Tensor
    out: bool

    def bears_out(self, roles: Roles, head: int, feature: int) -> bool:
        """Tell whether one number of the values and one of the output do what a reading says that they do."""
        c, rest, D = self.c, self.rest, self.c.built.sizes.d_model
        i, j = min(3, D - 1), 8 if D > 8 else 0  # an input and another column
        heads, width = roles.v.size(0), roles.v.size(1)
        head, feature = head % heads, feature % width
        numbers = self.still.clone()
        numbers[roles.v[head, feature, i]] = 1.0
        if self.out and roles.out is not None:
            for first in range(0, roles.out.size(1), width):  # wherever this head's feature comes out
                numbers[roles.out[j, first + feature]] = 1.0
        elif roles.out is not None:  # an output projection that changes nothing, however often it is applied
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
