"""Regular files on disk: opened without following links, and system errors with a way out."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from mhsa_cli.errors import IS, DamageError, MhsaError, StorageError
from mhsa_cli.text import quoted

P = ParamSpec("P")
R = TypeVar("R")

_BINARY = getattr(os, "O_BINARY", 0)
SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | _BINARY
_CHUNK = 1 << 20
LIMIT = 1 << 31  # bytes of one file; far beyond any file of a run

WAYS_OUT = {
    errno.ENOSPC: "free some space, or keep runs on another disk: --runs DIR",
    errno.EDQUOT: "your quota is used up: delete something, or keep runs elsewhere: --runs DIR",
    errno.EROFS: "the file system is read-only: keep runs elsewhere with --runs DIR",
    errno.EACCES: "the permission is missing: give it, or keep runs elsewhere with --runs DIR",
    errno.EPERM: "the permission is missing: give it, or keep runs elsewhere with --runs DIR",
    errno.EIO: "the disk itself reports an error: keep runs on another one with --runs DIR",
    errno.EFBIG: "no file may become that large here: see ulimit -f",
    errno.EMFILE: "too many files are open: raise the limit, ulimit -n 1024",
    errno.ENFILE: "the system has too many files open: try again later",
    errno.ENOMEM: "give it more memory",
    errno.ENAMETOOLONG: "the name is too long for this file system: choose a shorter one",
    errno.ENOENT: "a folder in this path is missing: it was not created, or moved or deleted since",
}

# Errors that a correct program may meet. The others (EBADF, EINVAL, no number at all) are bugs.
_REFUSALS = {
    *WAYS_OUT,
    *(errno.EAGAIN, errno.EBUSY, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.EMLINK),
    *(errno.ENODEV, errno.ENOLCK, errno.ENOTDIR, errno.ENOTEMPTY, errno.ENXIO, errno.ESTALE, errno.ETIMEDOUT),
}


def verify_hint(path: Path) -> str:
    """Return the hint that leads to what of a run or sweep is still valid."""
    return f"what can still be used: mhsa verify {quoted(path)}"


def storage_error(doing: str, path: Path, error: OSError, hint: str | None = None) -> StorageError:
    """Turn a system error into one that says what was tried, where, why, and the way out."""
    hints = [line for line in (hint, WAYS_OUT.get(error.errno or 0)) if line]
    return StorageError((f"cannot {doing} ", path, f": {_reason(error)}"), "\n  ".join(hints) or None)


@contextlib.contextmanager
def storage_errors(doing: str, path: Path, hint: str | None = None) -> Iterator[None]:
    """Turn system errors of the body into StorageError."""
    try:
        yield
    except OSError as error:
        raise storage_error(doing, path, error, hint) from error


def _reason(error: OSError) -> str:
    code = error.errno or 0
    name = errno.errorcode.get(code)
    return (os.strerror(code) if code else str(error)) + (f" ({name})" if name else "")


def refusal(error: OSError) -> StorageError | None:
    """Turn an unhandled system error into a StorageError; None if it is a bug."""
    if error.errno not in _REFUSALS:
        return None
    if isinstance(error.filename, str):
        return storage_error("use", Path(error.filename), error)
    return StorageError(f"the system refused: {_reason(error)}", WAYS_OUT.get(error.errno))


def refused_with(error: MhsaError) -> int | None:
    """Return the errno that caused an error; None if there is none."""
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None


def folder_is_gone() -> bool:
    """Return whether the working directory was deleted, so that no relative path resolves."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def retried(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Repeat a call that a signal interrupts: not every file system restarts rename and mkdir itself."""
    while True:
        try:
            return call(*args, **kwargs)
        except InterruptedError:
            continue


def kind_of(mode: int) -> str:
    """Name the kind of a file by its mode."""
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "not a file")


def open_regular(path: Path, flags: int) -> int:
    """Open a regular file without following links; return its descriptor. Raises: DamageError, StorageError."""
    try:
        mode = os.lstat(path).st_mode if path.is_symlink() else None
        if mode is None:
            fd = retried(os.open, path, flags | SAFE, 0o666)
            mode = os.fstat(fd).st_mode
            if stat.S_ISREG(mode):
                return fd
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError) as error:
        if flags & os.O_CREAT:  # so the folder is missing
            raise storage_error("open", path, error) from error
        raise DamageError((path, IS, "missing"), code="missing") from error
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.EISDIR):  # a socket or a pipe without a reader, a folder
            raise storage_error("open", path, error) from error
        mode = os.lstat(path).st_mode
    raise DamageError((path, IS, f"{kind_of(mode)}, not a regular file"), code="no-file")


class OpenFile(contextlib.AbstractContextManager["OpenFile"]):
    """A regular file of at most `limit` bytes, open for reading; bytes appended later are not read.

    Example: `with OpenFile(path, limit) as file: ...`. Raises: DamageError if it is missing, not a regular file or too
    large; StorageError.
    """

    def __init__(self, path: Path, limit: int = sys.maxsize) -> None:
        self.path = path
        self._file = os.fdopen(open_regular(path, os.O_RDONLY), "rb", _CHUNK)
        self.size = os.fstat(self._file.fileno()).st_size
        if self.size > limit:
            self.close()
            raise DamageError((path, IS, f"too large: {self.size} bytes, at most {limit} were expected"), code="size")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def read(self) -> bytes:
        """Read the whole file."""
        return b"".join(self.blocks())

    def blocks(self) -> Iterator[bytes]:
        """Read from the start, block by block."""
        return self._pieces(lambda: self._file.read(_CHUNK))

    def lines(self) -> Iterator[bytes]:
        """Read from the start, line by line with newlines; the last line may have none."""
        return self._pieces(self._file.readline)

    def _pieces(self, read: Callable[[], bytes]) -> Iterator[bytes]:
        left = self.size
        with storage_errors("read", self.path):
            self._file.seek(0)
            while left > 0 and (piece := read()):
                yield piece if len(piece) <= left else piece[:left]
                left -= len(piece)


def read_file(path: Path, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes. Raises as `OpenFile` does."""
    with OpenFile(path, limit) as file:
        return file.read()


def digest(pieces: Iterable[bytes]) -> dict[str, Any]:
    """Return size and SHA-256 of a content given in pieces, as run.json and manifests list them."""
    size, sha256 = 0, hashlib.sha256()
    for piece in pieces:
        size += len(piece)
        sha256.update(piece)
    return {"size": size, "sha256": sha256.hexdigest()}
