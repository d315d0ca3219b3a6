"""Try on a folder what runs need of its file system: files written, replaced whole, and locked."""

from __future__ import annotations

from pathlib import Path

from mhsa_cli.errors import StorageError
from mhsa_cli.runs.atomic import temporary_beside, write_file_atomic, write_new_folder
from mhsa_cli.runs.disk import storage_errors
from mhsa_cli.runs.lock import RunLock, is_locked


def try_folder(folder: Path) -> bool:
    """Write, replace and lock a file in a temporary folder of `folder`; return whether locks hold. Leaves nothing.

    Raises: StorageError if the file system refuses.
    """
    with storage_errors("write in", folder), temporary_beside(folder / "trial") as place:
        write_new_folder(place, {"file": b"old"})
        write_file_atomic(place / "file", b"new")
        lock = RunLock(place / "lock")
        try:
            lock.acquire()
        except StorageError:
            return False
        held = is_locked(place / "lock")
        lock.release()
        return held and not is_locked(place / "lock")
