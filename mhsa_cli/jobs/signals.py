"""Signals during training, such as Ctrl-C: the first one stops it after the current step, the second one at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from types import FrameType, TracebackType

from mhsa_cli.jobs.messages import losable

STDERR = 2
NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
PLAIN = b"stopping after this step; a second signal stops at once, without saving\n"
MOVING = b"\r\x1b[Kstopping after this step; again: at once, unsaved"


def signal_name(code: int) -> str:
    """Return the name of the signal in a negative exit code."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


class StopSignal:
    """Catch signals during training; `caught` is the number of the first one, or None.

    Signals that the process ignored from its start (nohup, a shell's &) stay ignored. With `animated`, a picture is
    redrawn on stderr, and the message stays on its last row.
    """

    names: tuple[str, ...] = NAMES

    def __init__(self, *, animated: bool = False) -> None:
        self.caught: int | None = None
        self._message = MOVING if animated else PLAIN
        self._before: dict[int, object] = {}

    def __call__(self) -> bool:
        return self.caught is not None

    def __enter__(self) -> StopSignal:
        for name in self.names:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def hold(self) -> None:
        """Ignore further signals while the end is recorded."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def forgive_lost_output(self) -> None:
        """After a signal, ignore errors of stdout: a hang-up closes the terminal, Ctrl-C ends readers of a pipe."""
        if self.caught is not None:  # a full disk is still reported, unless the terminal is gone
            hung_up = self.caught == getattr(signal, "SIGHUP", None)
            sys.stdout = losable(sys.stdout, OSError if hung_up else BrokenPipeError)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.caught is not None:
            raise SystemExit(128 + number)
        self.caught = number
        # Directly to the descriptor: the signal may have interrupted a print to the same stream.
        with contextlib.suppress(OSError):
            os.write(STDERR, self._message)


class Interrupt(StopSignal):
    """Catch Ctrl-C alone, silently, where a program may: in its main thread. A second one is a KeyboardInterrupt."""

    names = ("SIGINT",)

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            super().__enter__()
        return self

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.caught is not None:
            raise KeyboardInterrupt
        self.caught = number
