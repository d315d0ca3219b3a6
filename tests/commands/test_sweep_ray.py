"""A sweep on a real Ray cluster of two nodes, both on this machine: the same bits, also when a worker is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mhsa_cli.jobs.sweep.ray import RayEngine
from mhsa_cli.records.sweep import ChunkProgress
from tests.commands.shell import facts, mhsa
from tests.commands.test_own_task import MINE, TASK, TOUCH
from tests.commands.test_sweep_resume import kept

pytestmark = pytest.mark.ray
pytest.importorskip("ray", reason="Ray is not installed: pip install 'mhsa-cli[ray]'")

SMALL = ["task.name=copy", "vocab_size=12", "seq_len=6", "d_model=16", "batch_size=5", "eval_sequences=9"]
GRID = [*SMALL, "steps_per_epoch=12", "n_heads=1,2", "--seeds", 5]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    both = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    both.add_node(num_cpus=1)
    yield both
    both.shutdown()


def workers(raylet: int) -> list[int]:
    """List the processes of a node that train a chunk just now."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            pid, _, rest = status.read_text().partition(" (")
            parent = int(rest.rpartition(")")[2].split()[1])
            if parent == raylet and b"ray::_train" in (status.parent / "cmdline").read_bytes():
                found.append(int(pid))
    return found


def test_a_cluster_gives_the_bits_that_this_process_gives(cluster: Any) -> None:
    assert mhsa("sweep", *GRID, "epochs=2", "--name", "here").code == 0
    said = mhsa("sweep", *GRID, "epochs=2", "--name", "there", "--engine", "ray", "--address", cluster.address)
    assert said.code == 0 and "trials 10/10" in said.err
    assert kept(Path("runs/there")) == kept(Path("runs/here"))
    both = [facts(Path("runs", sweep, "n_heads=2_seed=44")) for sweep in ("here", "there")]
    assert both[0]["cpu"] == both[1]["cpu"] and "bits may differ" not in said.err
    assert mhsa("explain", "there/n_heads=2_seed=43").code == 0


def test_a_task_of_ones_own_is_sent_to_the_machines_that_train_it(cluster: Any) -> None:
    Path("mine.py").write_text(MINE.replace(TOUCH, ""))  # a worker stands elsewhere
    grid = [TASK, *SMALL[3:], "epochs=1", "steps_per_epoch=12", "task.shift=0,2", "--seeds", 2]
    assert mhsa("sweep", *grid, "--name", "here").code == 0
    assert mhsa("sweep", *grid, "--name", "there", "--engine", "ray", "--address", cluster.address).code == 0
    assert kept(Path("runs/there")) == kept(Path("runs/here"))


def test_a_killed_worker_of_one_node_costs_nothing_but_time(cluster: Any) -> None:
    (node,) = cluster.worker_nodes
    raylet = node.all_processes["raylet"][0].process.pid
    killed: list[int] = []

    def hunt() -> None:
        until = time.monotonic() + 90
        while time.monotonic() < until and not killed:
            for pid in workers(raylet):
                time.sleep(0.3)  # let it begin
                with contextlib.suppress(ProcessLookupError):  # it had ended: the next one
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.01)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    said = mhsa("sweep", *GRID, "epochs=100", "--name", "there", "--engine", "ray", "--address", cluster.address)
    hunter.join()
    assert killed and said.code == 0 and "its worker was lost" in said.err
    assert mhsa("sweep", *GRID, "epochs=100", "--name", "here").code == 0
    assert kept(Path("runs/there")) == kept(Path("runs/here"))


def test_the_first_signal_brings_back_what_was_trained_and_resume_goes_on_here(cluster: Any) -> None:
    waiting, sent = RayEngine.wait, list[ChunkProgress]()

    def interrupted(self: RayEngine) -> Any:
        send = self._send

        def told(said: ChunkProgress | str) -> None:
            send(said)
            if isinstance(said, ChunkProgress) and said.step and not sent:  # by what was trained, not by the clock
                sent.append(said)
                os.kill(os.getpid(), signal.SIGINT)

        with mock.patch.object(self, "_send", told):
            return waiting(self)

    long = [*SMALL, "steps_per_epoch=1000", "eval_every=1000", "epochs=10", "n_heads=2", "--seeds", 4, "--name"]
    with mock.patch.object(RayEngine, "wait", interrupted):
        said = mhsa("sweep", *long, "there", "--engine", "ray", "--address", cluster.address)
    assert said.code == 130
    states = [facts(path.parent) for path in sorted(Path("runs/there").glob("*/run.json"))]
    assert len(states) == 4 and {info["status"] for info in states} == {"stopped"}
    assert all(0 < info["step"] < 10_000 for info in states)
    again = mhsa("sweep", "--resume", "there")
    assert again.code == 0 and "from the start" not in again.err
    assert mhsa("sweep", *long, "here").code == 0
    assert kept(Path("runs/there")) == kept(Path("runs/here"))


def test_an_address_without_a_cluster_is_said_and_costs_nothing() -> None:
    said = mhsa("sweep", *GRID, "--engine", "ray", "--address", "127.0.0.1:9")
    assert said.code == 2 and "cannot reach the Ray cluster at 127.0.0.1:9: " in said.err
    assert "ray start --head" in said.err
    assert not Path("runs").exists() or not list(Path("runs").iterdir())
