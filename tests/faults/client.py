"""The test's side of the fork server: start commands, with faults prepared in them, and learn how they ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.environment import plain

ROOT = Path(__file__).parents[2]
PLAIN = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
Prepare = Sequence[Any]  # "module:function" and its arguments


@dataclass(frozen=True)
class Done:
    """How a command ended: exit code (minus the signal that killed it), stdout, stderr."""

    code: int
    out: str
    err: str


class Command:
    """A running command."""

    def __init__(self, server: ForkServer, number: int, pid: int, out: Path, err: Path) -> None:
        self._server, self._number, self.pid, self._out, self._err = server, number, pid, out, err

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens if the command has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def ended_with(self) -> list[int]:
        """Give its exit code in a list, which is empty while it runs; does not wait."""
        return self._server.peek(self._number)

    def wait(self, seconds: float = 60) -> Done:
        """Wait for the end; a command that hangs is killed and fails the test."""
        code = self._server.code(self._number, wait=seconds)
        if code is None:
            self.signal(signal.SIGKILL)
            self._server.code(self._number, wait=30)
            raise AssertionError(f"hangs after {seconds} s: {self._err.read_text(errors='replace')[-2000:]}")
        texts = [path.read_text(errors="replace") if path.exists() else "" for path in (self._out, self._err)]
        for path in (self._out, self._err):
            path.unlink(missing_ok=True)
        return Done(code, *texts)


class ForkServer:
    """`with ForkServer(folder) as server: server.run(["train"], cwd)`; its copies' output lies in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self._pids: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.forkserver"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**plain(), **PLAIN},
        )
        assert self._process.stdout is not None
        self._unread = b""
        self._read(60)  # it is ready

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def start(
        self, argv: Sequence[object], cwd: Path, prepare: Sequence[Prepare] = (), env: dict[str, str] | None = None
    ) -> Command:
        """Start `mhsa argv` in `cwd`, with `prepare` done in its process before."""
        self._count += 1
        number, paths = self._count, [self._folder / f"{self._count}.{name}" for name in ("out", "err")]
        wanted = {
            "id": number,
            "argv": [str(argument) for argument in argv],
            "cwd": str(cwd),
            "env": env or {},
            "prepare": [list(one) for one in prepare],
            "out": str(paths[0]),
            "err": str(paths[1]),
        }
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps(wanted) + "\n").encode())
        self._process.stdin.flush()
        while number not in self._pids:
            self._read(30)
        return Command(self, number, self._pids.pop(number), *paths)

    def run(
        self,
        argv: Sequence[object],
        cwd: Path,
        prepare: Sequence[Prepare] = (),
        env: dict[str, str] | None = None,
        seconds: float = 60,
    ) -> Done:
        """Run a command to its end."""
        return self.start(argv, cwd, prepare, env).wait(seconds)

    def code(self, number: int, wait: float) -> int | None:
        """Give the exit code of a command once it has ended, waiting at most so long."""
        until = time.monotonic() + wait
        while number not in self._codes and self._read(max(0.0, until - time.monotonic())):
            pass
        return self._codes.pop(number, None)

    def peek(self, number: int) -> list[int]:
        """Give the exit code of a command in a list, empty while it runs."""
        while self._read(0):
            pass
        return [self._codes[number]] if number in self._codes else []

    def _read(self, seconds: float) -> bool:
        """Take in what the server says, waiting at most so long for it; False if it said nothing."""
        import select

        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        if not select.select([stream], [], [], seconds)[0]:
            return False
        data = os.read(stream, 1 << 16)
        if not data:
            raise AssertionError("the fork server ended")
        *lines, self._unread = (self._unread + data).split(b"\n")
        for content in map(json.loads, lines):
            if "pid" in content:
                self._pids[content["id"]] = content["pid"]
            elif "code" in content:
                self._codes[content["id"]] = content["code"]
        return True
