"""Real processes that get real signals while they train."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell import environment, facts, metrics, mhsa

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
ENDLESS = ("task.vocab_size=11", "task.seq_len=6", "model.d_model=12", "model.n_heads=3", "train.batch_size=7")
ENDLESS += ("train.epochs=100000", "train.log_every=1")  # type: ignore[assignment]
CASES = {"int": (signal.SIGINT, 130), "term": (signal.SIGTERM, 143), "hup": (signal.SIGHUP, 129)}


def start(name: str, ignored: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CODE, ignored, "train", *ENDLESS, "--name", name]
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


@pytest.fixture
def children(here: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """One training for each signal, one that ignores two of them, and one to be killed, all at once."""
    started = {name: start(name) for name in (*CASES, "killed")}
    started["nohup"] = start("nohup", "SIGINT SIGHUP")
    yield started
    for child in started.values():
        child.kill()
        child.communicate()


def test_signals_end_a_training_with_a_checkpoint_and_a_way_back(children: dict[str, subprocess.Popen[str]]) -> None:
    for name, child in children.items():
        wait_for_steps(Path("runs") / name, child)
    busy = mhsa("train", "--resume", "term")
    assert busy.code == 6 and f"pid {children['term'].pid}" in busy.err
    assert {row["status"] for row in mhsa("runs", "--json").json} == {"running"}

    for name, (number, code) in CASES.items():
        children[name].send_signal(number)
        out, err = children[name].communicate(timeout=60)
        run = Path("runs") / name
        step = facts(run)["step"]
        assert children[name].returncode == code, err
        assert f"stopped after step {step} of 12000000; to go on: mhsa train --resume {name}" in err
        assert "Traceback" not in err and f"wrote runs/{name}" in out
        assert facts(run)["status"] == "stopped" and step > 0
        assert (run / "checkpoints" / f"step-{step:08d}").is_dir()
        assert [r["step"] for r in metrics(run) if r["kind"] == "step"] == list(range(1, step + 1))

    stubborn = children["nohup"]
    for number in (signal.SIGINT, signal.SIGHUP):  # as in a shell's background, or under nohup
        stubborn.send_signal(number)
    before = wait_for_steps(Path("runs/nohup"), stubborn)
    wait_for_steps(Path("runs/nohup"), stubborn, before + 50)
    stubborn.send_signal(signal.SIGTERM)
    assert stubborn.wait(timeout=60) == 143

    children["killed"].kill()
    children["killed"].wait()
    assert facts(Path("runs/killed"))["status"] == "running"
    assert [row["status"] for row in mhsa("runs", "--json").json if row["run"] == "runs/killed"] == ["interrupted"]
    # The killed run is brought to where the stopped one is: the same bits, whatever the way there.
    whole = facts(Path("runs/term"))
    per_epoch = whole["step"] // 120 + 1
    for name in ("term", "killed"):
        assert mhsa("train", "--resume", name, f"train.epochs={per_epoch + 1}").code == 0
    assert mhsa("train", *ENDLESS, "--name", "unbroken", f"train.epochs={per_epoch + 1}").code == 0
