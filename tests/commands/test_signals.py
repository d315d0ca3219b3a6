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

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="other signals there")

# A child of a test run may have inherited ignored signals: each handler is set before mhsa starts.
CODE = """
import signal, sys
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)
for name in sys.argv.pop(1).split():
    signal.signal(getattr(signal, name), signal.SIG_IGN)
from mhsa_cli.__main__ import main
main()
"""
ENDLESS = ["task.vocab_size=11", "task.seq_len=6", "model.d_model=12", "model.n_heads=3", "train.epochs=100000"]


def start(name: str, ignored: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CODE, ignored, "train", *ENDLESS, "train.log_every=1", "--name", name]
    env = environment(PYTHONPATH=str(Path(__file__).parents[2]))
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_steps(run: Path, child: subprocess.Popen[str], beyond: int = 0) -> int:
    """Wait until the run has written down more than `beyond` steps; returns how many."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and child.poll() is None:
        file = run / "metrics.jsonl"
        written = file.read_bytes().count(b'"step", "step"') if file.exists() else 0
        if written > beyond:
            return written
        time.sleep(0.02)
    raise AssertionError(f"no step was written: {child.communicate(timeout=5)}")


def end(child: subprocess.Popen[str], number: int, code: int, run: Path) -> None:
    """Send a signal to a training and look at what it leaves."""
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    step = facts(run)["step"]
    assert child.returncode == code, err
    assert f"stopped after step {step} of 12000000; to go on: mhsa train --resume {run.name}" in err
    assert "Traceback" not in err and f"wrote {run}" in out
    assert facts(run)["status"] == "stopped" and step > 0
    assert (run / "checkpoints" / f"step-{step:08d}").is_dir()
    assert [r["step"] for r in metrics(run) if r["kind"] == "step"] == list(range(1, step + 1))


@pytest.fixture
def children(here: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Trainings that would go on for days, started together; each has its folder in ./runs."""
    started = {
        "int": start("int"),
        "nohup": start("nohup", "SIGINT SIGHUP"),
        "gone": start("gone"),
    }
    yield started
    for child in started.values():
        child.kill()
        child.communicate()


def test_signals_end_a_training_with_a_checkpoint_and_a_way_back(children: dict[str, subprocess.Popen[str]]) -> None:
    for name, child in children.items():
        wait_for_steps(Path("runs") / name, child)
    busy = mhsa("train", "--resume", "int")
    assert busy.code == 6 and f"pid {children['int'].pid}" in busy.err
    assert {row["status"] for row in mhsa("runs", "--json").json} == {"running"}

    gone = Path("runs/gone")
    wait_for_steps(gone, children["gone"], 150)
    children["gone"].kill()
    children["gone"].wait()
    end(children["int"], signal.SIGINT, 130, Path("runs/int"))
    for number in (signal.SIGINT, signal.SIGHUP):  # ignored, as in a shell's background and under nohup
        children["nohup"].send_signal(number)
    before = wait_for_steps(Path("runs/nohup"), children["nohup"])
    wait_for_steps(Path("runs/nohup"), children["nohup"], before + 50)
    end(children["nohup"], signal.SIGTERM, 143, Path("runs/nohup"))

    assert facts(gone)["status"] == "running"
    assert [row["status"] for row in mhsa("runs", "--json").json if row["run"] == "runs/gone"] == ["interrupted"]
    epochs = len([r for r in metrics(gone)[:-1] if r["kind"] == "epoch"])
    assert mhsa("train", "--resume", "gone", f"train.epochs={epochs + 1}").code == 0
    assert facts(gone)["status"] == "finished"
    assert [r["step"] for r in metrics(gone) if r["kind"] == "step"] == list(range(1, 120 * (epochs + 1) + 1))
