"""A place for a new run or sweep: a folder under a free name, on a disk with room."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from mhsa_cli.errors import StorageError, UsageError
from mhsa_cli.runs.disk import retried, storage_error, told
from mhsa_cli.runs.listing import LOCK, RUN, is_sweep
from mhsa_cli.runs.lock import busy, is_locked
from mhsa_cli.text import escape


def claim(root: Path, name: str | None, stem: str) -> Path:
    """Make the folder `root/name`, or the first free of `stem`, `stem-2` ...; mkdir decides between processes.

    Raises: UsageError if `name` is taken, BusyError if its owner is at work, StorageError.
    """
    number = 1
    while True:
        path = root / (name if name is not None else stem if number == 1 else f"{stem}-{number}")
        try:
            retried(os.mkdir, path)
            return path
        except FileExistsError:
            number += 1
        except OSError as error:
            raise storage_error("create", path, error) from error
        if name is not None:
            raise busy(path / LOCK) if is_locked(path / LOCK) else _taken(path)


def _taken(path: Path) -> UsageError:
    quoted, other = escape(shlex.quote(str(path))), "choose another --name"
    if not is_sweep(path) and not os.path.lexists(path / RUN):
        return UsageError((path, " already exists, and is no run"), other, "taken")
    what, command = ("sweep", "sweep") if is_sweep(path) else ("run", "train")
    hint = f"mhsa {command} --resume {quoted}; or {other}"
    return UsageError((f"the {what} ", path, " already exists"), hint, "taken")


def check_disk_space(folder: Path, bytes_needed: int) -> None:
    """Make sure `folder`'s disk has room for `bytes_needed`. Raises: StorageError."""
    with told("look at the disk of", folder):
        free = shutil.disk_usage(folder).free
    if free < bytes_needed:
        said = ("not enough space in ", folder, f": {_size(bytes_needed)} are needed, {_size(free)} are free")
        hint = "free some space, keep fewer checkpoints (train.keep), or keep runs on another disk: --runs DIR"
        raise StorageError(said, hint, "no-space")


def _size(count: int) -> str:
    value, unit = float(count), "bytes"
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
