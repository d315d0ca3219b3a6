"""Grade blocks in processes of their own: one that hangs, crashes or takes all memory costs only its own grade."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
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

from mhsa_cli.check.source.load import parse_block
from mhsa_cli.check.source.read_file import read_script
from mhsa_cli.errors import StorageError, UsageError
from mhsa_cli.jobs.grade.blocks import Row
from mhsa_cli.jobs.grade.child import PRINTED, READY, TRACE, WORK, Job, serve
from mhsa_cli.jobs.grade.judge import Judge
from mhsa_cli.jobs.grade.processes import end_descendants, end_users_of
from mhsa_cli.jobs.plain_main import plain_main
from mhsa_cli.jobs.signals import signal_name
from mhsa_cli.records.check import NOTHING, TIMEOUT, Grade, GradeOptions, Law, NamedFault, Note, Switched
from mhsa_cli.text import escape, plural

GRADER = "mhsa_cli.check.confirm"
NOT_STARTED = "the file is not the cause: allow more memory or more processes (ulimit -v, ulimit -u)"
GRACE = 0.5  # seconds after the time limit for the process to write its trace
SHOWN_LINES = 3  # printed lines that a note quotes
READ_BYTES = 1 << 20  # of what was printed


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for each block: seconds, and GiB beyond an empty process."""

    seconds: float
    memory: float


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class GradeResult:
    """The grade of a block, and the error if it could not be loaded."""

    grade: Grade
    error: UsageError | None = None


def grade_all(
    rows: Sequence[Row], options: GradeOptions, limits: Limits, jobs: int | None, on_grade: Callable[[Grade], None]
) -> Iterator[GradeResult]:
    """Grade up to `jobs` blocks at a time (None: one per core), and yield in order; `on_grade` gets each at once."""
    done: dict[int, GradeResult] = {}
    for number, row in enumerate(rows):
        if row.refused is not None:
            done[number] = GradeResult(_uncallable(row.block, row.refused))
            on_grade(done[number].grade)
    waiting = deque((number, row.block) for number, row in enumerate(rows) if number not in done)
    running: dict[int, _GradingProcess] = {}
    judge = Judge(_context(), GRADER)
    yielded = 0
    try:
        while yielded < len(rows):
            while waiting and len(running) < (jobs or cores()):
                number, block = waiting.popleft()
                running[number] = _GradingProcess(block, options, limits, judge)
            if running:
                wait([one.pipe for one in running.values()], min(one.seconds_left() for one in running.values()))
            for number, process in list(running.items()):
                if (result := process.poll()) is not None:
                    del running[number]
                    process.close()
                    on_grade(result.grade)
                    done[number] = result
            while yielded in done:
                yield done.pop(yielded)
                yielded += 1
    finally:  # also after Ctrl-C
        for process in running.values():
            process.close()
        judge.close()


def _uncallable(block: str, why: Note) -> Grade:
    return Grade(block, "uncallable", {}, (), (), (), (why,))


def _context() -> BaseContext:
    """Choose how processes start: forked from a server that has torch loaded, where possible."""
    # The path of the server's socket, in the temporary folder, may have about 100 characters.
    if "forkserver" not in get_all_start_methods() or len(tempfile.gettempdir()) > 60:
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload([READY])
    return context


class _GradingProcess:
    """A process that grades one block, seen from its parent."""

    def __init__(self, block: str, options: GradeOptions, limits: Limits, judge: Judge) -> None:
        self.block, self.options, self.limits, self.judge = block, options, limits, judge
        self.file = parse_block(block)[0]
        self.temporary = tempfile.TemporaryDirectory(prefix="mhsa-check-", ignore_cleanup_errors=True)
        self.folder = Path(self.temporary.name)
        (self.folder / WORK).mkdir()
        absolute, memory = str(Path(block).absolute()), int(limits.memory * 2**30)
        job = Job(absolute, self.file.absolute(), options, GRADER, self.folder, limits.seconds, memory)
        context = _context()
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, job), daemon=True)  # type: ignore[attr-defined]
        self.began = time.monotonic()
        self.deadline: float | None = None  # set once the process has loaded everything
        self.stage, self.name = "starting", ""
        self.right: tuple[Grade, Any, int] | None = None  # a right grade, its claim, and the seed it is tested with
        try:
            with plain_main():
                self.process.start()
        except EOFError:  # the server has ended
            raise self._not_started("its fork server ended") from None
        other.close()

    def seconds_left(self) -> float:
        return 60.0 if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)

    def poll(self) -> GradeResult | None:
        """Read the messages of the process; returns the result, or None while it runs."""
        try:
            while self.pipe.poll():
                if (result := self._handle(json.loads(self.pipe.recv_bytes()))) is not None:
                    return result
        except (EOFError, OSError):
            return self._ended()
        except (ValueError, TypeError, KeyError, AttributeError) as error:  # the block wrote into the pipe
            return self._uncallable("invalid_result", f"its process sent an invalid result ({type(error).__name__})")
        if self.deadline is None or time.monotonic() < self.deadline:
            return None
        return self._uncallable(TIMEOUT, f"no result within {self.limits.seconds:g} s; last stage: {self._where()}")

    def _handle(self, message: dict[str, Any]) -> GradeResult | None:
        self.stage = message.get("stage", self.stage)
        self.name = message.get("name", self.name)
        if message.get("started"):
            self.began = time.monotonic()
            self.deadline = self.began + self.limits.seconds + GRACE
        if "grade" in message:
            grade = _grade(message["grade"])
            if not grade.passed:
                return GradeResult(self._completed(grade))
            self._confirm(grade, message.get("claim"))
        if "answer" in message and self.right is not None:
            grade, claim, seed = self.right
            refused = self.judge.refusal(grade, claim, seed, message["answer"], self.options)
            return GradeResult(self._completed(_uncallable(self.block, refused) if refused else grade))
        if "error" in message:
            text, hint, code = message["error"]
            error = UsageError(self._as_given(text), None if hint is None else self._as_given(hint), code)
            said = _on_one_line(str(error))
            if code == NOTHING:  # the row names the file already
                return replace(self._uncallable(NOTHING, said.removeprefix(str(self.file)).lstrip(": ")), error=error)
            return replace(self._uncallable("not_loaded", said), error=error)
        if message.get("out_of_memory"):
            if self.deadline is None:
                raise self._not_started("out of memory")
            limit = f"{self.limits.memory:g} GiB"
            return self._uncallable("out_of_memory", f"more than {limit} of memory were used while {self._where()}")
        if "raised" in message:
            return self._uncallable("raised", f"while {self.stage}: {message['raised']} ({message['where']})")
        return None

    def _confirm(self, grade: Grade, claim: Any) -> None:
        """Ask for an output with the weights and the input of a seed that could not be known before."""
        self.right = grade, claim, secrets.randbits(48)
        self.pipe.send_bytes(json.dumps(self.right[2]).encode())
        self.deadline = time.monotonic() + self.limits.seconds + GRACE

    def _as_given(self, text: str) -> str:
        """Write the path of the file as the user did."""
        return text.replace(str(self.file.absolute()), str(self.file))

    def _completed(self, grade: Grade) -> Grade:
        block = self.block
        if self.name and not block.endswith(f":{self.name}"):
            block = f"{block.removesuffix(':')}:{self.name}"
        seconds = time.monotonic() - self.began
        return replace(grade, block=block, notes=[*grade.notes, *self._printed()], seconds=seconds)

    def _uncallable(self, kind: str, text: str) -> GradeResult:
        return GradeResult(self._completed(_uncallable(self.block, Note(kind, text))))

    def _ended(self) -> GradeResult:
        self.process.join(5)
        code = self.process.exitcode
        if self.deadline is None:
            raise self._not_started("no answer" if code is None else f"exit code {code}")
        if code is None:
            return self._uncallable("silent", f"its process closed the pipe while {self.stage}")
        if code >= 0:
            return self._uncallable("ended", f"the block ended its process with exit code {code} while {self.stage}")
        more = " (as a system does that is out of memory)" if signal_name(code) == "SIGKILL" else ""
        return self._uncallable("killed", f"its process was killed by {signal_name(code)} while {self._where()}{more}")

    def _not_started(self, why: str) -> StorageError:
        """Make the error of a process that did not reach the file."""
        return StorageError(f"cannot grade {escape(self.block)}: its process did not start: {why}", NOT_STARTED)

    def _where(self) -> str:
        """Write the stage, and the line of the file from the trace that Python wrote."""
        with contextlib.suppress(OSError, UsageError):
            trace = (self.folder / TRACE).read_text("ascii", "replace")
            file = self.file.absolute()
            written = re.escape(str(file).encode("ascii", "backslashreplace").decode())
            if found := re.search(rf'File "{written}", line (\d+) in (\S+)', trace):
                return f"{self.stage}, at {read_script(file).place(int(found[1]))} (in {found[2]})"
        return self.stage

    def _printed(self) -> list[Note]:
        """Note the first lines that the block printed, and their number."""
        try:
            with (self.folder / PRINTED).open("rb") as file:
                text = file.read(READ_BYTES).decode("utf-8", "replace")
                more = bool(file.read(1))
        except OSError:
            return []
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        if not lines:
            return []
        first = " | ".join(line[:80] for line in lines[:SHOWN_LINES])
        count = f"more than {len(lines):,} lines" if more else plural(len(lines), "line")
        shown = f"{count} printed: {first}{' ...' if len(lines) > SHOWN_LINES or more else ''}"
        return [Note("printed", shown, {"lines": len(lines)})]

    def close(self) -> None:
        """End the process and all that it started, and remove its folder."""
        if self.process.pid is not None and self.process.is_alive():
            end_descendants(self.process.pid)
        if self.process.pid is not None and hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join(5)
        end_users_of(self.folder)
        self.pipe.close()
        self.temporary.cleanup()


def _on_one_line(text: str) -> str:
    """Join the lines of an error; a line of code with a caret below becomes a quotation."""
    lines: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line == "^" and len(lines) > 1:
            lines[-2:] = [f"{lines[-2]}: {lines[-1]}"]
        else:
            lines.append(line)
    return "; ".join(lines)


def _grade(document: dict[str, Any]) -> Grade:
    laws = [Law(**law) for law in document.pop("laws")]
    faults = [NamedFault(**fault) for fault in document.pop("faults")]
    switched = [Switched(**one) for one in document.pop("switched")]
    notes, tried = ([Note(**note) for note in document.pop(key)] for key in ("notes", "tried"))
    return Grade(**document, laws=laws, faults=faults, notes=notes, tried=tried, switched=switched)
