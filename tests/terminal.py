"""A terminal for tests: a pseudo-terminal whose size can change, and the screen that a person would see."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence

from tests.environment import plain

_SENT = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n])")
_BEGUN = re.compile(r"\x1b(\[[?0-9;]*)?$")


class Screen:
    """What is on a screen of so many columns and rows.

    `wraps`: a long line is set anew for another width, as most terminals do; else it is cut.
    """

    def __init__(self, columns: int, rows: int, *, wraps: bool = True) -> None:
        self.columns, self.rows, self.wraps = columns, rows, wraps
        self.lines, self.x, self.y = [""], 0, 0
        self.joined = [False]  # whether a line goes on from the one above it
        self._rest = ""

    def write(self, text: str) -> None:
        """Take what a program writes; the beginning of a command waits for its end."""
        text = self._rest + text
        begun = _BEGUN.search(text)
        self._rest = begun[0] if begun else ""
        for codes, command, control, char in _SENT.findall(text.removesuffix(self._rest)):
            number = int(codes) if codes.isdigit() else 1
            if char:
                if self.x == self.columns:
                    self._down(joined=True)
                    self.x = 0
                line = self.lines[self.y].ljust(self.x)
                self.lines[self.y] = line[: self.x] + char + line[self.x + 1 :]
                self.x += 1
            elif control == "\r":
                self.x = 0
            elif control == "\n":
                self._down()
                self.x = 0
            elif command == "A":
                self.y = max(0, self.y - number)
            elif command == "B":
                self.y = min(self.y + number, self.rows - 1)
                self._fill()
            elif command == "K":
                self.lines[self.y] = "" if codes == "2" else self.lines[self.y][: self.x]
                self.joined[self.y : self.y + 2] = [False] * len(self.joined[self.y : self.y + 2])
            else:
                assert command in ("h", "l", "m"), f"a command that this terminal lacks: {codes}{command}"

    def resize(self, columns: int, rows: int) -> None:
        """Change the size as a person does who draws at a corner of the window."""
        lines, joined = list[str](), list[bool]()
        whole, place, at = list[str](), 0, 0  # lines as they were written, and where in them the cursor is
        for number, line in enumerate(self.lines):
            goes_on = whole and self.wraps and self.joined[number]
            whole += [] if goes_on else [""]
            if number == self.y:
                place, at = len(whole) - 1, len(whole[-1]) + self.x
            whole[-1] += line
        for number, line in enumerate(whole):
            parts = [line[i : i + columns] for i in range(0, max(1, len(line)), columns)]
            parts = parts if self.wraps else parts[:1]
            if number == place:
                row = min(at // columns, len(parts) - 1)
                self.y, self.x = len(lines) + row, min(at - row * columns, columns)
            lines += parts
            joined += [False, *[True] * (len(parts) - 1)]
        self.lines, self.joined = lines, joined
        self.columns, self.rows = columns, rows
        self._scroll()

    def _down(self, joined: bool = False) -> None:
        self.y += 1
        self._fill()
        self.joined[self.y] = joined
        self._scroll()

    def _fill(self) -> None:
        missing = self.y + 1 - len(self.lines)
        self.lines += [""] * missing
        self.joined += [False] * missing

    def _scroll(self) -> None:
        while self.y >= self.rows:
            del self.lines[0], self.joined[0]
            self.y -= 1
        del self.lines[self.rows :], self.joined[self.rows :]

    @property
    def text(self) -> str:
        """The visible lines."""
        return "\n".join(line.rstrip() for line in self.lines).rstrip()


class Terminal:
    """A program on a terminal of its own: `with Terminal(["-m", "mhsa_cli", "train"], 80, 24) as terminal`."""

    def __init__(self, arguments: Sequence[str], columns: int, rows: int, *, wraps: bool = True, **told: str) -> None:
        self.screen, self.raw = Screen(columns, rows, wraps=wraps), b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.master, self.slave = pty.openpty()
        self._set_size(columns, rows)
        environ = {**plain(), "TERM": "xterm-256color", "PYTHONUTF8": "1", **told}
        streams = {"stdin": self.slave, "stdout": self.slave, "stderr": self.slave}
        self.before = termios.tcgetattr(self.slave)
        self.child = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL, *arguments], env=environ, start_new_session=True, **streams
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.child.kill()
        self.child.wait(60)
        os.close(self.master)
        os.close(self.slave)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window; what is already written was meant for the old one."""
        self.read(0)
        self._set_size(columns, rows)
        self.screen.resize(columns, rows)

    def type(self, text: str) -> None:
        """Send keys."""
        os.write(self.master, text.encode())

    def read(self, seconds: float = 0.05) -> None:
        """Take what has been written."""
        while select.select([self.master], [], [], seconds)[0]:
            self.raw += (sent := os.read(self.master, 65536))
            self.screen.write(self._decoder.decode(sent))
            seconds = 0

    def until(self, seen: Callable[[str], bool], seconds: float = 60) -> str:
        """Read until the screen shows something, and return what it shows."""
        end = time.monotonic() + seconds
        while not seen(self.screen.text):
            assert time.monotonic() < end, f"it shows\n{self.screen.text}"
            self.read()
        return self.screen.text

    def wait(self, number: int | None = None, seconds: float = 60) -> int:
        """Wait for the end, after a signal if one is given; returns the exit code."""
        if number is not None:
            os.kill(self.child.pid, number)
        end = time.monotonic() + seconds
        while self.child.poll() is None:
            assert time.monotonic() < end, f"does not end:\n{self.screen.text}"
            self.read()
        self.read()
        return self.child.returncode

    def is_as_before(self) -> bool:
        """Whether the terminal reads lines and echoes them, as it did before the program."""
        return termios.tcgetattr(self.slave) == self.before


# The session takes the terminal as its own, as a shell's does; then runs python with the arguments.
_OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
