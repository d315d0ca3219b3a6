"""Ask a candidate itself which rows of a fused matrix make values, so that fewer readings of it need be tried."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mhsa_cli.core.check.context import Context
from mhsa_cli.core.check.layouts import Layout, layouts


def probed(c: Context, readings: Sequence[Layout]) -> Sequence[Layout]:
    """Keep the readings of a fused matrix whose values are where the output is linear in the weights; all if unsure."""
    fused = [reading for reading in readings if "qkv" in reading.paths]
    if len(fused) < 8:
        return readings
    path = fused[0].paths["qkv"]
    linear = _linear_entries(c, path)
    if linear is None:
        return readings
    marked = {p: torch.zeros_like(n) for p, n in c.numbers.items()}
    marked[path] = linear.to(torch.float64)
    kept = {
        reading.says
        for reading in layouts(c.slots, marked, c.built.sizes.d_model, c.heads)
        if bool((reading.roles.v == 1).all()) and not bool((reading.roles.q == 1).any())
    }
    return [reading for reading in readings if reading.says in kept] or readings


def _linear_entries(c: Context, path: str) -> Tensor | None:
    """Mark the entries of a fused matrix along its long axis in which the output is linear; None if not a third are.

    Values enter linearly, queries and keys by way of the softmax.
    """
    slot = next(s for s in c.slots if s.path == path)
    old = c.numbers[path]
    if old.dim() != 2:
        return None
    axis = 0 if old.size(0) > old.size(1) else 1
    x, found = c.x[:1], torch.zeros(old.size(axis), dtype=torch.bool)
    before = c.y(x)
    generator = torch.Generator().manual_seed(3)
    try:
        for row in range(old.size(axis)):
            step = torch.randn(old.size(1 - axis), generator=generator, dtype=torch.float64)
            moved = []
            for times in (1.0, 2.0):
                new = old.clone()
                new.select(axis, row).add_(times * step)
                slot.write(new)
                moved.append(c.y(x) - before)
            bend = (moved[1] - 2 * moved[0]).abs().max()
            found[row] = bool(bend <= 1e-6 * max(1.0, float(moved[1].abs().max())))
    finally:
        slot.write(old)
    if int(found.sum()) * 3 != len(found):
        return None
    return (found.unsqueeze(1) if axis == 0 else found.unsqueeze(0)).expand(old.shape)
