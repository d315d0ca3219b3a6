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

from mhsa_cli.renderers.kit.console import is_tty

# What terminals send: CSI or SS3, then a letter or a number and `~`.
NAMES = {b"A": "up", b"B": "down", b"C": "right", b"D": "left", b"H": "home", b"F": "end"}
NAMES |= {b"1~": "home", b"7~": "home", b"4~": "end", b"8~": "end"}
_KEY = re.compile(rb"\x1b[\[O]([0-9;]*[A-Za-z~])|\x1b?(.)", re.DOTALL)
_ENDING = ("SIGTERM", "SIGHUP")


@contextlib.contextmanager
def keyboard() -> Iterator[Callable[[float], str] | None]:
    """Yield a function that waits so many seconds for a key of stdin; None where stdin is no terminal to read from.

    A key is one character, or `left`, `right`, `up`, `down`, `home` or `end`. SIGTERM and SIGHUP become SystemExit.
    """
    try:
        import termios
        import tty
    except ImportError:  # pragma: no cover - Windows
        yield None
        return
    if not is_tty(sys.stdin) or os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():  # in the background reading stops us
        yield None
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    handlers = {number: signal.signal(number, _leave) for name in _ENDING if (number := getattr(signal, name, None))}
    try:
        tty.setcbreak(terminal)  # Ctrl-C stays a signal
        yield _Reader(terminal).key
    finally:
        with contextlib.suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class _Reader:
    """Splits what a terminal sends into keys."""

    def __init__(self, terminal: int) -> None:
        self._terminal, self._waiting, self._open = terminal, list[str](), True

    def key(self, seconds: float) -> str:
        """Return the next key, or "" if none comes within so many seconds."""
        if not self._waiting and not self._open:
            time.sleep(seconds)
        elif not self._waiting and select.select([self._terminal], [], [], seconds)[0]:
            sent = os.read(self._terminal, 1024)
            self._open = bool(sent)
            self._waiting = keys_of(sent)
        return self._waiting.pop(0) if self._waiting else ""


def keys_of(sent: bytes) -> list[str]:
    """Name the keys in what a terminal sent; those without a name here are left out."""
    found = [NAMES.get(match[1], "") if match[1] else match[2].decode("latin-1") for match in _KEY.finditer(sent)]
    return [key for key in found if key]
