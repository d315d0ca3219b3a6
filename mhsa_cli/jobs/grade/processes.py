"""End the processes that a graded file started and left running, also those in a session of their own."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

ROUNDS = 20  # a process that is ended may have started another meanwhile
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends; on Linux only."""
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def end_descendants(pid: int) -> None:
    """End every process that a living process started, and all of their descendants."""
    _end(lambda: psutil.Process(pid).children(recursive=True))


def end_users_of(folder: Path) -> None:
    """End the processes that hold a file of a folder open or work in it, among those that are younger than this one."""
    place = folder.resolve()
    _end(lambda: (process for process in _younger() if any(path.is_relative_to(place) for path in _paths(process))))


def _end(find: Callable[[], Iterable[psutil.Process]]) -> None:
    with contextlib.suppress(psutil.Error, OSError):  # the parent has ended; a system without /proc
        for _ in range(ROUNDS):
            if not sum(_kill(process) for process in find()):  # all of them, not until the first
                return


def _kill(process: psutil.Process) -> bool:
    """Kill a process; returns whether it was alive, and may have started another."""
    with contextlib.suppress(psutil.Error):
        if process.status() != psutil.STATUS_ZOMBIE:
            process.kill()
            return True
    return False


def _younger() -> Iterable[psutil.Process]:
    """List the processes that this one may have started, directly or through others."""
    born = psutil.Process().create_time()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.create_time() > born:
                yield process


def _paths(process: psutil.Process) -> Iterable[Path]:
    """List the working directory and the open files of a process; those of another user are unknown."""
    with contextlib.suppress(psutil.Error, OSError):  # it has ended, or is another user's
        yield Path(process.cwd())
        if not psutil.LINUX:
            yield from (Path(file.path) for file in process.open_files())
            return
        for link in Path(f"/proc/{process.pid}/fd").iterdir():  # psutil omits open folders and deleted files
            with contextlib.suppress(OSError):
                yield link.readlink()
