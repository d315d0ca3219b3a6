"""Where each role's numbers lie in a candidate's own tensors, so that a law can change one head and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mhsa_cli.core.check.layouts import Layout, layouts
from mhsa_cli.core.check.reference import Roles
from mhsa_cli.core.check.tensors import Slot


class Places:
    """The numbers of q, k, v and out by head, read and written in the candidate's own tensors.

    Found by reading tensors that hold their own addresses in the same layout.
    """

    def __init__(self, found: list[Slot], layout: Layout, d_model: int, n_heads: int) -> None:
        self._slots = list(found)
        start, addresses = 0, {}
        for slot in found:
            size = tuple(slot.value.shape)
            count = int(torch.tensor(size).prod())
            addresses[slot.path] = torch.arange(start, start + count, dtype=torch.float64).view(size)
            start += count
        same = [one for one in layouts(found, addresses, d_model, n_heads) if one.says == layout.says]
        if not same:
            raise LookupError(layout.says)
        self.roles: Roles = same[0].roles
        self._all = torch.cat([slot.read().flatten() for slot in found])

    def change(self, edit: Callable[[Roles, Tensor], None]) -> None:
        """Write the numbers after `edit(addresses, numbers)` changed a copy of them in place."""
        numbers = self._all.clone()
        edit(self.roles, numbers)
        self._write(numbers)

    def restore(self) -> None:
        """Write the numbers as they were."""
        self._write(self._all)

    def _write(self, numbers: Tensor) -> None:
        start = 0
        for slot in self._slots:
            size = tuple(slot.value.shape)
            count = int(torch.tensor(size).prod())
            slot.write(numbers[start : start + count].view(size))
            start += count


def at(addresses: Tensor) -> Tensor:
    """Turn addresses, kept as floats, into an index."""
    return addresses.round().long()
