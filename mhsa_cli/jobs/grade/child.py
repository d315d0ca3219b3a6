"""The process that grades one block: cut off from the terminal, limited in resources, and read through a pipe."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import io
import json
import math
import os
import queue
import shutil
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from mhsa_cli.errors import MhsaError
from mhsa_cli.jobs.grade.processes import adopt_orphans, end_descendants
from mhsa_cli.jobs.messages import foreseen
from mhsa_cli.records.check import GradeOptions

PRINTED, TRACE, WORK = "printed", "trace", "work"  # names in the folder of the process
READY = "mhsa_cli.check.preload"
PRINTED_BYTES = 2 << 20  # limit for each of stdout and stderr; the rest is dropped
EXTRA_CPU = 10  # seconds of CPU time beyond the time limit, for a process that could not be ended


@dataclass(frozen=True, slots=True)
class Job:
    """The task of the process: the block with an absolute path, its file, and the folder that it may write to.

    `grader` is the module whose `grade`, `claim` and `answer` are called; `memory` is in bytes.
    """

    block: str
    file: Path
    options: GradeOptions
    grader: str
    folder: Path
    seconds: float
    memory: int


def serve(pipe: Connection, job: Job) -> None:
    """Grade the block, send the result through the pipe, and exit the process. Never returns."""
    code = 0
    try:
        _cut_off(pipe, job)

        def send(**message: Any) -> None:
            pipe.send_bytes(json.dumps(message, default=str).encode())

        try:
            _grade(job, send)
        except MhsaError as error:
            send(error=[error.message, error.hint, error.code])
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except MemoryError:
            send(out_of_memory=True)
        except BaseException as error:
            from mhsa_cli.check.source.packages import error_text
            from mhsa_cli.core.devices import is_out_of_memory

            message = " ".join(error_text(error).split())[:400]
            frames = traceback.extract_tb(error.__traceback__)[-1:]
            where = "".join(f"{Path(frame.filename).name}, line {frame.lineno}" for frame in frames)
            send(raised=message, out_of_memory=is_out_of_memory(error), where=where)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        end_descendants(os.getpid())
        os._exit(code)  # skips what the block registered for exit


def _grade(job: Job, send: Callable[..., None]) -> None:
    send(stage="starting")
    from mhsa_cli.check.source.load import load

    try:
        importlib.import_module(READY)
        grader = importlib.import_module(job.grader)
    except (ImportError, OSError) as error:
        raise foreseen(error) or error from error
    _limit(job)
    send(started=True, stage="loading")
    faulthandler.dump_traceback_later(job.seconds, file=_trace)
    with contextlib.suppress(OSError):
        os.chdir(job.file.parent)  # files read at import lie there
    source = load(job.block)
    os.chdir(job.folder / WORK)  # files written by a call must not lie there
    send(name=source.name)
    contexts: list[Any] = []
    grade = grader.grade(source, job.options, lambda stage: send(stage=stage), contexts.append)
    faulthandler.cancel_dump_traceback_later()
    if not grade.passed:
        send(grade=asdict(grade))
        return
    claim = grader.claim(contexts[0])
    send(grade=asdict(grade), claim=claim, stage="confirming the grade")
    send(answer=grader.answer(contexts[0], claim, json.loads(_asked.get())))


_trace: Any = None
_asked = queue.SimpleQueue[bytes]()  # what the parent sends


def _cut_off(pipe: Connection, job: Job) -> None:
    """Leave the terminal and the process group of the parent, print to a file, and end with the parent."""
    global _trace
    if hasattr(os, "setsid"):
        os.setsid()
    adopt_orphans()
    for number, path, mode in (
        (0, os.devnull, os.O_RDONLY),
        (1, job.folder / PRINTED, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, job.folder / PRINTED, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(path, mode, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: PTH123, SIM115
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.BufferedWriter(_LimitedFile(number)), "utf-8", "backslashreplace", line_buffering=True)
        for number in (1, 2)
    )
    _trace = (job.folder / TRACE).open("w")
    faulthandler.enable(_trace)
    sys.argv = [str(job.file)]
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "Agg"}  # grade on the CPU, and open no window
    threading.Thread(target=_end_with_parent, args=(pipe, job.folder), daemon=True).start()


class _LimitedFile(io.FileIO):
    """An open file that drops everything after a number of bytes."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.left = PRINTED_BYTES

    def write(self, data: Any) -> int:
        self.left -= len(data)
        return super().write(data) if self.left >= 0 else len(data)


def _end_with_parent(pipe: Connection, folder: Path) -> None:
    """Read from the parent until it closes the pipe, then clean up and exit."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            _asked.put(pipe.recv_bytes())
    end_descendants(os.getpid())
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _limit(job: Job) -> None:
    """Limit memory beyond that in use now, the length of files, and CPU time; write no core dump."""
    try:
        import resource
    except ImportError:  # Windows
        return
    from mhsa_cli.check.source.packages import FILE_BYTES

    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: FILE_BYTES,
        resource.RLIMIT_CPU: math.ceil(job.seconds + EXTRA_CPU) * (os.cpu_count() or 1),
    }
    with contextlib.suppress(psutil.Error, OSError):  # without /proc, memory is not limited
        limits[resource.RLIMIT_AS] = psutil.Process().memory_info().vms + job.memory
    for kind, limit in limits.items():
        hard = resource.getrlimit(kind)[1]
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
