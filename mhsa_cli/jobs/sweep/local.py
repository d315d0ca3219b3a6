"""Train chunks in this process or in worker processes; a worker that dies loses only its own chunk."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal, Protocol

from mhsa_cli.config.schema import TrainConfig
from mhsa_cli.core.devices import free_cached_memory, is_on_cpu, is_out_of_memory
from mhsa_cli.errors import MhsaError
from mhsa_cli.jobs.plain_main import plain_main
from mhsa_cli.jobs.signals import NAMES, signal_name
from mhsa_cli.jobs.sweep.capacity import free_memory
from mhsa_cli.jobs.sweep.chunk import Chunk, Send, train_chunk
from mhsa_cli.records.sweep import Cause, ChunkProgress
from mhsa_cli.runs.disk import refusal
from mhsa_cli.runs.sweep_dir import SweepDir

WAIT_SECONDS = 0.2
THREADS = Path("/proc/self/task")  # those of this process on Linux, of libraries too


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a chunk ended without all its results: the cause of failure of its trials, or an "internal" error.

    A "common" one would end the other chunks as well, so its `error` ends the sweep.
    """

    kind: Cause | Literal["internal", "common"]
    message: str
    trace: str = ""
    error: MhsaError | None = None


EndedChunks = list[tuple[Chunk, Fault | None]]


class Engine(Protocol):
    """Trains chunks: `start` up to `slots` of them, then `wait` for those that ended, if any.

    `memory` is the number of bytes for one chunk, None if unknown.
    """

    slots: int
    memory: int | None

    def start(self, chunk: Chunk) -> None:
        """Start a chunk."""

    def wait(self) -> EndedChunks:
        """Forward messages of running chunks for a moment; return those that ended."""

    def close(self) -> None:
        """End everything that still runs."""


def attempt(path: Path, chunk: Chunk, stop: Callable[[], bool], send: Send) -> Fault | None:
    """Train a chunk; an error becomes a fault, which keeps no tensors alive."""
    try:
        train_chunk(path, chunk, stop, send)
        return None
    except MhsaError as error:
        return Fault("common", error.message, error=type(error)(error.parts, error.hint, error.code))
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        refused = refusal(error) if isinstance(error, OSError) else None
        if refused is not None and not is_out_of_memory(error):
            return Fault("common", refused.message, error=refused)
        if not is_out_of_memory(error):
            return Fault("internal", f"{type(error).__name__}: {first}", traceback.format_exc())
    free_cached_memory()
    return Fault("memory", first or "out of memory")


class InProcessEngine:
    """Trains in this process, one chunk after another."""

    slots = 1

    def __init__(self, path: Path, stop: Callable[[], bool], send: Send) -> None:
        self._path, self._stop, self._send = path, stop, send
        self._chunks: list[Chunk] = []
        self.memory = free_memory()

    def start(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)

    def wait(self) -> EndedChunks:
        chunks, self._chunks = self._chunks, []
        return [(chunk, attempt(self._path, chunk, self._stop, self._send)) for chunk in chunks]

    def close(self) -> None:
        """Do nothing: no chunk is left."""


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection
    chunk: Chunk | None = None


def can_fork(trainings: Iterable[TrainConfig]) -> bool:
    """Whether a copy of this process can train as a new one does: on Linux, while no library has started a thread."""
    if sys.platform != "linux" or not all(train.threads == 1 and is_on_cpu(train.device) for train in trainings):
        return False
    try:
        return len([*THREADS.iterdir()]) == 1
    except OSError:
        return False


class ProcessEngine:
    """Trains in up to `slots` other processes; one that dies is replaced if there is more to do.

    With `fork` the first ones are copies of this process, made at once, before the display has threads: they have
    loaded torch. All others are new Python processes.
    """

    def __init__(self, sweep: SweepDir, slots: int, stop: Callable[[], bool], send: Send, fork: bool = False) -> None:
        self.slots, self._sweep, self._stop, self._send = slots, sweep, stop, send
        self._workers: list[_Worker] = []
        free = free_memory()
        self.memory = None if free is None else free // slots
        self._stopped = False
        with contextlib.suppress(OSError):  # no memory for a copy: `start` says it
            for _ in range(slots if fork else 0):
                self._add("fork")

    def start(self, chunk: Chunk) -> None:
        for worker in self._workers:
            if worker.chunk is None:
                with contextlib.suppress(OSError):  # it died while idle
                    worker.pipe.send(chunk)
                    worker.chunk = chunk
                    return
        worker = self._add("spawn")
        worker.chunk = chunk
        with contextlib.suppress(OSError):  # it died already: `wait` will see it
            worker.pipe.send(chunk)

    def _add(self, method: Literal["fork", "spawn"]) -> _Worker:
        """Start a process that waits for chunks."""
        pipe, other = Pipe()
        if method == "fork":
            ours = [pipe, *(worker.pipe for worker in self._workers)]
            process: BaseProcess = get_context("fork").Process(
                target=_serve_copy, args=(other, self._sweep, ours), daemon=True
            )
            process.start()
        else:
            process = get_context("spawn").Process(target=_serve, args=(other, self._sweep.path), daemon=True)
            with plain_main():
                process.start()
        other.close()  # so that its death shows as the end of what can be read
        self._workers.append(_Worker(process, pipe))
        return self._workers[-1]

    def wait(self) -> EndedChunks:
        busy = {worker.pipe: worker for worker in self._workers if worker.chunk is not None}
        ready = wait(list(busy), WAIT_SECONDS)
        if self._stop() and not self._stopped:
            self._stopped = True
            for pipe in busy:
                with contextlib.suppress(OSError):
                    pipe.send(None)
        return [end for pipe in ready if isinstance(pipe, Connection) for end in self._receive(busy[pipe])]

    def _receive(self, worker: _Worker) -> EndedChunks:
        chunk = worker.chunk
        assert chunk is not None
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            worker.pipe.close()
            self._workers.remove(worker)
            return [(chunk, _exit_fault(worker.process.exitcode))]
        if isinstance(message, ChunkProgress | str):
            self._send(message)
            return []
        worker.chunk = None
        return [(chunk, message)]

    def close(self) -> None:
        for worker in self._workers:
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()


def _exit_fault(code: int | None) -> Fault:
    if code is None or code >= 0:
        return Fault("crashed", f"its process ended with exit code {code}")
    name = signal_name(code)
    if name == "SIGKILL":
        return Fault("killed", "its process was ended by SIGKILL, as by a system out of memory")
    return Fault("crashed", f"its process was ended by {name}")


def _serve_copy(pipe: Connection, sweep: SweepDir, ours: Sequence[Connection]) -> None:
    """Run a copy of the process that owns the sweep, without what only the owner may hold."""
    for end in ours:  # or no copy would see the end of its owner
        end.close()
    sweep.close()  # the lock stays with the owner
    _serve(pipe, sweep.path)


def _serve(pipe: Connection, path: Path) -> None:
    """Run a worker process: train the chunks from the pipe until it is closed."""
    for name in NAMES:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)  # the parent handles it
    chunks, stop = queue.SimpleQueue[Chunk](), threading.Event()

    def listen() -> None:
        try:
            while True:
                message = pipe.recv()
                stop.set() if message is None else chunks.put(message)
        except (EOFError, OSError):
            os._exit(1)  # the parent is gone

    threading.Thread(target=listen, daemon=True).start()
    while True:
        chunk = chunks.get()
        try:
            pipe.send(attempt(path, chunk, stop.is_set, pipe.send))
        except OSError:
            os._exit(1)
