"""Ctrl-C and its relatives: the first one asks training to stop after its step, the second one ends it at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType, TracebackType

from mhsa_cli.jobs.messages import losable

STDERR = 2
NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
PLAIN = b"stopping after this step; once more stops at once, without saving it\n"
MOVING = b"\r\x1b[Kstopping after this step; again: at once, unsaved"


def signal_name(code: int) -> str:
    """Name the signal that ended a process, by its exit code below 0."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


class StopSignal:
    """Catch signals while training; `caught` is the number of the first one, or None.

    A signal that the process was started to ignore (nohup, a shell's &) stays ignored. `animated` says that a picture
    moves on stderr: the message then stays on the picture's last row, or what is above it could not be wiped.
    """

    def __init__(self, *, animated: bool = False) -> None:
        self.caught: int | None = None
        self._message = MOVING if animated else PLAIN
        self._before: dict[int, object] = {}

    def __call__(self) -> bool:
        return self.caught is not None

    def __enter__(self) -> StopSignal:
        for name in NAMES:
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
        """Ignore what comes from now on: the end is being noted."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def forgive_lost_output(self) -> None:
        """After a signal, let stdout be lost to it: a hang-up takes the terminal, Ctrl-C also who reads a pipe."""
        if self.caught is not None:  # a full disk is told all the same, as long as there is somebody to be told
            hung_up = self.caught == getattr(signal, "SIGHUP", None)
            sys.stdout = losable(sys.stdout, OSError if hung_up else BrokenPipeError)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.caught is not None:
            raise SystemExit(128 + number)
        self.caught = number
        # Straight to the descriptor: the signal may have come in the middle of a print to the same stream.
        with contextlib.suppress(OSError):
            os.write(STDERR, self._message)
