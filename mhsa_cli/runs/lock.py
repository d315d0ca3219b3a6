"""One owner per run, by a lock that the system drops when the process ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from mhsa_cli.errors import BusyError, RunError, StorageError
from mhsa_cli.runs.atomic import write_all
from mhsa_cli.runs.disk import open_regular, read_file, retried, storage_error
from mhsa_cli.runs.json_file import parse_json
from mhsa_cli.text import escape

_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
_TIMEOUT = 0.3  # seconds; a reader that tests the lock holds it for an instant
_ROOT_TIMEOUT = 5.0

if sys.platform == "win32":
    import msvcrt

    def _try_lock(fd: int, shared: bool) -> bool:
        os.lseek(fd, 1 << 30, os.SEEK_SET)  # far after the text: locked bytes cannot be read on Windows
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        finally:
            os.lseek(fd, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _try_lock(fd: int, shared: bool) -> bool:
        try:
            retried(fcntl.flock, fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _lock_within(fd: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (locked := _try_lock(fd, shared=False)) and time.monotonic() < deadline:
        time.sleep(0.002)
    return locked


class RunLock:
    """The lock file of a run folder; its text (pid, host, start) serves error messages only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raises: BusyError naming the owner; StorageError, also if the file system has no locks."""
        if self._fd is not None:
            return
        try:
            fd = open_regular(self.path, os.O_RDWR | os.O_CREAT)
        except RunError as error:
            error.hint = "delete it: a lock file holds no data of the run"
            raise
        try:
            if not _lock_within(fd, _TIMEOUT):
                raise busy(self.path)
            started = datetime.now(UTC).isoformat(timespec="seconds")
            text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": started}) + "\n"
            os.ftruncate(fd, 0)
            write_all(fd, text.encode("ascii"))
        except BaseException as error:
            os.close(fd)
            if not isinstance(error, OSError):
                raise
            hint = "keep runs on a local disk: --runs DIR" if error.errno in _UNSUPPORTED else None
            raise storage_error("lock", self.path, error, hint) from error
        self._fd = fd

    @property
    def is_held(self) -> bool:
        """Whether this object owns the run."""
        return self._fd is not None

    def release(self) -> None:
        """Release the lock. The file stays: if it were deleted, two processes could lock two different files."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def check(self) -> None:
        """Check that the locked folder is the one on disk. Raises: StorageError if it was deleted or replaced."""
        if self._fd is None:
            raise RuntimeError(f"{self.path.parent} is open for reading only")
        try:
            is_same = os.path.samestat(self.path.stat(), os.fstat(self._fd))
        except OSError:
            is_same = False
        if not is_same:
            why = ": the run folder was deleted, moved or replaced during the run"
            raise StorageError(("cannot save in ", self.path.parent, why), code="deleted")


def is_locked(path: Path) -> bool:
    """Return whether a living process holds this lock file, without disturbing it."""
    try:
        fd = open_regular(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    except (RunError, StorageError):
        return False
    try:
        return not _try_lock(fd, shared=True)
    except OSError:
        return False
    finally:
        os.close(fd)


@contextlib.contextmanager
def kept_free(path: Path) -> Iterator[None]:
    """Let no process take this lock file, if there is one; nothing is written. Raises: BusyError if it has an owner."""
    fd = None
    try:
        with contextlib.suppress(RunError, StorageError):
            fd = open_regular(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
        with contextlib.suppress(OSError):  # a file system without locks
            if fd is not None and not _try_lock(fd, shared=True):
                raise busy(path)
        yield
    finally:
        if fd is not None:
            os.close(fd)


def busy(path: Path) -> BusyError:
    """Return the error that names the owner of a lock file."""
    owner = "another process"
    with contextlib.suppress(RunError, StorageError, KeyError):
        content = parse_json(read_file(path, 4096), path)
        host = "" if content["host"] == socket.gethostname() else f" on {escape(str(content['host']))}"
        if type(content["pid"]) is int:
            owner = f"pid {content['pid']}{host} (since {escape(str(content['started']))})"
    hint = "wait for it to end, stop it, or choose another --name"
    return BusyError((path.parent, f" is in use by {owner}"), hint)


@contextlib.contextmanager
def root_lock(root: Path) -> Iterator[None]:
    """Let one process at a time create a run in `root`, so that the others find its lock file complete.

    It only makes messages better: mkdir alone decides who gets a name. So a file system without locks is fine, and a
    stopped process that holds the lock delays others for seconds only.
    """
    if sys.platform == "win32":
        yield
        return
    fd = None
    try:
        with contextlib.suppress(OSError):
            fd = os.open(root, os.O_RDONLY)
            _lock_within(fd, _ROOT_TIMEOUT)
        yield
    finally:
        if fd is not None:
            os.close(fd)
