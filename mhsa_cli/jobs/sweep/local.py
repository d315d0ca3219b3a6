"""Train chunks in this process or in worker processes; a worker that dies loses only its own chunk."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Literal, Protocol

from mhsa_cli.core.devices import free_cached_memory, is_out_of_memory
from mhsa_cli.errors import MhsaError
from mhsa_cli.jobs.plain_main import plain_main
from mhsa_cli.jobs.signals import NAMES, signal_name
from mhsa_cli.jobs.sweep.capacity import free_memory
from mhsa_cli.jobs.sweep.chunk import Chunk, Send, train_chunk
from mhsa_cli.records.sweep import Cause, ChunkProgress
from mhsa_cli.runs.disk import refusal

WAIT_SECONDS = 0.2


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
    process: SpawnProcess
    pipe: Connection
    chunk: Chunk | None = None


class ProcessEngine:
    """Trains in up to `slots` new Python processes; one that dies is replaced if there is more to do."""

    def __init__(self, path: Path, slots: int, stop: Callable[[], bool], send: Send) -> None:
        self.slots, self._path, self._stop, self._send = slots, path, stop, send
        self._workers: list[_Worker] = []
        free = free_memory()
        self.memory = None if free is None else free // slots
        self._stopped = False

    def start(self, chunk: Chunk) -> None:
        for worker in self._workers:
            if worker.chunk is None:
                with contextlib.suppress(OSError):  # it died while idle
                    worker.pipe.send(chunk)
                    worker.chunk = chunk
                    return
        context = get_context("spawn")
        pipe, other = context.Pipe()
        process = context.Process(target=_serve, args=(other, self._path), daemon=True)
        with plain_main():
            process.start()
        other.close()  # so that its death shows as the end of what can be read
        self._workers.append(_Worker(process, pipe, chunk))
        with contextlib.suppress(OSError):  # it died already: `wait` will see it
            pipe.send(chunk)

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
