"""Where each role's numbers lie in a block's own tensors, so that one head can be changed and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_layouts import Name, layouts
from mhsa_cli.check.tensors import Slot


def addresses_of(found: list[Slot], d_model: int, n_heads: int) -> dict[Name, Roles]:
    """Give, for each reading of the weights, roles that hold addresses: places in all tensors laid end to end."""
    start, addresses = 0, {}
    for slot in found:
        size = tuple(slot.value.shape)
        count = math.prod(size)
        addresses[slot.path] = torch.arange(start, start + count).view(size)
        start += count
    return {layout.name: layout.roles for layout in layouts(found, addresses, d_model, n_heads)}


@contextmanager
def lent(found: list[Slot]) -> Iterator[tuple[Tensor, Callable[[Tensor], None]]]:
    """Give all numbers in one vector, end to end, and what writes others for the while; then they are as before."""
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
    """Copy numbers, those at the addresses of some roles multiplied; None is a role that is not there."""
    new = numbers.clone()
    for addresses in roles:
        if addresses is not None:
            new[addresses] *= factor
    return new
