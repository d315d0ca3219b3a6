"""Signals at any instant, twice at once, readers that leave, and an exit code for everything that can happen."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mhsa_cli.errors import RunError
from mhsa_cli.runs.listing import list_runs
from mhsa_cli.runs.run_dir import RunDir
from tests.faults.client import Done, ForkServer
from tests.faults.row import Place, Row

HERE = "tests.faults.rows.signals"
TINY = ["name=shift", "vocab_size=11", "seq_len=6", "d_model=12", "n_heads=3", "batch_size=7", "eval_sequences=9"]
LONG = [*TINY, "epochs=3", "steps_per_epoch=40", "save_every=7"]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CATCHING = "stopping after this step"


class Case(NamedTuple):
    """A kind of event; which one of its kind; and a share of the run's time, or a number of bytes."""

    kind: str
    which: str
    number: float


def cases(count: int, seed: int) -> Iterator[Case]:
    """Signals in half of the cases, the table of exit codes once, the rest double signals and closed pipes."""
    draw = random.Random(seed)
    table = [Case("code", name, 0) for name in CODES]
    single = [Case("signal", SIGNALS[i % 3].name, draw.random()) for i in range(count * 12 // 23)]
    rest = count - len(table) - len(single)
    double = [Case("double", draw.choice(SIGNALS).name, draw.random()) for _ in range(rest // 2)]
    pipes = [Case("pipe", draw.choice(list(READ)), draw.choice([0, 1, 80, 500])) for _ in range(rest - len(double))]
    mixed = [*table, *single, *double, *pipes]
    draw.shuffle(mixed)
    yield from mixed


@cache
def finished(server: ForkServer) -> Path:
    """A finished run to copy, in the folder `runs` of the path."""
    folder = Path(tempfile.mkdtemp(prefix="fault-signals-"))
    done = server.run(["train", *TINY, "epochs=1", "steps_per_epoch=5", "--name", "r"], folder)
    assert done.code == 0, done.err
    return folder


@cache
def duration(server: ForkServer) -> float:
    """How long the long run takes when nobody disturbs it."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        assert server.run(["train", *LONG, "--name", "r"], Path(folder)).code == 0
        return time.monotonic() - began


def interrupted(case: Case, place: Place) -> None:
    """Wherever a signal comes, the exit code tells it and what was saved is whole."""
    number = signal.Signals[case.which]
    command = place.server.start(["train", *LONG, "--name", "r"], place.path, place.mutant)
    time.sleep(case.number * duration(place.server) * 1.2)
    command.signal(number)
    if case.kind == "double":
        time.sleep(case.number * 0.03)
        command.signal(number)
    done = command.wait()
    assert "Traceback" not in done.err and "internal error" not in done.err, done.err[-900:]
    assert done.code in (0, 128 + number, -number), f"exit code {done.code}: {done.err}"
    if CATCHING in done.err:
        assert done.code in (128 + number, -number), f"a signal was caught and the exit code is {done.code}: {done.err}"
    run = place.path / "runs/r"
    if not (run / "run.json").exists():  # too early for a run
        assert done.code != 0
        return
    folder = RunDir(run)
    info = folder.read_run_json()
    assert info["status"] in (["finished"] if done.code == 0 else ["finished", "stopped", "interrupted"]), info[
        "status"
    ]
    saved = [step for step, _ in folder.checkpoints()]
    if done.code == 0:
        assert saved[-1] == 120
    if case.kind == "signal" and CATCHING in done.err and done.code == 128 + number:
        assert saved[-1] == info["step"] == last_step(folder), f"saved {saved}, step {info['step']}"
        if saved[-1] < 120:
            assert "continue: mhsa train --resume r" in done.err
            assert info["status"] == "stopped"
    if saved and int(case.number * 1000) % 4 == 0:
        again = place.server.run(["train", "--resume", "r"], place.path, place.mutant)
        assert again.code == 0 and RunDir(run).read_run_json()["status"] == "finished", again.err


def last_step(folder: RunDir) -> int:
    """The last step that the curve holds."""
    return max((record["step"] for record in folder.records("metrics.jsonl")), default=0)


READ = {
    "runs": ["runs"],
    "runs --json": ["runs", "--json"],
    "inspect-heads": ["inspect-heads"],
    "inspect-heads --json": ["inspect-heads", "--json"],
    "inspect-heads --scores": ["inspect-heads", "--scores"],
    "curve": ["curve"],
    "explain": ["explain"],
    "tasks": ["tasks"],
    "config show": ["config", "show"],
    "config schema": ["config", "schema"],
    "trace": ["trace", "--config", "r.yaml"],
    "train": ["train", *TINY, "epochs=1", "steps_per_epoch=3"],
    "--help": ["--help"],
}


def leave_after(patch: pytest.MonkeyPatch, count: int) -> None:
    """Make stdout a pipe whose reader takes so many bytes and goes."""
    import threading

    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.close(writing)
    sys.stdout = open(1, "w", closefd=False)  # noqa: PTH123, SIM115  # what stood there knew a file

    def read() -> None:
        if count:
            os.read(reading, count)
        os.close(reading)

    if count:
        threading.Thread(target=read, daemon=True).start()
    else:
        read()


def pipe(case: Case, place: Place) -> None:
    """A reader that leaves early gets no complaint."""
    shutil.copytree(finished(place.server) / "runs", place.path / "runs")
    (place.path / "r.yaml").write_text(
        "task: {name: shift, vocab_size: 7, seq_len: 4}\nmodel: {d_model: 6, n_heads: 2}\n"
    )
    prepare = [*place.mutant, (f"{HERE}:leave_after", int(case.number))]
    done = place.server.run(READ[case.which], place.path, prepare)
    assert done.code in (0, 1), f"exit code {done.code}: {done.err}"
    assert "Traceback" not in done.err and "rror" not in done.err, done.err


def refuse(patch: pytest.MonkeyPatch, call: str, code: int) -> None:
    """Let every call of os.`call` in a run folder fail."""
    real = getattr(os, call)

    def instead(*arguments: Any, **named: Any) -> Any:
        if call != "open" or (arguments[1] & os.O_CREAT and "runs" in str(arguments[0])):
            raise OSError(code, os.strerror(code))
        return real(*arguments, **named)

    patch.setattr(os, call, instead)


def explode(patch: pytest.MonkeyPatch) -> None:
    """A fault of our own."""
    from mhsa_cli.runs import listing

    patch.setattr(listing, "_folders", lambda root: 1 // 0)


def stop_itself(patch: pytest.MonkeyPatch, number: int) -> None:
    """Get a signal in the middle of a step."""
    from mhsa_cli.core.training.stack import Stack

    real = Stack.step

    def instead(self: Stack, *arguments: Any, **more: Any) -> None:
        if self.updates == 9:
            os.kill(os.getpid(), number)
        real(self, *arguments, **more)

    patch.setattr(Stack, "step", instead)


SHORT = ["train", *TINY, "epochs=1", "steps_per_epoch=3"]
# name: (exit code, arguments, what is prepared, what must be said). "r" is a finished run, the newest.
CODES: dict[str, tuple[int, list[str], tuple[Any, ...], str]] = {
    "train": (0, SHORT, (), ""),
    "train --json": (0, [*SHORT, "--json"], (), ""),
    "no steps": (0, ["train", *TINY, "epochs=0"], (), ""),
    "resume a finished run": (0, ["train", "--resume", "r"], (), ""),
    "inspect": (0, ["inspect-heads", "r"], (), ""),
    "runs": (0, ["runs"], (), ""),
    "tasks": (0, ["tasks"], (), ""),
    "config check": (0, ["config", "check", "runs/r/config.yaml"], (), ""),
    "version": (0, ["--version"], (), ""),
    "our own fault": (1, ["runs"], (f"{HERE}:explode",), "please report"),
    "unknown command": (2, ["trian"], (), "mhsa train"),
    "unknown option": (2, ["train", "--steps", "3"], (), "--steps"),
    "unknown key": (2, ["train", "leraning_rate=1"], (), "leraning_rate"),
    "bad value": (2, ["train", "lr=fast"], (), "lr"),
    "heads do not divide": (2, ["train", "d_model=10", "n_heads=3"], (), "n_heads"),
    "missing config": (2, ["train", "--config", "none.yaml"], (), "none.yaml"),
    "bad run name": (2, [*SHORT, "--name", "a/b"], (), "a/b"),
    "run exists": (2, [*SHORT, "--name", "r"], (), "already exists"),
    "another training": (2, ["train", "--resume", "r", "lr=0.5"], (), "train.lr"),
    "bad head": (2, ["inspect-heads", "r", "--head", "77"], (), "77"),
    "bad tokens": (2, ["inspect-heads", "r", "--tokens", "1 2 99"], (), "99"),
    "too large": (2, ["train", "d_model=100000000", "n_heads=1"], (), "d_model"),
    "rate explodes": (
        3,
        ["train", *TINY, "steps_per_epoch=3", "lr=1e4", "weight_decay=1e4", "epochs=9"],
        (),
        "not finite",
    ),
    "no such run": (4, ["inspect-heads", "gone"], (), "gone"),
    "no run at all": (4, ["inspect-heads", "--runs", "empty"], (), "empty"),
    "no run to resume": (4, ["train", "--resume", "gone"], (), "gone"),
    "run.json is no JSON": (4, ["inspect-heads", "torn"], (), "run.json"),
    "no checkpoint": (4, ["generate", "bare", "--prompt", "1 2 3"], (), "checkpoint"),
    "edited config": (4, ["train", "--resume", "edited"], (), "n_heads"),
    "full disk": (5, SHORT, (f"{HERE}:refuse", "mkdir", errno.ENOSPC), "ENOSPC"),
    "disk error": (5, SHORT, (f"{HERE}:refuse", "fsync", errno.EIO), "EIO"),
    "no permission": (5, SHORT, (f"{HERE}:refuse", "open", errno.EACCES), "EACCES"),
    "read-only": (5, SHORT, (f"{HERE}:refuse", "mkdir", errno.EROFS), "EROFS"),
    "quota": (5, SHORT, (f"{HERE}:refuse", "open", errno.EDQUOT), "EDQUOT"),
    "runs is a file": (5, [*SHORT, "--runs", "file"], (), "file"),
    "in use": (6, ["train", "--resume", "r", "epochs=2"], ("lock",), "in use"),
    "name in use": (6, [*SHORT, "--name", "r"], ("lock",), "in use"),
    "hang-up": (129, ["train", *LONG], (f"{HERE}:stop_itself", signal.SIGHUP), "continue"),
    "Ctrl-C": (130, ["train", *LONG], (f"{HERE}:stop_itself", signal.SIGINT), "continue"),
    "termination": (143, ["train", *LONG], (f"{HERE}:stop_itself", signal.SIGTERM), "continue"),
}


def code(case: Case, place: Place) -> None:
    """What happened is what the exit code tells."""
    wanted, argv, prepare, words = CODES[case.which]
    runs = place.path / "runs"
    for name in ("edited", "bare", "torn", "r"):
        shutil.copytree(finished(place.server) / "runs/r", runs / name)
    (place.path / "file").touch()
    (place.path / "empty").mkdir()
    (runs / "torn/run.json").write_text('{"format": 1,')
    shutil.rmtree(runs / "bare/checkpoints")
    config = runs / "edited/config.yaml"
    config.write_text(config.read_text().replace("n_heads: 3", "n_heads: 4"))
    holder = RunDir.open(runs, "r", write=True) if prepare == ("lock",) else contextlib.nullcontext()
    with holder:
        prepared = [*place.mutant] if not prepare or prepare == ("lock",) else [prepare, *place.mutant]
        done: Done = place.server.run(argv, place.path, prepared)
    assert done.code == wanted, f"exit code {done.code}, wanted {wanted}: {done.err}{done.out}"
    assert words in done.err, f"{words} is not said: {done.err}"
    assert "Traceback" not in done.err
    with contextlib.suppress(RunError):
        assert all(row.problem is None for row in list_runs(runs) if row.name != "torn")


def check(case: Case, place: Place) -> None:
    """Do what the case says."""
    {"signal": interrupted, "double": interrupted, "pipe": pipe, "code": code}[case.kind](case, place)


def forget_the_signal(patch: pytest.MonkeyPatch) -> None:
    """The mutant: a signal is answered in words and then forgotten."""
    from mhsa_cli.jobs.signals import PLAIN, StopSignal

    patch.setattr(StopSignal, "_catch", lambda self, number, frame: os.write(2, PLAIN) and None)


ROW = Row(
    fault="INT, TERM and HUP at any instant, twice at once; readers that leave; the table of exit codes",
    promise="P9",
    quick=230,
    long=1000,
    cases=cases,
    check=check,
    mutant=f"{HERE}:forget_the_signal",
)
