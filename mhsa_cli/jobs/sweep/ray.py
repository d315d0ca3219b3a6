"""Train chunks as tasks of a Ray cluster. Only this file uses Ray; workers share no folder with the sweep."""

from __future__ import annotations

import logging
import os
import signal
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mhsa_cli.config.schema import Config
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.signals import NAMES
from mhsa_cli.jobs.sweep.chunk import Chunk, Send
from mhsa_cli.jobs.sweep.local import WAIT_SECONDS, EndedChunks, Fault, attempt
from mhsa_cli.records.sweep import ChunkProgress
from mhsa_cli.runs.archive import Parcel, pack_run, unpack_runs
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.text import escape

CONNECT_SECONDS = 5.0  # for an answer from a cluster
STOP_SECONDS = 1.0  # between two checks of a worker for a stop


def train_away(
    chunk: Chunk, started: Mapping[str, Parcel], stop: Callable[[], bool], send: Send
) -> tuple[Fault | None, dict[str, Parcel]]:
    """Train a chunk anywhere, from the files of its started trials to the files of all its trials."""
    with tempfile.TemporaryDirectory(prefix="mhsa-chunk-") as name:
        folder = Path(name)
        unpack_runs(folder, started)
        fault = attempt(folder, chunk, stop, send)
        return fault, {trial.name: pack_run(folder / trial.name) for trial in chunk.trials}


class RayEngine:
    """Trains chunks on the Ray cluster at `address`, or on one that is started here for this sweep."""

    def __init__(
        self, sweep: SweepDir, address: str | None, jobs: int | None, stop: Callable[[], bool], send: Send
    ) -> None:
        self._ray = ray = connect(address)
        self._sweep, self._stop, self._send = sweep, stop, send
        total = ray.cluster_resources()
        self.slots = jobs or max(1, int(total.get("CPU", 1)))
        self.memory = int(total.get("memory", 0)) // self.slots or None
        self._gpus = total.get("GPU", 0.0)
        here = ray.get_runtime_context().get_node_id()  # this machine: the loss of another one does not end the inbox
        on_this_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        self._inbox = ray.remote(num_cpus=0, scheduling_strategy=on_this_node)(_Inbox).remote()
        # Ray retries neither: the scheduler decides about a lost worker, for every engine.
        self._task = ray.remote(max_retries=0)(_train)
        self._running: dict[Any, Chunk] = {}
        self._waiting: set[str] = set()
        self._stopped = False

    def _check(self, needs: Mapping[str, float]) -> None:
        """Report once if no machine can take such a chunk; the cluster may still grow."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if not any(all(node.get(name, 0) >= amount for name, amount in needs.items()) for node in nodes):
            wanted = " and ".join(f"{amount:g} {name}" for name, amount in needs.items())
            if wanted not in self._waiting:
                self._send(f"no machine of the Ray cluster has {wanted}: waiting for one (Ctrl-C, or train.threads=1)")
            self._waiting.add(wanted)

    def _needs(self, config: Config) -> dict[str, float]:
        device = config.train.device
        gpu = device.startswith("cuda") or (device == "auto" and self._gpus > 0)
        return {"CPU": float(config.train.threads)} | ({"GPU": 1.0} if gpu else {})

    def start(self, chunk: Chunk) -> None:
        needs = self._needs(chunk.trials[0].config)
        self._check(needs)
        started = {t.name: pack_run(self._sweep.path / t.name) for t in chunk.trials if self._sweep.steps(t.name)}
        task = self._task.options(num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0))
        self._running[task.remote(chunk, started, self._inbox)] = chunk

    def wait(self) -> EndedChunks:
        ready, _ = self._ray.wait(list(self._running), timeout=WAIT_SECONDS)
        if self._stop() and not self._stopped:
            self._stopped = True
            self._inbox.stop.remote()
        for message in self._ray.get(self._inbox.take.remote()):
            self._send(message)
        return [(chunk, self._result(task, chunk)) for task in ready for chunk in [self._running.pop(task)]]

    def _result(self, task: Any, chunk: Chunk) -> Fault | None:
        errors = self._ray.exceptions
        fault: Fault | None
        try:
            fault, trials = self._ray.get(task)
        except errors.OutOfMemoryError:
            return Fault("memory", "Ray ended its worker, whose machine ran out of memory")
        except errors.RayTaskError as error:
            return Fault("internal", f"{type(error.cause).__name__}: {error.cause}", str(error))
        except errors.RayError as error:
            return Fault("killed", f"its worker was lost ({type(error).__name__})")
        unpack_runs(self._sweep.path, {name: files for name, files in trials.items() if files})
        return fault

    def close(self) -> None:
        self._ray.shutdown()


class _Inbox:
    """A message queue on the machine of the sweep: workers put messages, the sweep takes them."""

    def __init__(self) -> None:
        self._messages: deque[ChunkProgress | str] = deque(maxlen=100_000)
        self._stopped = False

    def put(self, message: ChunkProgress | str) -> None:
        self._messages.append(message)

    def take(self) -> list[ChunkProgress | str]:
        messages = list(self._messages)
        self._messages.clear()
        return messages

    def stop(self) -> None:
        self._stopped = True

    def stopped(self) -> bool:
        return self._stopped


def _train(chunk: Chunk, started: Mapping[str, Parcel], inbox: Any) -> tuple[Fault | None, dict[str, Parcel]]:
    """Run as a task: train a chunk, send its progress to the inbox, and check the inbox for a stop."""
    import ray

    asked, stopped = time.monotonic(), False

    def stop() -> bool:
        nonlocal asked, stopped
        if time.monotonic() - asked >= STOP_SECONDS:
            stopped, asked = ray.get(inbox.stopped.remote()), time.monotonic()
        return stopped

    return train_away(chunk, started, stop, inbox.put.remote)


def connect(address: str | None) -> Any:
    """Import Ray and connect. Raises: UsageError."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage data leaves this machine
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise UsageError("--engine ray needs Ray, which is not installed", "pip install 'mhsa-cli[ray]'") from error
    if ray.is_initialized():
        return ray
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    before = {number: signal.getsignal(number) for name in NAMES if (number := getattr(signal, name, None))}
    more = {"include_dashboard": False} if where == "local" else {}
    try:
        _check_reachable(where)
        ray.init(address=where, log_to_driver=False, logging_level=logging.CRITICAL, **more)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"cannot reach the Ray cluster at {escape(where)}: {first}",
            "start one there: ray start --head; or remove --address",
        ) from error
    finally:
        for number, handler in before.items():  # Ray replaces them
            signal.signal(number, handler)
    return ray


def _check_reachable(address: str) -> None:
    """Check that the address accepts connections: Ray itself would try for minutes. Raises: OSError, ValueError."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
