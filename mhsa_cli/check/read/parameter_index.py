"""Positions of each role's numbers in the tensors of a block, so that one head can be changed and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_layouts import LayoutName, layouts
from mhsa_cli.check.tensors import Slot


def index_layouts(found: list[Slot], d_model: int, n_heads: int) -> dict[LayoutName, Roles]:
    """Give, for each layout of the weights, roles that hold indices into all tensors laid end to end."""
    start, indices = 0, {}
    for slot in found:
        size = tuple(slot.value.shape)
        count = math.prod(size)
        indices[slot.path] = torch.arange(start, start + count).view(size)
        start += count
    return {layout.name: layout.roles for layout in layouts(found, indices, d_model, n_heads)}


@contextmanager
def editable_weights(found: list[Slot]) -> Iterator[tuple[Tensor, Callable[[Tensor], None]]]:
    """Give all numbers as one vector, end to end, and a function that overwrites them; restores them at the end."""
    numbers = torch.cat([slot.read().flatten() for slot in found])
    counts = [math.prod(slot.value.shape) for slot in found]

    def write(new: Tensor) -> None:
        for slot, part in zip(found, new.split(counts), strict=True):
            slot.write(part.view(tuple(slot.value.shape)))

    try:
        yield numbers, write
    finally:
        write(numbers)


def scaled(numbers: Tensor, factor: float, *roles: Tensor | None) -> Tensor:
    """Copy numbers, those at the indices of some roles multiplied; None is a missing role."""
    new = numbers.clone()
    for index in roles:
        if index is not None:
            new[index] *= factor
    return new
