"""Atomic writes: files and folders are written under a temporary name, synced, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from mhsa_cli.errors import StorageError
from mhsa_cli.runs.disk import SAFE, kind_of, retried, storage_errors

# Temporary names that this process is writing now: in a folder that it owns, all others are leftovers.
in_flight: set[str] = set()


def write_all(fd: int, data: bytes) -> None:
    """Write every byte; os.write may take fewer at a time."""
    view = memoryview(data)
    while view:
        view = view[retried(os.write, fd, view) :]


def write_new_file(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Create a file, which must not exist yet, with mode 0666 & ~umask, and sync it. Raises OSError."""
    fd = retried(os.open, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE, 0o666)
    try:
        for piece in [data] if isinstance(data, bytes) else data:
            write_all(fd, piece)
        retried(os.fsync, fd)
    finally:
        os.close(fd)


def write_new_folder(path: Path, files: Mapping[str, bytes | Iterable[bytes]]) -> None:
    """Create a folder with these files and sync all. Raises OSError."""
    retried(os.mkdir, path, 0o777)
    for name, data in files.items():
        write_new_file(path / name, data)
    sync_folder(path)


def sync_folder(path: Path) -> None:
    """Sync a folder's entries, where the system can. Raises OSError."""
    if os.name == "nt":  # folders cannot be opened there; NTFS journals renames itself
        return
    fd = retried(os.open, path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        retried(os.fsync, fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot sync folders
            raise
    finally:
        os.close(fd)


def temporary_name() -> str:
    """Return a new hidden name, `.tmp-<pid>-<random>`; it is short, as the name it stands for may be the longest."""
    return f".tmp-{os.getpid()}-{os.urandom(4).hex()}"


def remove(path: Path) -> None:
    """Delete a file, a link (not its target) or a folder; failures are ignored."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)
    except OSError:
        pass


@contextlib.contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """Yield a temporary name in the folder of `path`; whatever still has it at the end is deleted."""
    temporary = path.with_name(temporary_name())
    in_flight.add(temporary.name)
    try:
        yield temporary
    finally:
        if os.path.lexists(temporary):
            remove(temporary)
        in_flight.discard(temporary.name)


def _rename_to_new(temporary: Path, path: Path) -> None:
    """Rename a file unless the name is taken: link() fails then, where rename() would replace."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # no links on this file system: check first
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        temporary.replace(path)


def write_file_atomic(path: Path, data: bytes | Iterable[bytes], *, new: bool = False) -> None:
    """Write a file atomically: a reader, or a crash, finds the old content or the new.

    Raises: StorageError if the disk refuses, if `path` exists and is not a regular file, or exists and should be
    `new`; the old content stays.
    """
    mode = stat.S_IFREG
    with contextlib.suppress(OSError):  # usually there is no file yet; other errors show again when writing
        mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        raise StorageError(("cannot write ", path, f": it is {kind_of(mode)}, not a regular file"), code="no-file")
    with storage_errors("write", path), temporary_beside(path) as temporary:
        write_new_file(temporary, data)
        retried(_rename_to_new if new else os.replace, temporary, path)
        sync_folder(path.parent)
