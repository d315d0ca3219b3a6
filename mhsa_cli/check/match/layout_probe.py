"""Ask a candidate itself which of its numbers make values and outputs, so that fewer readings of them need be tried."""

from __future__ import annotations

import math
from collections.abc import Sequence
from unittest import mock

import torch
from torch import Tensor, nn

from mhsa_cli.check.match.context import Context
from mhsa_cli.check.read.parameter_index import addresses_of, at, read_all, write_all
from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_layouts import Layout
from mhsa_cli.check.tensors import worst


def probed(c: Context, readings: Sequence[Layout]) -> Sequence[Layout]:
    """Keep the readings that the candidate bears out; all of them if it bears out none."""
    return readings if len(readings) < 2 else bearing(c, readings) or readings


def bearing(c: Context, readings: Sequence[Layout]) -> Sequence[Layout]:
    """Give the readings that the candidate bears out.

    With every weight zero but one of the values, from input i, and one of the output, to column j, the output moves
    with feature i of the input alone, and in column j alone, whatever the scores do.
    """
    roles_of = addresses_of(c.slots, c.built.sizes.d_model, c.heads)
    before, still = _stilled(c)
    # A norm would mix the columns; torch's is passed by for the while.
    passing_by = mock.patch.object(nn.LayerNorm, "forward", lambda self, x: x)
    passing_by.start()
    try:
        write_all(c.slots, still)
        rest = c.y(c.x).nan_to_num()
        kept: list[Layout] = []
        for out in (True, False):  # one that applies its output projection not once bears out the values alone
            for reading in readings if not kept else ():
                roles = roles_of.get(reading.name)
                if (
                    roles is not None
                    and reading.fault is None
                    and all(_bears(c, roles, still, rest, spot, out) for spot in SPOTS)
                ):
                    kept.append(reading)
    except (Exception, SystemExit):
        return []
    finally:
        passing_by.stop()
        write_all(c.slots, before)
    return kept


def borne_frames(c: Context, frames: Sequence[str]) -> Sequence[str]:
    """Keep the frames that the candidate bears out: what it gives when all weights but a norm's are zero."""
    before, still = _stilled(c)
    try:
        write_all(c.slots, still)
        y, other = c.y(c.x).nan_to_num(), c.y(2 * c.x.flip(-1)).nan_to_num()
    except (Exception, SystemExit):
        return frames
    finally:
        write_all(c.slots, before)
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


def _stilled(c: Context) -> tuple[Tensor, Tensor]:
    """Give all numbers as they are, and with every weight zero but a norm's."""
    before = read_all(c.slots)
    norms = torch.cat([torch.full((math.prod(slot.value.shape),), slot.norm) for slot in c.slots])
    return before, torch.where(norms, before, torch.zeros_like(before))


NEAR = 1e-5
SPOTS = ((0, 0), (-1, -1), (-1, 1))  # heads and features of the values


def _bears(c: Context, roles: Roles, still: Tensor, rest: Tensor, spot: tuple[int, int], out: bool) -> bool:
    heads, width = roles.v.size(0), roles.v.size(1)
    head, feature = spot[0] % heads, spot[1] % width
    i, j = 3, 8  # an input and a column
    numbers = still.clone()
    numbers[at(roles.v[head, feature, i])] = 1.0
    if out and roles.out is not None:
        for first in range(0, roles.out.size(1), width):  # wherever this head's feature comes out
            numbers[at(roles.out[j, first + feature])] = 1.0
    elif roles.out is not None:  # an output projection that changes nothing, however often it is applied
        numbers[at(roles.out.diagonal())] = 1.0
    write_all(c.slots, numbers)
    moved = c.y(c.x).nan_to_num() - rest
    if not bool((moved.abs() > 1e-9).any()):
        return False
    if out and roles.out is not None:
        column = torch.ones(moved.size(-1), dtype=torch.bool)
        column[j] = False
        if bool((moved[..., column].abs() > 1e-9).any()):
            return False
    other = c.x.clone()
    other[..., i + 1 :] += 1.0
    other[..., :i] -= 0.5
    residual = torch.where(rest.abs() > 1e-9, (other - c.x).to(rest.dtype), torch.zeros_like(rest)) if (
        rest.shape == c.x.shape) else 0.0  # fmt: skip
    return bool(((c.y(other).nan_to_num() - residual - rest - moved).abs() < 1e-9).all())
