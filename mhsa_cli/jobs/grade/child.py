"""The process in which one target is graded: cut off from the terminal, limited, and heard through a pipe alone."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import io
import json
import math
import os
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
from mhsa_cli.records.check import GradeOptions

# The names of what it leaves in its folder.
PRINTED, TRACE, ROOM = "printed", "trace", "room"
READY = "mhsa_cli.check.preload"
PRINTED_BYTES = 2 << 20  # what is kept of each of stdout and stderr: a chatty one is graded all the same
AFTER = 10  # seconds of computing that are left to a process which nobody could end


@dataclass(frozen=True, slots=True)
class Job:
    """What the process is told: `target` with an absolute path, its `file`, and the `folder` that it may write to.

    `grader` is the module whose `grade` grades; `memory` is in bytes.
    """

    target: str
    file: Path
    options: GradeOptions
    grader: str
    folder: Path
    seconds: float
    memory: int


def serve(pipe: Connection, job: Job) -> None:
    """Grade, say what comes of it, and be gone. Never returns."""
    code = 0
    try:
        _cut_off(pipe, job)
        send: Callable[..., None] = lambda **message: pipe.send_bytes(json.dumps(message, default=str).encode())  # noqa: E731
        try:
            _grade(job, send)
        except MhsaError as error:
            send(refused=[error.message, error.hint])
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except MemoryError:
            send(memory=True)
        except BaseException as error:
            from mhsa_cli.check.source.packages import as_the_user_wrote
            from mhsa_cli.core.devices import is_out_of_memory

            said = " ".join(as_the_user_wrote(error).split())[:400]
            frames = [
                f"{Path(f.filename).name}, line {f.lineno}" for f in traceback.extract_tb(error.__traceback__)[-1:]
            ]
            send(raised=said, memory=is_out_of_memory(error), where="".join(frames))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        end_descendants(os.getpid())
        os._exit(code)  # nothing of what it left to be done at exit


def _grade(job: Job, send: Callable[..., None]) -> None:
    send(doing="starting")
    from mhsa_cli.check.source.load import load

    importlib.import_module(READY)
    grade = importlib.import_module(job.grader).grade
    _limit(job)
    send(started=True, doing="loading")
    faulthandler.dump_traceback_later(job.seconds, file=_trace)
    with contextlib.suppress(OSError):
        os.chdir(job.file.parent)  # what it reads at import lies there
    source = load(job.target)
    os.chdir(job.folder / ROOM)  # what it writes when it is called must not lie there
    send(name=source.name)
    grade = grade(source, job.options, lambda doing: send(doing=doing))
    faulthandler.cancel_dump_traceback_later()
    send(grade=asdict(grade))


_trace: Any = None


def _cut_off(pipe: Connection, job: Job) -> None:
    """Leave the terminal and the group of the parent, print into a file, and end when the parent has."""
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
        io.TextIOWrapper(io.BufferedWriter(_Short(number)), "utf-8", "backslashreplace", line_buffering=True)
        for number in (1, 2)
    )
    _trace = (job.folder / TRACE).open("w")
    faulthandler.enable(_trace)
    sys.argv = [str(job.file)]
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "Agg"}  # grading is done on the CPU, and opens no window
    threading.Thread(target=_watch, args=(pipe, job.folder), daemon=True).start()


class _Short(io.FileIO):
    """An open file that takes so many bytes, and lets the rest go by."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.left = PRINTED_BYTES

    def write(self, data: Any) -> int:
        """Write what there is still room for."""
        self.left -= len(data)
        return super().write(data) if self.left >= 0 else len(data)


def _watch(pipe: Connection, folder: Path) -> None:
    """Wait for the end of the parent, for nothing else ever comes; then tidy up in its place."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes()
    end_descendants(os.getpid())
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _limit(job: Job) -> None:
    """Limit memory to what is taken now and the job's more, files in length, and computing; no core is written."""
    try:
        import resource
    except ImportError:  # Windows
        return
    from mhsa_cli.check.source.packages import FILE_BYTES

    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: FILE_BYTES,
        resource.RLIMIT_CPU: math.ceil(job.seconds + AFTER) * (os.cpu_count() or 1),
    }
    with contextlib.suppress(psutil.Error, OSError):  # no /proc: then memory has no limit of ours
        limits[resource.RLIMIT_AS] = psutil.Process().memory_info().vms + job.memory
    for kind, limit in limits.items():
        hard = resource.getrlimit(kind)[1]
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
