"""Where chunks train: in this process, or in processes of their own. One that dies costs its own chunk alone."""

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
from mhsa_cli.jobs.signals import NAMES, signal_name
from mhsa_cli.jobs.sweep.capacity import free_memory
from mhsa_cli.jobs.sweep.chunk import Chunk, Tell, train_chunk
from mhsa_cli.records.sweep import Cause, ChunkProgress
from mhsa_cli.runs.disk import refusal

WAIT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a chunk ended without all its results: a fault of ours, or what its trials fail of if they meet it again.

    A "common" one the other chunks would meet as well: `error` is what ends the sweep then.
    """

    kind: Cause | Literal["internal", "common"]
    message: str
    trace: str = ""
    error: MhsaError | None = None


EndedChunks = list[tuple[Chunk, Fault | None]]


class Engine(Protocol):
    """What trains chunks: `start` at most `slots` of them at a time, then `wait` for those that ended, if any did.

    `memory` is what one chunk may take, in bytes, or None if that is not known.
    """

    slots: int
    memory: int | None

    def start(self, chunk: Chunk) -> None:
        """Begin a chunk."""

    def wait(self) -> EndedChunks:
        """Pass on what running chunks say, for a moment; returns those that ended."""

    def close(self) -> None:
        """End whatever still runs."""


def attempt(path: Path, chunk: Chunk, stop: Callable[[], bool], tell: Tell) -> Fault | None:
    """Train a chunk; what goes wrong becomes a fault in plain words, without the memory that hung on the error."""
    try:
        train_chunk(path, chunk, stop, tell)
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
    """Trains in this process, one chunk after the other."""

    slots = 1

    def __init__(self, path: Path, stop: Callable[[], bool], tell: Tell) -> None:
        self._path, self._stop, self._tell = path, stop, tell
        self._chunks: list[Chunk] = []
        self.memory = free_memory()

    def start(self, chunk: Chunk) -> None:
        """Take a chunk; `wait` trains it."""
        self._chunks.append(chunk)

    def wait(self) -> EndedChunks:
        """Train what was started."""
        chunks, self._chunks = self._chunks, []
        return [(chunk, attempt(self._path, chunk, self._stop, self._tell)) for chunk in chunks]

    def close(self) -> None:
        """Nothing is left."""


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    chunk: Chunk | None = None


class ProcessEngine:
    """Trains in up to `slots` processes, each a fresh Python; one that dies is replaced when there is more to do."""

    def __init__(self, path: Path, slots: int, stop: Callable[[], bool], tell: Tell) -> None:
        self.slots, self._path, self._stop, self._tell = slots, path, stop, tell
        self._workers: list[_Worker] = []
        free = free_memory()
        self.memory = None if free is None else free // slots
        self._stopped = False

    def start(self, chunk: Chunk) -> None:
        """Give a chunk to an idle process, or to a new one."""
        for worker in self._workers:
            if worker.chunk is None:
                with contextlib.suppress(OSError):  # it died while it had nothing to do
                    worker.pipe.send(chunk)
                    worker.chunk = chunk
                    return
        context = get_context("spawn")
        pipe, other = context.Pipe()
        process = context.Process(target=_serve, args=(other, self._path), daemon=True)
        process.start()
        other.close()  # so that its death shows as the end of what can be read
        self._workers.append(_Worker(process, pipe, chunk))
        with contextlib.suppress(OSError):  # it died already: `wait` will see it
            pipe.send(chunk)

    def wait(self) -> EndedChunks:
        """Hear every process for a moment."""
        busy = {worker.pipe: worker for worker in self._workers if worker.chunk is not None}
        ready = wait(list(busy), WAIT_SECONDS)
        if self._stop() and not self._stopped:
            self._stopped = True
            for pipe in busy:
                with contextlib.suppress(OSError):
                    pipe.send(None)
        return [end for pipe in ready if isinstance(pipe, Connection) for end in self._hear(busy[pipe])]

    def _hear(self, worker: _Worker) -> EndedChunks:
        chunk = worker.chunk
        assert chunk is not None
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            worker.pipe.close()
            self._workers.remove(worker)
            return [(chunk, _last_words(worker.process.exitcode))]
        if isinstance(message, ChunkProgress | str):
            self._tell(message)
            return []
        worker.chunk = None
        return [(chunk, message)]

    def close(self) -> None:
        """Close the pipes, at which every process ends."""
        for worker in self._workers:
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()


def _last_words(code: int | None) -> Fault:
    if code is None or code >= 0:
        return Fault("crashed", f"its process ended with exit code {code}")
    name = signal_name(code)
    said = f"its process was ended by {name}"
    return Fault("killed", f"{said}, as by a system out of memory") if name == "SIGKILL" else Fault("crashed", said)


def _serve(pipe: Connection, path: Path) -> None:
    """Be a worker: train the chunks that come through the pipe until it is closed, by an end of any kind."""
    for name in NAMES:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)  # the parent hears it and says what to do
    chunks, stop = queue.SimpleQueue[Chunk](), threading.Event()

    def listen() -> None:
        try:
            while True:
                message = pipe.recv()
                stop.set() if message is None else chunks.put(message)
        except (EOFError, OSError):
            os._exit(1)  # the parent is gone: nobody waits for what is being trained

    threading.Thread(target=listen, daemon=True).start()
    while True:
        chunk = chunks.get()
        try:
            pipe.send(attempt(path, chunk, stop.is_set, pipe.send))
        except OSError:
            os._exit(1)
