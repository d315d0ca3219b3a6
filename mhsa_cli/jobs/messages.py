"""Messages on stderr, and standard streams that survive a closed terminal, a full disk or a reader that left."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TextIO, cast

from mhsa_cli.errors import MhsaError, StorageError, TorchError, UsageError
from mhsa_cli.runs.disk import refusal
from mhsa_cli.text import escape

SHORT = 1 << 25  # bytes; memory is out when not even this much can be had
LOWER_MEMORY = "lower train.batch_size, train.eval_sequences or model.d_model"


class StdoutError(OSError):
    """Stdout cannot be written, for another reason than a reader that left."""


class _Guarded:
    """A stream whose write errors become StdoutError, except a reader that left.

    With `lost`, the first error of that kind drops all further output instead: progress that nobody can read must not
    end the training.
    """

    def __init__(self, stream: TextIO, lost: type[OSError] | None = None) -> None:
        self._stream, self._lost = stream, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._attempt(self._stream.write, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
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
    """Make a stream that drops its output after an error of one kind, such as a closed terminal."""
    is_losable = isinstance(stream, _Guarded) and stream._lost is not None
    return stream if is_losable else cast(TextIO, _Guarded(stream, lost))


def open_streams() -> None:
    """Open closed standard streams on the null device, and guard stdout and stderr."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # else the next opened file would get this number and all output
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: PTH123, SIM115
    sys.stderr = losable(sys.stderr)
    if not isinstance(sys.stdout, _Guarded):
        sys.stdout = cast(TextIO, _Guarded(_buffered(sys.stdout)))


def _buffered(stream: TextIO) -> TextIO:
    """Buffer an unbuffered stream (PYTHONUNBUFFERED): Python drops what a partial write leaves."""
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        return stream
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=True)


def forget_output() -> None:
    """Discard the buffered output of stdout, or Python would report the error again at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def saying_kept(path: Path) -> Iterator[None]:
    """Run a block that prints results; if stdout fails, say where they are kept. Raises: StorageError."""
    try:
        yield
        sys.stdout.flush()
    except StdoutError as error:
        forget_output()
        raise StorageError(str(error.strerror), f"the results are kept: {escape(path)}") from error


def foreseen(error: Exception) -> MhsaError | None:
    """Convert an uncaught error of the system, memory or a library; None for a bug. No imports: they may fail."""
    if isinstance(error, StdoutError):
        return StorageError(str(error.strerror))
    devices = sys.modules.get("mhsa_cli.core.devices")
    if isinstance(error, MemoryError) or (devices is not None and devices.is_out_of_memory(error)) or _is_short():
        first = str(error).partition("\n")[0]
        lower = f"{LOWER_MEMORY}, or " if "torch" in sys.modules else ""
        return StorageError(f"out of memory{f': {first}' if first else ''}", f"{lower}give it more memory")
    if _is_of_torch(error):
        first = str(error).strip().partition("\n")[0]
        way = "install torch again: pip install --force-reinstall torch; what is installed: mhsa doctor"
        return TorchError(f"torch cannot be imported: {type(error).__name__}: {escape(first)}", way)
    if isinstance(error, ModuleNotFoundError) and not (error.name or "mhsa_cli").startswith("mhsa_cli"):
        way = "install mhsa-cli again with what it needs; in its folder: pip install -c constraints.txt ."
        return UsageError(f"the library {escape(error.name or '')} is not installed", way)
    return refusal(error) if isinstance(error, OSError) else None


def _is_of_torch(error: Exception) -> bool:
    """Whether an error is that of importing torch: raised while its package was executed, or because there is none."""
    if not isinstance(error, ImportError | OSError):
        return False
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return True
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == "torch" and trace.tb_frame.f_code.co_name == "<module>":
            return True
        trace = trace.tb_next
    return False


def _is_short() -> bool:
    """Whether the system is out of memory: libraries report that in many ways."""
    try:
        mmap.mmap(-1, SHORT, **({} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE})).close()
    except (OSError, MemoryError):
        return True
    return False


def _print(text: str) -> None:
    print(writable(text, sys.stderr), file=sys.stderr, flush=True)


_receiver: ContextVar[Callable[[str], object]] = ContextVar("receiver", default=_print)


def tell(text: str) -> None:
    """Print a message to stderr; control characters and those it cannot encode are escaped."""
    _receiver.get()("\n".join(map(escape, text.split("\n"))))


@contextlib.contextmanager
def telling(receiver: Callable[[str], object]) -> Iterator[None]:
    """Run a block whose messages go to `receiver`, not to stderr."""
    token = _receiver.set(receiver)
    try:
        yield
    finally:
        _receiver.reset(token)


@contextlib.contextmanager
def keeping_told() -> Iterator[list[str]]:
    """Run a block, and list its messages as well."""
    told: list[str] = []
    receiver = _receiver.get()

    def both(text: str) -> None:
        told.append(text)
        receiver(text)

    with telling(both):
        yield told


def writable(text: str, stream: TextIO) -> str:
    """Escape the characters that a stream's encoding lacks."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)
