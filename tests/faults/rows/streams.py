"""Streams that are closed, full, stuck, read-only or without a reader: the exit code tells, the work is on the disk."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from mhsa_cli.errors import StorageError
from tests.environment import plain
from tests.faults.client import PLAIN, ROOT, Done, ForkServer
from tests.faults.row import Place, Row
from tests.faults.rows.kill import in_memory

HERE = "tests.faults.rows.streams"
SIZES = ["task.name=copy", "vocab_size=12", "seq_len=6", "d_model=16", "batch_size=5", "eval_sequences=9", "epochs=2"]
SIZES += ["steps_per_epoch=4"]
INS = ("null", "closed", "write-only", "left")
OUTS = ("file", "closed", "full", "left", "stuck", "read-only")
COMMANDS: dict[str, tuple[int, list[str]]] = {
    "train": (0, ["train", *SIZES, "--name", "r"]),
    "train --json": (0, ["train", *SIZES, "--name", "r", "--json"]),
    "sweep": (0, ["sweep", *SIZES, "--seeds", "2", "--name", "s"]),
    "runs --json": (0, ["runs", "--json"]),
    "inspect-heads": (0, ["inspect-heads", "done"]),
    "explain": (0, ["explain", "done"]),
    "curve --json": (0, ["curve", "done", "--json"]),
    "generate": (0, ["generate", "done", "--prompt", "1 2 3"]),
    "verify": (0, ["verify", "done"]),
    "export": (0, ["export", "done", "--to", "npz", "-o", "out.npz"]),
    "config show": (0, ["config", "show"]),
    "help": (0, ["--help"]),
    "wrong": (2, ["trian"]),
    "no run": (4, ["explain", "gone"]),
}
FRESH = ("runs --json", "help", "wrong", "config show", "explain")  # those that Python itself may end: without torch
LOST = {"full": StorageError.exit_code, "stuck": StorageError.exit_code, "read-only": StorageError.exit_code, "left": 1}
SECONDS = 30


class Case(NamedTuple):
    """A command with its three streams; `fresh` starts Python anew for it."""

    command: str
    stdin: str
    stdout: str
    stderr: str
    fresh: bool


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every stdout with every stderr, commands in turn; then all combinations in an order that is drawn."""
    names, draw = list(COMMANDS), random.Random(seed)
    first = [
        Case(names[n % len(names)], INS[n % len(INS)], out, err, fresh=False)
        for n, (out, err) in enumerate(itertools.product(OUTS, OUTS))
    ]
    first += [Case(FRESH[n % len(FRESH)], INS[n % len(INS)], out, "closed", fresh=True) for n, out in enumerate(OUTS)]
    rest = [Case(*four, fresh=False) for four in itertools.product(COMMANDS, INS, OUTS, OUTS)]
    rest += [Case(*four, fresh=True) for four in itertools.product(FRESH, INS[:1], OUTS, OUTS)]
    rest = [case for case in rest if case not in first]
    draw.shuffle(rest)
    yield from [*first, *rest][:count]


def opened(kind: str, number: int) -> int | None:
    """Open a stream of a kind; None is a closed one."""
    if kind == "closed":
        return None
    if kind in ("null", "write-only", "read-only"):
        return os.open(os.devnull, os.O_WRONLY if kind == "write-only" else os.O_RDONLY)
    if kind == "full":
        return os.open("/dev/full", os.O_WRONLY)
    reader, writer = os.pipe()
    if number == 0:
        os.close(writer)
        return reader
    if kind == "left":
        os.close(reader)
        return writer
    os.set_inheritable(reader, True)  # stuck: a reader that never reads
    os.set_blocking(writer, False)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(512))
    return writer


def place_streams(kinds: Sequence[str]) -> None:
    """Put streams of these kinds in place of the three; a file stays what it is."""
    made = [None if kind == "file" else opened(kind, number) for number, kind in enumerate(kinds)]
    for number, (kind, found) in enumerate(zip(kinds, made, strict=True)):
        if found is not None:
            os.dup2(found, number)
        elif kind == "closed":
            os.close(number)


def put(patch: pytest.MonkeyPatch, *kinds: str) -> None:
    """Do so in a copied process, with the objects that Python makes of them when it starts."""
    place_streams(kinds)
    for number, (name, kind, mode) in enumerate(zip(("stdin", "stdout", "stderr"), kinds, "rww", strict=True)):
        errors = "backslashreplace" if name == "stderr" else None
        stream = None if kind == "closed" else open(number, mode, errors=errors, closefd=False)  # noqa: PTH123, SIM115
        setattr(sys, name, stream)


@cache
def trained(server: ForkServer) -> Path:
    """A finished run to look at."""
    folder = Path(tempfile.mkdtemp(prefix="fault-streams-"))
    made = server.run(["train", *SIZES, "--name", "done"], folder)
    assert made.code == 0, made.err
    return folder / "runs/done"


def check(case: Case, place: Place) -> None:
    """Run it; whatever its streams are, it ends, tells by its exit code, and has done its work."""
    from mhsa_cli.jobs.verify import verify_run
    from mhsa_cli.runs.run_dir import RunDir

    wanted, argv = COMMANDS[case.command]
    with in_memory(place) as place:
        shutil.copytree(trained(place.server), place.path / "runs/done")
        kinds = (case.stdin, case.stdout, case.stderr)
        if case.fresh:
            done = fresh(argv, kinds, place)
        else:
            done = place.server.run(argv, place.path, [*place.mutant, (f"{HERE}:put", *kinds)], seconds=SECONDS)
        if wanted == 0:
            wanted = LOST.get(case.stdout, 0)
        assert done.code == wanted, f"exit code {done.code}, not {wanted}: {done.err[-300:]}"
        assert "Traceback" not in done.err and "please report" not in done.err, done.err[-300:]
        if case.stderr == "file" and done.code > 1:
            assert done.err.startswith("error: ") or "\nerror: " in done.err, f"nothing is said: {done.err[-300:]}"
        if wanted == 0 and case.stdout == "file":
            assert done.out, "there is no result"
        made = {"train": ["r"], "train --json": ["r"], "sweep": ["s/seed=42", "s/seed=43"]}.get(case.command, [])
        for name in ["done", *made]:
            run = RunDir(place.path / "runs" / name)
            assert run.read_run_json()["status"] == "finished" and not verify_run(run).damage, f"{name} is not whole"
        if case.command == "export":
            assert (place.path / "out.npz").stat().st_size > 0


def fresh(argv: list[str], kinds: tuple[str, str, str], place: Place) -> Done:
    """Start Python with these streams: it makes what it can of them, and looks at them again when it ends."""
    mutant = [f"from tests.faults.forkserver import prepare; prepare({one[0]!r})" for one in place.mutant]
    start = "; ".join([*mutant, "from mhsa_cli.__main__ import run", "run()"])
    with (place.path / "out").open("wb") as out, (place.path / "err").open("wb") as err:
        done = subprocess.run(
            [sys.executable, "-c", start, *argv],
            cwd=place.path,
            env={**plain(), **PLAIN, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            close_fds=False,
            preexec_fn=lambda: place_streams(kinds),
            timeout=SECONDS,
            check=False,
        )
    return Done(done.returncode, (place.path / "out").read_text(), (place.path / "err").read_text())


def trust_them(patch: pytest.MonkeyPatch) -> None:
    """The mutant: streams are taken as they are."""
    from mhsa_cli.jobs import messages

    patch.setattr(messages, "open_streams", lambda: None)


ROW = Row(
    fault="stdin, stdout and stderr closed, full, stuck, read-only or without a reader, in all combinations",
    promise="P9",
    quick=42,
    long=600,
    cases=cases,
    check=check,
    mutant=f"{HERE}:trust_them",
)
