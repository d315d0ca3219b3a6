"""The processes of a sweep are copies of the one that began it, where that is safe; each may end by itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from mhsa_cli.config.schema import TrainConfig
from mhsa_cli.jobs.sweep import local
from mhsa_cli.jobs.sweep.local import can_fork
from mhsa_cli.runs.listing import LOCK
from mhsa_cli.runs.lock import is_locked
from tests.commands.shell import alive, digests, mhsa
from tests.environment import plain

SIZES = ["task.name=copy", "vocab_size=12", "seq_len=6", "d_model=16", "batch_size=5", "eval_sequences=9"]
LONG = [*SIZES, "epochs=2", "steps_per_epoch=300", "n_heads=1,2", "--seeds", "3", "--name", "s"]

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux alone")


def begun() -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Start a sweep in two processes, and wait until both have begun a trial."""
    command = [sys.executable, "-m", "mhsa_cli", "sweep", *LONG, "--jobs", "2"]
    pipe = subprocess.PIPE
    owner = subprocess.Popen(command, env={**plain(), "OMP_NUM_THREADS": "1"}, stdout=pipe, stderr=pipe, text=True)
    owners: set[int] = set()
    while len(owners) < 2:
        assert owner.poll() is None, owner.communicate()
        locks = [lock.read_text() for lock in Path("runs/s").glob("*/.lock")]
        owners = {json.loads(text)["pid"] for text in locks if text.endswith("\n")}
        time.sleep(0.01)
    workers = [*map(psutil.Process, sorted(owners))]
    assert {worker.ppid() for worker in workers} == {owner.pid}
    whole = psutil.Process(owner.pid).cmdline()
    assert [worker.cmdline() for worker in workers] == [whole, whole]  # a new Python would have a command of its own
    return owner, workers


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What one process alone makes of it."""
    root = tmp_path_factory.mktemp("alone")
    assert mhsa("sweep", *LONG, "--runs", root).code == 0
    return digests(root / "s")


@on_linux
def test_a_copy_that_is_killed_costs_nothing_but_time(whole: dict[str, object]) -> None:
    owner, workers = begun()
    workers[0].kill()
    _, said = owner.communicate(timeout=300)
    assert owner.returncode == 0 and "SIGKILL" in said
    assert digests() == whole


@on_linux
def test_copies_end_with_their_owner(whole: dict[str, object]) -> None:
    owner, workers = begun()
    owner.kill()
    owner.wait()
    until = time.monotonic() + 60
    while any(alive(worker.pid) for worker in workers):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert not is_locked(Path("runs/s", LOCK))
    assert mhsa("sweep", "--resume", "s").code == 0
    assert digests() == whole


@on_linux
def test_ctrl_c_stops_copies_at_the_same_step_and_they_go_on(whole: dict[str, object]) -> None:
    owner, _ = begun()
    owner.send_signal(signal.SIGINT)
    owner.communicate(timeout=300)
    assert owner.returncode == 130 and not is_locked(Path("runs/s", LOCK))
    assert len([*Path("runs/s").glob("*/checkpoints/step-*")]) == len(digests())
    assert mhsa("sweep", "--resume", "s").code == 0
    assert digests() == whole


@on_linux
@pytest.mark.parametrize(
    ("threads", "settings", "safe"),
    [
        (1, {}, True),
        (2, {}, False),  # a library has started one
        (None, {}, False),  # unknown
        (1, {"threads": 2}, False),
        (1, {"device": "cuda"}, False),
        (1, {"device": "cpu"}, True),
    ],
)
def test_only_a_process_of_one_thread_that_trains_on_the_cpu_is_copied(
    threads: int | None, settings: dict[str, object], safe: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "THREADS", tmp_path / "task")
    monkeypatch.setattr("torch.version.cuda", None)
    for number in range(threads or 0):
        (tmp_path / "task" / str(number)).mkdir(parents=True)
    assert can_fork([TrainConfig(), TrainConfig(**settings)]) is safe
