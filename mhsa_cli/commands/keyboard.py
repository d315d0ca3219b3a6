"""Single keys of a terminal, read without Return; the terminal is as before afterwards, however the command ends."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import IO

from mhsa_cli.renderers.kit.console import is_tty

# What terminals send: CSI or SS3, then a letter or a number and `~`.
NAMES = {b"A": "up", b"B": "down", b"C": "right", b"D": "left", b"H": "home", b"F": "end"}
NAMES |= {b"1~": "home", b"7~": "home", b"4~": "end", b"8~": "end"}
_KEY = re.compile(rb"\x1b[\[O]([0-9;]*[A-Za-z~])|\x1b?(.)", re.DOTALL)
_SLICE = 0.1  # seconds after which a change of the window is noticed


@contextlib.contextmanager
def keyboard() -> Iterator[Callable[[float], str] | None]:
    """Yield a function that waits so many seconds for a key of stdin; None where stdin is no terminal to read from.

    A key is one character, or `left`, `right`, `up`, `down`, `home` or `end`; a window of another size is the key
    `resize`. SIGTERM and SIGHUP become SystemExit.
    """
    try:
        import termios
        import tty
    except ImportError:  # pragma: no cover - Windows
        yield None
        return
    if not _is_ours(sys.stdin):
        yield None
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    reader = _Reader(terminal)
    handlers = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, reader.resized)
    try:
        tty.setcbreak(terminal)  # Ctrl-C stays a signal
        yield reader.key
    finally:
        with contextlib.suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _is_ours(stream: IO[str] | None) -> bool:
    """Whether a stream is a terminal that this process may read: in the background, reading stops it."""
    with contextlib.suppress(OSError, ValueError):
        return stream is not None and is_tty(stream) and os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    return False


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class _Reader:
    """Splits what a terminal sends into keys."""

    def __init__(self, terminal: int) -> None:
        self._terminal, self._waiting, self._open = terminal, list[str](), True

    def resized(self, number: int, frame: FrameType | None) -> None:
        """Note that the window has another size."""
        self._waiting.append("resize")

    def key(self, seconds: float) -> str:
        """Return the next key, or "" if none comes within so many seconds."""
        end = time.monotonic() + seconds
        while not self._waiting:
            left = max(0.0, min(_SLICE, end - time.monotonic()))
            if not self._open:
                time.sleep(left)
            elif select.select([self._terminal], [], [], left)[0]:
                sent = os.read(self._terminal, 1024)
                self._open = bool(sent)
                self._waiting += keys_of(sent)
            if time.monotonic() >= end:
                break
        return self._waiting.pop(0) if self._waiting else ""


def keys_of(sent: bytes) -> list[str]:
    """Name the keys in what a terminal sent; those without a name here are left out."""
    found = [NAMES.get(match[1], "") if match[1] else match[2].decode("latin-1") for match in _KEY.finditer(sent)]
    return [key for key in found if key]
