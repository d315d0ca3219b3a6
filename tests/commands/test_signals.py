"""Real processes that get real signals while they train."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.shell import environment, facts, metrics, mhsa
from tests.faults.client import Command, ForkServer

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="other signals there")

ENDLESS = ["task.vocab_size=11", "task.seq_len=6", "model.d_model=12", "model.n_heads=3", "train.epochs=100000"]


def ignore(_: pytest.MonkeyPatch, *names: str) -> None:
    """Ignore signals before mhsa starts, in its process."""
    for name in names:
        signal.signal(getattr(signal, name), signal.SIG_IGN)


def wait_for_steps(run: Path, child: Command, beyond: int = 0) -> int:
    """Wait until the run has written down more than `beyond` steps; returns how many."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not child.ended_with():
        file = run / "metrics.jsonl"
        written = file.read_bytes().count(b'"step", "step"') if file.exists() else 0
        if written > beyond:
            return written
        time.sleep(0.02)
    raise AssertionError(f"no step was written: {child.wait(5)}")


def end(child: Command, number: int, code: int, run: Path) -> None:
    """Send a signal to a training and look at what it leaves."""
    child.signal(number)
    done = child.wait()
    step, err = facts(run)["step"], done.err
    assert done.code == code, err
    assert f"stopped after step {step} of 12000000; continue: mhsa train --resume {run.name}" in err
    assert "Traceback" not in err and f"wrote {run}" in done.out
    assert facts(run)["status"] == "stopped" and step > 0
    assert (run / "checkpoints" / f"step-{step:08d}").is_dir()
    assert [r["step"] for r in metrics(run) if r["kind"] == "step"] == list(range(1, step + 1))


@pytest.fixture
def children(here: Path, server: ForkServer) -> Iterator[dict[str, Command]]:
    """Trainings that would go on for days, started together; each has its folder in ./runs."""
    ignored = ["tests.commands.test_signals:ignore", "SIGINT", "SIGHUP"]
    started = {
        name: server.start(["train", *ENDLESS, "train.log_every=1", "--name", name], here, prepare)
        for name, prepare in [("int", []), ("nohup", [ignored]), ("gone", [])]
    }
    yield started
    for child in started.values():
        if not child.ended_with():
            child.signal(signal.SIGKILL)
            child.wait()


def test_signals_end_a_training_with_a_checkpoint_and_a_way_back(children: dict[str, Command]) -> None:
    for name, child in children.items():
        wait_for_steps(Path("runs") / name, child)
    busy = mhsa("train", "--resume", "int")
    assert busy.code == 6 and f"pid {children['int'].pid}" in busy.err
    assert {row["status"] for row in mhsa("runs", "--json").json} == {"running"}

    gone = Path("runs/gone")
    wait_for_steps(gone, children["gone"], 150)
    killed = children.pop("gone")
    killed.signal(signal.SIGKILL)
    assert killed.wait().code == -signal.SIGKILL
    end(children.pop("int"), signal.SIGINT, 130, Path("runs/int"))
    nohup = children["nohup"]
    for number in (signal.SIGINT, signal.SIGHUP):  # ignored, as in a shell's background and under nohup
        nohup.signal(number)
    before = wait_for_steps(Path("runs/nohup"), nohup)
    wait_for_steps(Path("runs/nohup"), nohup, before + 50)
    end(children.pop("nohup"), signal.SIGTERM, 143, Path("runs/nohup"))

    assert facts(gone)["status"] == "running"
    assert [row["status"] for row in mhsa("runs", "--json").json if row["run"] == "runs/gone"] == ["interrupted"]
    epochs = len([r for r in metrics(gone)[:-1] if r["kind"] == "epoch"])
    assert mhsa("train", "--resume", "gone", f"train.epochs={epochs + 1}").code == 0
    assert facts(gone)["status"] == "finished"
    assert [r["step"] for r in metrics(gone) if r["kind"] == "step"] == list(range(1, 120 * (epochs + 1) + 1))


DROPPED = """
import os, signal, sys, threading, time
import mhsa_cli.__main__ as program

class Slow(threading.Thread):  # as on a busy machine: it is at work before the one that starts it goes on
    def start(self):
        super().start()
        time.sleep(0.1)

threading.Thread = Slow

class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.01)  # here it is raised

def main():
    Dying()
    os.write(1, b"went on\\n")  # in one piece: the interrupt may come at any time
    for _ in range(500):
        time.sleep(0.01)

program.main = main
program.run()
"""


def test_an_interrupt_inside_a_destructor_is_not_lost_and_leaves_no_trace() -> None:
    done = subprocess.run([sys.executable, "-c", DROPPED], env=environment(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"went on\n", b"")
