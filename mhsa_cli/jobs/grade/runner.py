"""Grades in processes of their own: one that hangs, crashes or takes all memory costs its own grade alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

from mhsa_cli.check.source.load import split
from mhsa_cli.check.source.read_file import read_script
from mhsa_cli.errors import StorageError, UsageError
from mhsa_cli.jobs.grade.child import PRINTED, READY, ROOM, TRACE, Job, serve
from mhsa_cli.jobs.grade.processes import end_descendants, end_users_of
from mhsa_cli.jobs.signals import signal_name
from mhsa_cli.records.check import Grade, GradeOptions, Law, NamedFault, Note
from mhsa_cli.text import escape, plural

GRADER = "mhsa_cli.check.grade"
NOT_STARTED = "no fault of the file: give it more memory, or more processes (ulimit -v, ulimit -u)"
GRACE = 0.5  # seconds in which a process that is out of time writes down where it is
SHOWN = 3  # lines of what it printed
PRINTED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What one grade may take: seconds, and GiB beyond what an empty process has."""

    seconds: float
    memory: float


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class GradeResult:
    """What came of a target: a grade; where it could not be loaded, also the error that says so."""

    grade: Grade
    refused: UsageError | None = None


def grade_all(
    targets: Sequence[str], options: GradeOptions, limits: Limits, jobs: int | None, hear: Callable[[Grade], None]
) -> Iterator[GradeResult]:
    """Grade up to `jobs` at a time (None: one on each core), in order; `hear` hears each as soon as it is done."""
    waiting, running = deque(enumerate(targets)), dict[int, _GradingProcess]()
    ended: dict[int, GradeResult] = {}
    given = 0
    try:
        while given < len(targets):
            while waiting and len(running) < (jobs or cores()):
                number, target = waiting.popleft()
                running[number] = _GradingProcess(target, options, limits)
            wait([one.pipe for one in running.values()], min(one.left() for one in running.values()))
            for number, process in list(running.items()):
                if (result := process.listen()) is not None:
                    del running[number]
                    process.close()
                    hear(result.grade)
                    ended[number] = result
            while given in ended:
                yield ended.pop(given)
                given += 1
    finally:  # also of a Ctrl-C
        for process in running.values():
            process.close()


def _context() -> BaseContext:
    """Choose how processes start: forked from one that has torch already, where the system can do that."""
    # The server is called by a socket in the folder for temporary files, whose path may have about 100 characters.
    if "forkserver" not in get_all_start_methods() or len(tempfile.gettempdir()) > 60:
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload([READY])
    return context


class _GradingProcess:
    """A process that grades one target, as its parent sees it."""

    def __init__(self, target: str, options: GradeOptions, limits: Limits) -> None:
        self.target, self.limits, self.file = target, limits, split(target)[0]
        self.folder = tempfile.TemporaryDirectory(prefix="mhsa-check-", ignore_cleanup_errors=True)
        self.place = Path(self.folder.name)
        (self.place / ROOM).mkdir()
        absolute, memory = str(Path(target).absolute()), int(limits.memory * 2**30)
        job = Job(absolute, self.file.absolute(), options, GRADER, self.place, limits.seconds, memory)
        context = _context()
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, job), daemon=True)  # type: ignore[attr-defined]
        self.began = time.monotonic()
        self.deadline: float | None = None  # it counts from when the process is ready
        self.doing, self.name = "starting", ""
        try:
            self.process.start()
        except EOFError:  # what it is copied from has ended
            raise self._not_started("the process before it ended") from None
        other.close()

    def left(self) -> float:
        """Give the seconds that it has left."""
        return 60.0 if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)

    def listen(self) -> GradeResult | None:
        """Hear what it has said; returns what came of it, or None while it is at work."""
        try:
            while self.pipe.poll():
                if (result := self._heard(json.loads(self.pipe.recv_bytes()))) is not None:
                    return result
        except (EOFError, OSError):
            return self._died()
        except (ValueError, TypeError, KeyError, AttributeError) as error:  # somebody else wrote into the pipe
            return self._uncallable("no_grade", f"it sent what is no grade ({type(error).__name__})")
        if self.deadline is None or time.monotonic() < self.deadline:
            return None
        said = f"it did not answer within {self.limits.seconds:g} s; the last thing done: {self.doing}{self._where()}"
        return self._uncallable("hung", said)

    def _heard(self, message: dict[str, Any]) -> GradeResult | None:
        self.doing = message.get("doing", self.doing)
        self.name = message.get("name", self.name)
        if message.get("started"):
            self.began = time.monotonic()
            self.deadline = self.began + self.limits.seconds + GRACE
        if "grade" in message:
            return GradeResult(self._finished(_grade(message["grade"])))
        if "refused" in message:
            said, hint = (None if text is None else self._shown(text) for text in message["refused"])
            error = UsageError(said or "", hint)
            return replace(self._uncallable("refused", _on_one_line(str(error))), refused=error)
        if message.get("memory"):
            if self.deadline is None:
                raise self._not_started("there was no memory")
            taken = f"it took more than {self.limits.memory:g} GiB of memory"
            return self._uncallable("out_of_memory", f"{taken} while {self.doing}{self._where()}")
        if "raised" in message:
            return self._uncallable("raised", f"while {self.doing}: {message['raised']} ({message['where']})")
        return None

    def _shown(self, text: str) -> str:
        """Write paths as the user did."""
        return text.replace(str(self.file.absolute()), str(self.file))

    def _finished(self, grade: Grade) -> Grade:
        target = self.target
        if self.name and not target.endswith(f":{self.name}"):
            target = f"{target.removesuffix(':')}:{self.name}"
        seconds = time.monotonic() - self.began
        return replace(grade, block=target, notes=[*grade.notes, *self._printed()], seconds=seconds)

    def _uncallable(self, kind: str, said: str) -> GradeResult:
        return GradeResult(self._finished(Grade(self.target, "uncallable", {}, (), (), (), (Note(kind, said),))))

    def _died(self) -> GradeResult:
        self.process.join(5)
        code = self.process.exitcode
        if self.deadline is None:
            raise self._not_started("it fell silent" if code is None else f"exit code {code}")
        if code is None:
            return self._uncallable("silent", f"its process fell silent while {self.doing}")
        if code >= 0:
            said = f"it ended its process itself, with exit code {code}, while {self.doing}"
            return self._uncallable("ended", said)
        more = " (a system out of memory does so)" if signal_name(code) == "SIGKILL" else ""
        said = f"its process was killed by {signal_name(code)} while {self.doing}{self._where()}{more}"
        return self._uncallable("killed", said)

    def _not_started(self, why: str) -> StorageError:
        """Make the error of a process that has not come to the file: what stopped it was no fault of the file."""
        return StorageError(f"cannot grade {escape(self.target)}: its process did not start: {why}", NOT_STARTED)

    def _where(self) -> str:
        """Say which line of the file it was in, from the trace that Python left."""
        with contextlib.suppress(OSError, UsageError):
            trace = (self.place / TRACE).read_text("ascii", "replace")
            file = self.file.absolute()
            written = re.escape(str(file).encode("ascii", "backslashreplace").decode())
            if found := re.search(rf'File "{written}", line (\d+) in (\S+)', trace):
                return f", at {read_script(file).place(int(found[1]))} (in {found[2]})"
        return ""

    def _printed(self) -> list[Note]:
        """Give the first lines that it printed, and how many there were, as a note."""
        try:
            with (self.place / PRINTED).open("rb") as file:
                text = file.read(PRINTED_BYTES).decode("utf-8", "replace")
                more = bool(file.read(1))
        except OSError:
            return []
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        if not lines:
            return []
        first = " | ".join(line[:80] for line in lines[:SHOWN])
        count = f"more than {len(lines):,} lines" if more else plural(len(lines), "line")
        said = f"it printed {count}: {first}{' ...' if len(lines) > SHOWN or more else ''}"
        return [Note("printed", said, {"lines": len(lines)})]

    def close(self) -> None:
        """End the process and all that it started, and remove its folder."""
        if self.process.pid is not None and self.process.is_alive():
            end_descendants(self.process.pid)
        if self.process.pid is not None and hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join(5)
        end_users_of(self.place)
        self.pipe.close()
        self.folder.cleanup()


def _on_one_line(text: str) -> str:
    """Join the lines of an error; a line of code with a caret below it becomes a quotation."""
    lines: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line == "^" and len(lines) > 1:
            lines[-2:] = [f"{lines[-2]}: {lines[-1]}"]
        else:
            lines.append(line)
    return "; ".join(lines)


def _grade(document: dict[str, Any]) -> Grade:
    """Read a grade that came as plain data."""
    laws = [Law(**law) for law in document.pop("laws")]
    faults = [NamedFault(**fault) for fault in document.pop("faults")]
    notes, tried = ([Note(**remark) for remark in document.pop(key)] for key in ("notes", "tried"))
    return Grade(**document, laws=laws, faults=faults, notes=notes, tried=tried)
