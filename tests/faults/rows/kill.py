"""SIGKILL at a random instant while every step is saved: a whole checkpoint, no older than the last reported."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import random
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.client import ForkServer
from tests.faults.row import Place, Row

STEPS = 200
HERE = "tests.faults.rows.kill"
SIZES = "name=shift vocab_size=11 seq_len=5 d_model=8 n_heads=2 batch_size=3 eval_sequences=4"
OFTEN = ["log_every=1", "save_every=1", "epochs=2", f"steps_per_epoch={STEPS // 2}"]
TRAIN = ["train", *SIZES.split(), *OFTEN, "--name", "r"]
FSYNC = 0.001  # seconds
MEMORY = Path("/dev/shm")


class Case(NamedTuple):
    """When to strike: after so many reported saves, then a share of two cycles of a step and its save.

    `aimed`: a share of a save, after the next has begun. `goes_on`: in a run that was resumed. The run's own pace says
    how long both are.
    """

    number: int
    keep: int
    saves: int
    share: float
    aimed: bool
    goes_on: bool


class Tally:
    """How many of the kills so far struck within a save."""

    kills = within = 0


def cases(count: int, seed: int) -> Iterator[Case]:
    """Random instants, half of them within a save; one case in four resumes a run first."""
    draw = random.Random(seed)
    for number in range(count):
        keep, saves = draw.choice((1, 2)), draw.randint(2, 7)
        yield Case(number, keep, saves, round(draw.random(), 4), number % 2 == 0, number % 8 in (3, 6))


def tell(patch: pytest.MonkeyPatch, pipe: str) -> None:
    """Say into a pipe when a save begins, and when the run folder has reported it as done.

    The folder lies in memory, where thousands of saves wear nothing out, so an fsync only takes its time.
    """
    from mhsa_cli.runs.run_dir import RunDir

    patch.setattr(os, "fsync", lambda fd: time.sleep(FSYNC))

    real, fd = RunDir.commit_checkpoint, os.open(pipe, os.O_WRONLY)

    def commit(run: RunDir, step: int, files: Any, keep: int = 2) -> Path:
        os.write(fd, b"begin %d %d\n" % (step, time.monotonic_ns()))
        path = real(run, step, files, keep)
        os.write(fd, b"saved %d %d\n" % (step, time.monotonic_ns()))
        return path

    patch.setattr(RunDir, "commit_checkpoint", commit)


def delete_first(patch: pytest.MonkeyPatch) -> None:
    """The mutant: room is made before the new checkpoint is safe."""
    from mhsa_cli.runs import checkpoints

    real = checkpoints.commit_checkpoint

    def commit(run: Path, step: int, files: Any, keep: int) -> Path:
        for item in checkpoints.list_checkpoints(run):
            checkpoints.discard(item.path)
        return real(run, step, files, keep)

    patch.setattr(checkpoints, "commit_checkpoint", commit)


def digest(files: Any) -> str:
    """One digest of a checkpoint's weights and moments."""
    return hashlib.sha256(files["model.safetensors"] + files["optimizer.safetensors"]).hexdigest()


@cache
def unbroken(server: ForkServer) -> dict[int, str]:
    """The digest of every step's checkpoint in a run that nobody kills."""
    folder = Path(tempfile.mkdtemp(prefix="fault-kill-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    done = server.run([*TRAIN, f"keep={STEPS + 1}"], folder)
    assert done.code == 0, done.err
    from mhsa_cli.runs.run_dir import RunDir

    run = RunDir(folder / "runs/r")
    return {item.step: digest(run.load_checkpoint(item.step).files) for item in run.checkpoints()}


@contextlib.contextmanager
def in_memory(place: Place) -> Iterator[Place]:
    """Move a place into memory, where there is such a folder: many saves, each with its fsync, are slow on a disk."""
    with tempfile.TemporaryDirectory(prefix="fault-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Place(Path(folder), place.server, place.mutant)


def check(case: Case, place: Place) -> None:
    """Kill a training; what is on the disk is whole, is what an unbroken run had, and is as new as was reported."""
    with in_memory(place) as place:
        kill_and_look(case, place)


def kill_and_look(case: Case, place: Place) -> None:
    """Check a case in a folder of its own."""
    from mhsa_cli.runs.run_dir import RunDir

    wanted, command = unbroken(place.server), [*TRAIN, f"keep={case.keep}"]
    if case.goes_on:
        kill_one(place, command, case._replace(saves=3, share=0.0, aimed=False))
        command = ["train", "--resume", "r"]
    told = kill_one(place, command, case)
    Tally.kills += 1
    Tally.within += told[-1].startswith(b"begin")
    reported = max((int(line.split()[1]) for line in told if line.startswith(b"saved")), default=0)
    run = RunDir.open(place.path / "runs", "r")
    step, files, notes = run.load_checkpoint()
    assert step >= reported, f"step {reported} was reported as saved, the newest is {step}"
    assert not notes, notes
    assert digest(files) == wanted[step], f"the checkpoint of step {step} is not that of the unbroken run"
    assert run.read_run_json()["status"] == "interrupted"
    steps = [line["step"] for line in run.records("metrics.jsonl") if line["kind"] == "step"]
    assert steps[:step] == list(range(1, step + 1)), f"the curve ends before its checkpoint of step {step}"
    with RunDir.open(place.path / "runs", "r", write=True) as run:
        left = [path.name for path in run.path.rglob(".tmp-*")]
        assert not left, f"left by the dead: {left}"
    if (case.number + 1) % 100 == 0:
        assert Tally.within >= 0.2 * Tally.kills, f"only {Tally.within} of {Tally.kills} kills struck within a save"


def kill_one(place: Place, command: list[str], case: Case) -> list[bytes]:
    """Start a command, kill it when a case says, and return what it told."""
    pipe = place.path / "pipe"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    fd, told = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), b""
    try:
        running = place.server.start(command, place.path, [(f"{HERE}:tell", str(pipe)), *place.mutant])
        until = time.monotonic() + 30
        while told.count(b"saved") < case.saves or (case.aimed and told.count(b"begin") == told.count(b"saved")):
            select.select([fd], [], [], 0.2)
            with contextlib.suppress(BlockingIOError):
                told += os.read(fd, 1 << 16)
            ended = running.ended_with()
            assert not ended and time.monotonic() < until, f"ended with {ended} after {told.count(b'saved')} saves"
        time.sleep(case.share * span(told, case.aimed))
        running.signal(signal.SIGKILL)
        done = running.wait()
        assert done.code == -signal.SIGKILL, f"exit code {done.code}: {done.err}"
        while rest := os.read(fd, 1 << 16):
            told += rest
    finally:
        os.close(fd)
    return told.split(b"\n")[:-1]


def span(told: bytes, aimed: bool) -> float:
    """Return the seconds of a run's last save, or of its last two cycles of a step and its save."""
    lines = [line.split() for line in told.splitlines()]
    ends = [(place, int(line[2])) for place, line in enumerate(lines) if line[0] == b"saved"]
    place, end = ends[-1]
    return (end - int(lines[place - 1][2]) if aimed else 2 * (end - ends[-2][1])) / 1e9


ROW = Row(
    fault="SIGKILL at a random instant while every step is saved, half of them aimed within a save",
    promise="P1",
    quick=200,
    long=2_000,
    cases=cases,
    check=check,
    mutant=f"{HERE}:delete_first",
)
