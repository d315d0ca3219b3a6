"""Messages for people, on stderr, and what becomes of the streams when nobody can read them any more."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO, cast

from mhsa_cli.runs.disk import show

LOWER_MEMORY = "lower train.batch_size, train.eval_sequences or model.d_model"


class _Losable:
    """A stream that may be lost: from the first write that fails with an error of the kind `lost`, all is dropped.

    What it carries tells how the work goes; the work itself must not end for it.
    """

    def __init__(self, stream: TextIO, lost: type[OSError]) -> None:
        self._stream, self._lost = stream, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or drop."""
        self._attempt(self._stream.write, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write, or drop."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Flush, or drop."""
        self._attempt(self._stream.flush)

    def _attempt(self, act: Callable[..., object], *arguments: str) -> None:
        try:
            act(*arguments)
        except self._lost:
            self._stream = open(os.devnull, "w", encoding=self._stream.encoding, errors="replace")  # noqa: PTH123, SIM115


def losable(stream: TextIO, lost: type[OSError] = OSError) -> TextIO:
    """Make a stream one that may be lost by an error of one kind (a terminal that closed, a full disk: any)."""
    return stream if isinstance(stream, _Losable) else cast(TextIO, _Losable(stream, lost))


def open_streams() -> None:
    """Give a process that was started with closed streams new ones that lead nowhere, and let stderr be lost."""
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


def counted(count: int, noun: str) -> str:
    """Write `1 trial`, `2 trials`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def tell(text: str) -> None:
    """Print a message to stderr, whatever characters it can show; a control character becomes an escape."""
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    text = "\n".join(map(show, text.split("\n")))
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr, flush=True)
