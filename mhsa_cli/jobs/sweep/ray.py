"""Chunks as tasks of a Ray cluster. Only this file knows Ray; workers need no folder in common with the sweep."""

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
from mhsa_cli.jobs.sweep.chunk import Chunk, Tell
from mhsa_cli.jobs.sweep.local import WAIT_SECONDS, EndedChunks, Fault, attempt
from mhsa_cli.records.sweep import ChunkProgress
from mhsa_cli.runs.archive import Parcel, pack_run, unpack_runs
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.text import escape

KNOCK_SECONDS = 5.0  # for an answer from a cluster
STOP_SECONDS = 1.0  # between two questions of a worker whether to stop


def train_away(
    chunk: Chunk, given: Mapping[str, Parcel], stop: Callable[[], bool], tell: Tell
) -> tuple[Fault | None, dict[str, Parcel]]:
    """Train a chunk anywhere: the files of trials that were begun go in, those of all its trials come out."""
    with tempfile.TemporaryDirectory(prefix="mhsa-chunk-") as name:
        folder = Path(name)
        unpack_runs(folder, given)
        fault = attempt(folder, chunk, stop, tell)
        return fault, {trial.name: pack_run(folder / trial.name) for trial in chunk.trials}


class RayEngine:
    """Trains chunks on a Ray cluster: the one at `address`, or one that is started here for this sweep alone."""

    def __init__(
        self,
        sweep: SweepDir,
        address: str | None,
        jobs: int | None,
        stop: Callable[[], bool],
        tell: Tell,
    ) -> None:
        self._ray = ray = connect(address)
        self._sweep, self._stop, self._tell = sweep, stop, tell
        total = ray.cluster_resources()
        self.slots = jobs or max(1, int(total.get("CPU", 1)))
        self.memory = int(total.get("memory", 0)) // self.slots or None
        self._gpus = total.get("GPU", 0.0)
        here = ray.get_runtime_context().get_node_id()  # where no other machine's end takes it along
        on_this_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        self._inbox = ray.remote(num_cpus=0, scheduling_strategy=on_this_node)(_Inbox).remote()
        # Neither is tried again by Ray itself: what to do about a death is decided in one place, for every engine.
        self._task = ray.remote(max_retries=0)(_train)
        self._running: dict[Any, Chunk] = {}
        self._told: set[str] = set()
        self._stopped = False

    def _check(self, needs: Mapping[str, float]) -> None:
        """Say once if no machine can take such a chunk now; a cluster that grows may get one."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if not any(all(node.get(name, 0) >= amount for name, amount in needs.items()) for node in nodes):
            wanted = " and ".join(f"{amount:g} {name}" for name, amount in needs.items())
            if wanted not in self._told:
                self._tell(f"no machine of the Ray cluster has {wanted}: waiting for one (Ctrl-C, or train.threads=1)")
            self._told.add(wanted)

    def _needs(self, config: Config) -> dict[str, float]:
        device = config.train.device
        gpu = device.startswith("cuda") or (device == "auto" and self._gpus > 0)
        return {"CPU": float(config.train.threads)} | ({"GPU": 1.0} if gpu else {})

    def start(self, chunk: Chunk) -> None:
        """Hand a chunk to the cluster, with what there is of its trials."""
        needs = self._needs(chunk.trials[0].config)
        self._check(needs)
        given = {t.name: pack_run(self._sweep.path / t.name) for t in chunk.trials if self._sweep.steps(t.name)}
        task = self._task.options(num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0))
        self._running[task.remote(chunk, given, self._inbox)] = chunk

    def wait(self) -> EndedChunks:
        """Pass on what has come in, and write the trials of chunks that ended."""
        ready, _ = self._ray.wait(list(self._running), timeout=WAIT_SECONDS)
        if self._stop() and not self._stopped:
            self._stopped = True
            self._inbox.stop.remote()
        for message in self._ray.get(self._inbox.take.remote()):
            self._tell(message)
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
        """Let go of the cluster; one that was started here ends."""
        self._ray.shutdown()


class _Inbox:
    """Lies on the machine of the sweep: workers put messages in, the sweep takes them out."""

    def __init__(self) -> None:
        self._messages: deque[ChunkProgress | str] = deque(maxlen=100_000)
        self._stopped = False

    def put(self, message: ChunkProgress | str) -> None:
        """Take a message."""
        self._messages.append(message)

    def take(self) -> list[ChunkProgress | str]:
        """Give all messages that have come since."""
        found = list(self._messages)
        self._messages.clear()
        return found

    def stop(self) -> None:
        """Note that all shall stop."""
        self._stopped = True

    def stopped(self) -> bool:
        """Tell whether all shall stop."""
        return self._stopped


def _train(chunk: Chunk, given: Mapping[str, Parcel], inbox: Any) -> tuple[Fault | None, dict[str, Parcel]]:
    """Be a task: train a chunk, telling the inbox how far it is and asking it now and then whether to stop."""
    import ray

    asked, stopped = time.monotonic(), False

    def stop() -> bool:
        nonlocal asked, stopped
        if time.monotonic() - asked >= STOP_SECONDS:
            stopped, asked = ray.get(inbox.stopped.remote()), time.monotonic()
        return stopped

    return train_away(chunk, given, stop, inbox.put.remote)


def connect(address: str | None) -> Any:
    """Import Ray and connect. Raises: UsageError."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what is trained here is nobody else's business
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
        _knock(where)
        ray.init(address=where, log_to_driver=False, logging_level=logging.CRITICAL, **more)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"cannot reach the Ray cluster at {escape(where)}: {first}",
            "start one there: ray start --head; or leave out --address",
        ) from error
    finally:
        for number, handler in before.items():  # Ray puts its own in their place
            signal.signal(number, handler)
    return ray


def _knock(address: str) -> None:
    """Make sure that somebody listens there: Ray itself would ask for minutes. Raises: OSError, ValueError."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), KNOCK_SECONDS).close()
