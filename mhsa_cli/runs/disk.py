"""Plain files on disk: read without surprises, every refusal of the system told in words."""

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
LIMIT = 1 << 31  # bytes of one file; far beyond any run of this program

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
    errno.ENAMETOOLONG: "the file system takes no such name: choose a shorter one",
    errno.ENOENT: "a folder on the way is not there: was it never made, or moved or deleted since?",
}


# What a system refuses a sound program. The others (EBADF, EINVAL, none at all) are a fault of the program itself.
_REFUSALS = {
    *WAYS_OUT,
    *(errno.EAGAIN, errno.EBUSY, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.EMLINK),
    *(errno.ENODEV, errno.ENOLCK, errno.ENOTDIR, errno.ENOTEMPTY, errno.ENXIO, errno.ESTALE, errno.ETIMEDOUT),
}


def verify_hint(path: Path) -> str:
    """Say how to learn what of a run or sweep is still whole."""
    return f"what can still be used: mhsa verify {quoted(path)}"


def storage_error(doing: str, path: Path, error: OSError, hint: str | None = None) -> StorageError:
    """Put an operating system's refusal into words: what was tried, where, why, and a way out."""
    hints = [line for line in (hint, WAYS_OUT.get(error.errno or 0)) if line]
    return StorageError((f"cannot {doing} ", path, f": {_reason(error)}"), "\n  ".join(hints) or None)


@contextlib.contextmanager
def storage_errors(doing: str, path: Path, hint: str | None = None) -> Iterator[None]:
    """Put what the system refuses meanwhile into words. Raises: StorageError."""
    try:
        yield
    except OSError as error:
        raise storage_error(doing, path, error, hint) from error


def _reason(error: OSError) -> str:
    code = error.errno or 0
    name = errno.errorcode.get(code)
    return (os.strerror(code) if code else str(error)) + (f" ({name})" if name else "")


def refusal(error: OSError) -> StorageError | None:
    """Put an error that nobody foresaw into words, where it is the system that refuses; None for a fault of ours."""
    if error.errno not in _REFUSALS:
        return None
    if isinstance(error.filename, str):
        return storage_error("use", Path(error.filename), error)
    return StorageError(f"the system refused: {_reason(error)}", WAYS_OUT.get(error.errno))


def refused_with(error: MhsaError) -> int | None:
    """Give the number of the system's error that a refusal comes from."""
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None


def folder_is_gone() -> bool:
    """Tell whether the folder that this process works in was deleted: no path that counts from it leads anywhere."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def retried(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call again while a signal interrupts: not every file system restarts rename and mkdir by itself."""
    while True:
        try:
            return call(*args, **kwargs)
        except InterruptedError:
            continue


def kind_of(mode: int) -> str:
    """Name what a file mode stands for, for messages."""
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
    """Open a regular file without following a link and without waiting on a pipe; return its descriptor.

    Raises: DamageError if it is missing or something else than a file, StorageError if the system refuses.
    """
    try:
        mode = os.lstat(path).st_mode if path.is_symlink() else None
        if mode is None:
            fd = retried(os.open, path, flags | SAFE, 0o666)
            mode = os.fstat(fd).st_mode
            if stat.S_ISREG(mode):
                return fd
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError) as error:
        if flags & os.O_CREAT:  # then it is the folder that is missing
            raise storage_error("open", path, error) from error
        raise DamageError((path, IS, "missing"), code="missing") from error
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.EISDIR):  # a socket or a pipe without a reader, a folder
            raise storage_error("open", path, error) from error
        mode = os.lstat(path).st_mode
    raise DamageError((path, IS, f"{kind_of(mode)}, not a regular file"), code="no-file")


class OpenFile(contextlib.AbstractContextManager["OpenFile"]):
    """A regular file of at most `limit` bytes, open for reading in pieces: what it held when it was opened.

    It stays the same file when another one takes its name. `with OpenFile(path, limit) as file: ...`
    Raises: DamageError if it is missing, no regular file or too long; StorageError if the disk refuses.
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
        """Close it."""
        self._file.close()

    def read(self) -> bytes:
        """Read it whole."""
        return b"".join(self.blocks())

    def blocks(self) -> Iterator[bytes]:
        """Read it from its start, block by block."""
        return self._pieces(lambda: self._file.read(_CHUNK))

    def lines(self) -> Iterator[bytes]:
        """Read it from its start, line by line, each with its newline; the last one may have none."""
        return self._pieces(self._file.readline)

    def _pieces(self, read: Callable[[], bytes]) -> Iterator[bytes]:
        left = self.size  # what is appended meanwhile is not read
        with storage_errors("read", self.path):
            self._file.seek(0)
            while left > 0 and (piece := read()):
                yield piece if len(piece) <= left else piece[:left]
                left -= len(piece)


def read_file(path: Path, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes into memory (never mapped). Raises as `OpenFile` does."""
    with OpenFile(path, limit) as file:
        return file.read()


def digest(pieces: Iterable[bytes]) -> dict[str, Any]:
    """Describe a file's content, given in pieces, as run.json and manifests list it."""
    size, found = 0, hashlib.sha256()
    for piece in pieces:
        size += len(piece)
        found.update(piece)
    return {"size": size, "sha256": found.hexdigest()}
