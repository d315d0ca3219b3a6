"""Messages for people, on stderr, and what becomes of the streams when nobody can read them any more."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from mhsa_cli.errors import StorageError
from mhsa_cli.runs.disk import refusal
from mhsa_cli.text import escape

SHORT = 1 << 25  # bytes; less than this is no memory to work with
LOWER_MEMORY = "lower train.batch_size, train.eval_sequences or model.d_model"


class StdoutError(OSError):
    """Stdout could not be written; a reader that left is none of these."""


class _Guarded:
    """A stream whose writes and flushes are guarded.

    An error is told to be stdout's own: no other file of a command is meant; a reader that left is none. Where the
    stream may be `lost`, all is dropped from the first error of that kind on: what it carries tells how the work goes,
    and the work itself must not end for it.
    """

    def __init__(self, stream: TextIO, lost: type[OSError] | None = None) -> None:
        self._stream, self._lost = stream, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text."""
        self._attempt(self._stream.write, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write the lines."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Flush the stream."""
        self._attempt(self._stream.flush)

    def _attempt(self, act: Callable[..., object], *arguments: str) -> None:
        try:
            act(*arguments)
        except OSError as error:
            if self._lost is not None and isinstance(error, self._lost):
                encoding = self._stream.encoding
                self._stream = open(os.devnull, "w", encoding=encoding, errors="replace")  # noqa: PTH123, SIM115
            elif self._lost is not None or isinstance(error, BrokenPipeError):
                raise
            else:
                raise StdoutError(error.errno, f"cannot write to stdout: {error.strerror}") from error


def losable(stream: TextIO, lost: type[OSError] = OSError) -> TextIO:
    """Make a stream one that may be lost by an error of one kind (a terminal that closed, a full disk: any)."""
    is_losable = isinstance(stream, _Guarded) and stream._lost is not None
    return stream if is_losable else cast(TextIO, _Guarded(stream, lost))


def open_streams() -> None:
    """Give a process that was started with closed streams new ones that lead nowhere, and guard both."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # the next file to be opened would get this number, and with it all that is printed
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: PTH123, SIM115
    sys.stderr = losable(sys.stderr)
    if not isinstance(sys.stdout, _Guarded):
        sys.stdout = cast(TextIO, _Guarded(_buffered(sys.stdout)))


def _buffered(stream: TextIO) -> TextIO:
    """Put a buffer under a stream that has none (PYTHONUNBUFFERED): Python drops what a write there does not take."""
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        return stream
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=True)


def forget_output() -> None:
    """Send what is still buffered for stdout nowhere: Python would complain once more while flushing at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def saying_kept(path: Path) -> Iterator[None]:
    """Print results, and say where they are kept if stdout cannot be written. Raises: StorageError."""
    try:
        yield
        sys.stdout.flush()
    except StdoutError as error:
        forget_output()
        raise StorageError(str(error.strerror), f"the results are kept: {escape(path)}") from error


def foreseen(error: Exception) -> StorageError | None:
    """Put an error that no command has met into words where the system or its memory refuses; None: a fault of ours.

    Nothing is loaded for it: this is asked where loading may be what failed.
    """
    if isinstance(error, StdoutError):
        return StorageError(str(error.strerror))
    devices = sys.modules.get("mhsa_cli.core.devices")
    if isinstance(error, MemoryError) or (devices is not None and devices.is_out_of_memory(error)) or _is_short():
        first = str(error).partition("\n")[0]
        lower = f"{LOWER_MEMORY}, or " if "torch" in sys.modules else ""
        return StorageError(f"out of memory{f': {first}' if first else ''}", f"{lower}give it more memory")
    return refusal(error) if isinstance(error, OSError) else None


def _is_short() -> bool:
    """Tell whether the system gives no more memory: then any library fails in words of its own."""
    try:
        mmap.mmap(-1, SHORT, **({} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE})).close()
    except (OSError, MemoryError):
        return True
    return False


def tell(text: str) -> None:
    """Print a message to stderr, whatever characters it can show; a control character becomes an escape."""
    print(writable("\n".join(map(escape, text.split("\n"))), sys.stderr), file=sys.stderr, flush=True)


def writable(text: str, stream: TextIO) -> str:
    """Give a text as a stream can write it: what its encoding lacks becomes an escape."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)
