"""Save a torch module of anybody's with its optimizer, and load both again: one file, atomic and verified."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from mhsa_cli.core.training.module_state import pack, restore, unpack
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.runs.atomic import write_file_atomic
from mhsa_cli.runs.disk import OpenFile
from mhsa_cli.text import escape

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

Place = str | os.PathLike[str] | BinaryIO


def save(place: Place, module: nn.Module, optimizer: Optimizer | None, step: int) -> None:
    """Save a module, its optimizer and step to a path or an open binary file. Raises: UsageError, StorageError."""
    if not isinstance(step, int) or step < 0:
        raise unwanted("step", repr(step), "a whole number, at least 0")
    data = pack(module, optimizer, step)
    if isinstance(place, str | os.PathLike):
        write_file_atomic(Path(place), data)
    else:
        _method(place, "write")(data)


def load(place: Place, module: nn.Module, optimizer: Optimizer | None) -> int:
    """Load a module and its optimizer from a path or an open binary file, and return the step.

    Raises: DamageError, RunError, StorageError; nothing is changed then.
    """
    if isinstance(place, str | os.PathLike):
        where = escape(Path(place))
        with OpenFile(Path(place)) as file:
            data = file.read()
    else:
        where, data = "the open file", _method(place, "read")()
    return restore(unpack(data, where), module, optimizer, where)


def _method(file: Any, name: str) -> Any:
    """Return the method "read" or "write" of a binary file. Raises: UsageError for anything else."""
    found = getattr(file, name, None)
    if found is None or isinstance(file, io.TextIOBase):
        hint = f"open a file with mode '{name[0]}b'"
        raise UsageError(f"found a {type(file).__name__}, wanted a path or a binary file", hint)
    return found
