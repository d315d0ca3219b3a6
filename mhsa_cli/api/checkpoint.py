"""Checkpoints of any torch module and optimizer, for training loops of your own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO

from mhsa_cli.jobs.guest import as_guest

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


def save_checkpoint(
    path: str | os.PathLike[str] | BinaryIO, module: nn.Module, optimizer: Optimizer | None = None, step: int = 0
) -> None:
    """Save a torch module, its optimizer and the step as one safetensors file; `path` may be an open binary file.

    Saved are both state_dicts, in full and without pickle. A file at `path` is replaced whole or not at all.
    Raises: UsageError for a state that is no plain data; StorageError if the disk refuses.
    """
    with as_guest():
        from mhsa_cli.jobs.module_checkpoint import save

        save(path, module, optimizer, step)


def load_checkpoint(
    path: str | os.PathLike[str] | BinaryIO, module: nn.Module, optimizer: Optimizer | None = None
) -> int:
    """Load what `save_checkpoint` saved into a module and its optimizer, bit for bit, and return the step.

    Without `optimizer` the module alone is loaded. Raises: DamageError if a bit differs from what was saved; RunError
    if names, shapes, dtypes or the optimizer differ: nothing is changed then.
    """
    with as_guest():
        from mhsa_cli.jobs.module_checkpoint import load

        return load(path, module, optimizer)
