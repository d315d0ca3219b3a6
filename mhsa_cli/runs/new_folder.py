"""The folder of a run or sweep: created under a free name, and locked while it is written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Self

from mhsa_cli.errors import BusyError, StorageError, UsageError
from mhsa_cli.runs.atomic import remove
from mhsa_cli.runs.disk import retried, storage_error, storage_errors
from mhsa_cli.runs.line_ends import gitattributes
from mhsa_cli.runs.listing import LOCK, RUN, is_sweep
from mhsa_cli.runs.lock import RunLock, busy, is_locked, root_lock
from mhsa_cli.runs.names import check_name, prepare_root
from mhsa_cli.text import byte_size, quoted


class OwnedFolder(AbstractContextManager["OwnedFolder"]):
    """A folder with a lock file: one process may write, any number may read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = RunLock(path / LOCK)

    @property
    def name(self) -> str:
        """The folder's name, also for a path like `.`."""
        return self.path.name or self.path.resolve().name

    @classmethod
    def _make(cls, root: Path, name: str | None, stem: str, begin: Callable[[Self], None]) -> Self:
        """Create and own `root/name`, or the first free of `stem`, `stem-2` ...; `begin` writes its first file.

        Raises: UsageError for an invalid or taken name, BusyError if its owner is active, StorageError.
        """
        check_name(name if name is not None else stem)
        prepare_root(root)
        with root_lock(root), gitattributes(root):
            folder = cls(_claim(root, name, stem))
            try:
                folder._lock.acquire()
                begin(folder)
            except BaseException:
                folder.close()
                remove(folder.path)  # created above and locked, so no other process has written to it
                raise
        return folder

    def close(self) -> None:
        """Release the lock: other processes may write to the folder."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _claim(root: Path, name: str | None, stem: str) -> Path:
    """Create the folder; mkdir decides between processes. Raises as `OwnedFolder._make`."""
    for path in map(root.joinpath, _free_names(root, stem) if name is None else [name]):
        try:
            retried(os.mkdir, path)
            return path
        except FileExistsError:
            continue
        except OSError as error:
            raise storage_error("create", path, error) from error
    raise _taken(path)


def _free_names(root: Path, stem: str) -> Iterator[str]:
    """Yield `stem`, `stem-2` ... without those that are there now: no call of the system for each of them."""
    with storage_errors("list", root):
        taken = {path.name for path in root.iterdir()}
    for number in count(1):
        found = stem if number == 1 else f"{stem}-{number}"
        if found not in taken:
            yield found


def check_free(root: Path, name: str | None, stem: str) -> None:
    """Check, creating nothing, that a folder of this name can be created. Raises: UsageError, BusyError."""
    check_name(name if name is not None else stem)
    if name is not None and os.path.lexists(root / name):
        raise _taken(root / name)


def _taken(path: Path) -> UsageError | BusyError:
    if is_locked(path / LOCK):
        return busy(path / LOCK)
    rename = "choose another --name"
    if not is_sweep(path) and not os.path.lexists(path / RUN):
        return UsageError((path, " already exists, and is not a run"), rename, "taken")
    what, command = ("sweep", "sweep") if is_sweep(path) else ("run", "train")
    hint = f"mhsa {command} --resume {quoted(path)}; or {rename}"
    return UsageError((f"the {what} ", path, " already exists"), hint, "taken")


def free_space(folder: Path) -> int:
    """Return the bytes that are free on the disk of `folder`. Raises: StorageError."""
    with storage_errors("read the free space of", folder):
        return shutil.disk_usage(folder).free


def check_disk_space(folder: Path, bytes_needed: int) -> None:
    """Check that the disk of `folder` has `bytes_needed` free. Raises: StorageError."""
    free = free_space(folder)
    if free < bytes_needed:
        sizes = f": {byte_size(bytes_needed)} are needed, {byte_size(free)} are free"
        hint = "free some space, keep fewer checkpoints (train.keep), or keep runs on another disk: --runs DIR"
        raise StorageError(("not enough space in ", folder, sizes), hint, "no-space")
