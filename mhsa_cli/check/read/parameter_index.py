"""Where each role's numbers lie in a candidate's own tensors, so that one head can be changed and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_layouts import Layout, Name, layouts
from mhsa_cli.check.tensors import Slot


def addresses_of(found: list[Slot], d_model: int, n_heads: int) -> dict[Name, Roles]:
    """Give, for each reading of the weights, roles that hold addresses: places in all tensors laid end to end."""
    start, addresses = 0, {}
    for slot in found:
        size = tuple(slot.value.shape)
        count = math.prod(size)
        addresses[slot.path] = torch.arange(start, start + count, dtype=torch.float64).view(size)
        start += count
    return {layout.name: layout.roles for layout in layouts(found, addresses, d_model, n_heads)}


def read_all(found: list[Slot]) -> Tensor:
    """Read all tensors into one vector, end to end."""
    return torch.cat([slot.read().flatten() for slot in found])


def write_all(found: list[Slot], numbers: Tensor) -> None:
    """Write all tensors from one vector, end to end."""
    start = 0
    for slot in found:
        size = tuple(slot.value.shape)
        count = math.prod(size)
        slot.write(numbers[start : start + count].view(size))
        start += count


def at(addresses: Tensor) -> Tensor:
    """Turn addresses, kept as floats, into an index."""
    return addresses.round().long()


class Places:
    """The numbers of q, k, v and out by head, in the candidate's own tensors, read in one layout."""

    def __init__(self, found: list[Slot], layout: Layout, d_model: int, n_heads: int) -> None:
        self._slots = found
        self.roles: Roles = addresses_of(found, d_model, n_heads)[layout.name]
        self._all = read_all(found)

    def change(self, edit: Callable[[Roles, Tensor], None]) -> None:
        """Write the numbers after `edit(addresses, numbers)` changed a copy of them in place."""
        numbers = self._all.clone()
        edit(self.roles, numbers)
        write_all(self._slots, numbers)

    def restore(self) -> None:
        """Write the numbers as they were."""
        write_all(self._slots, self._all)
