"""What a graded file started and left running, also in a session of its own: found in /proc and ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
ROUNDS = 20  # what is ended may have started another meanwhile
ADOPT = 36  # PR_SET_CHILD_SUBREAPER


def adopt_orphans() -> None:
    """Keep whatever this process starts below it, though what is between them ends; on Linux only."""
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)


def end_descendants(pid: int) -> None:
    """End all that a living process started, and what they did; on a system without /proc nothing."""
    for _ in range(ROUNDS):
        if not _ended(_below(pid)):
            return


def end_users_of(folder: Path) -> None:
    """End the processes that hold a file of a folder open or work in it; on a system without /proc nothing."""
    for _ in range(ROUNDS):
        if not _ended(_users(str(folder.resolve()))):
            return


def _ended(found: Iterator[int]) -> bool:
    pids = [pid for pid in found if pid != os.getpid()]
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def _pids() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())


def _below(pid: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for one in _pids():
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = (PROC / str(one) / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(one)
    waiting = [pid]
    while waiting:
        found = children.pop(waiting.pop(), [])
        yield from found
        waiting += found


def _users(folder: str) -> Iterator[int]:
    for pid in _pids():
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            place = PROC / str(pid)
            links = [place / "cwd", *(place / "fd").iterdir()]
            if any(_within(link, folder) for link in links):
                yield pid


def _within(link: Path, folder: str) -> bool:
    with contextlib.suppress(OSError):
        return f"{link.readlink()}/".startswith(f"{folder}/")
    return False
