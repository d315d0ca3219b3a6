"""Processes for the tests of run folders: killed, competing, or of an ordinary user."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mhsa_cli

SOURCE = Path(mhsa_cli.__file__).parents[1]
START = "import sys; sys.path.insert(0, sys.argv.pop(1)); "


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of small saves, each with its fsync, are slow on a disk."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 50_000_000
    place = Path(tempfile.mkdtemp(prefix="mhsa-test-", dir=memory if usable else None))
    yield place
    shutil.rmtree(place)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start Python code as a process of its own, quickly (no site packages); what is left at the end is killed."""
    started = []

    def launch(code: str, *arguments: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-S", "-c", START + code, str(SOURCE), *map(str, arguments)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        return process

    yield launch
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own is closed to others."""
    place = Path(tempfile.mkdtemp(prefix="mhsa-open-"))
    place.chmod(0o755)
    yield place
    for path in [place, *place.rglob("*")]:
        with contextlib.suppress(OSError):
            path.chmod(0o755)
    shutil.rmtree(place)


@pytest.fixture
def in_child() -> Callable[..., str]:
    """Run a function in a forked child, by default as an ordinary user, and return the text it returned."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")

    def run(function: Callable[[], str], user: int | None = 65534) -> str:
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            text = "the child did not finish"
            try:
                if user is not None and os.geteuid() == 0:
                    os.setgroups([])
                    os.setgid(user)
                    os.setuid(user)
                text = function()
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
            finally:
                os.write(theirs, text.encode("utf-8", "backslashreplace"))
                os._exit(0)
        os.close(theirs)
        with os.fdopen(ours, "rb") as pipe:
            said = pipe.read().decode()
        os.waitpid(pid, 0)
        return said

    return run


@pytest.fixture
def umask() -> Iterator[Callable[[int], None]]:
    """Set the umask for one test."""
    before = os.umask(0o022)
    yield lambda mask: (os.umask(mask), None)[1]
    os.umask(before)
