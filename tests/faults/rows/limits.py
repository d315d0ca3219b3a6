"""Limits of the system on memory, files, processes, stack and time: exit 0 or 5, and what was saved is whole."""

from __future__ import annotations

import ctypes
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.environment import plain
from tests.faults.client import PLAIN, ROOT, Done, ForkServer
from tests.faults.row import Place, Row
from tests.faults.rows import sweep
from tests.faults.rows.kill import in_memory
from tests.faults.rows.small_disk import TRAIN, broken, end, unbroken

HERE = "tests.faults.rows.limits"
LAST = 60
# Of a copy that has torch loaded memory is limited to what it has and so much more; of a fresh process to a sum.
MORE = 1 << 27
RANGES = {
    "more AS": (0, MORE),
    "more DATA": (0, MORE),
    "AS": (60_000_000, 900_000_000),
    "DATA": (30_000_000, 400_000_000),
    "NOFILE": (3, 20),
    "FSIZE": (0, 20_000),
    "NPROC": (0, 4),
    "STACK": (1 << 14, 1 << 20),
    "CORE": (0, 1),
    "CPU": (1, 1),
}
FRESH = ("AS", "DATA")
COMMANDS: dict[str, list[str]] = {
    "train": [*TRAIN, "save_every=1"],
    "sweep": [*sweep.GRID, "--json"],
    "jobs": [*sweep.GRID, "--json", "--jobs", "2"],
    "generate": ["generate", "done", "--prompt", "1 2 3"],
    "inspect-heads": ["inspect-heads", "done", "--tokens", "1 2 3"],
    "compare": ["compare", "done", "done"],
    "export": ["export", "done", "--to", "npz"],
    "explain": ["explain", "done"],
    "runs": ["runs", "--json"],
    "help": ["--help"],
    "check": ["check", "own.py"],
    "bench": ["bench", "--quick"],
}
OWN = """import torch
def attention(q, k, v):
    scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    past = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return scores.masked_fill(~past, float("-inf")).softmax(-1) @ v
"""
# Every kind of limit once, the numbers such as once ended otherwise; those of fresh processes take seconds.
FIRST = [
    ("AS", 450_000_000, "train"),  # libtorch aborted
    ("DATA", 110_000_000, "generate"),  # OpenBLAS called exit
    ("more AS", 1 << 20, "inspect-heads"),
    ("more AS", 1 << 18, "train"),
    ("more AS", 50_000_000, "compare"),  # scipy waited for ever
    ("more DATA", 1 << 18, "train"),
    ("more DATA", 1 << 20, "sweep"),
    ("NOFILE", 7, "train"),
    ("NOFILE", 8, "sweep"),
    ("NOFILE", 3, "explain"),
    ("FSIZE", 6_000, "train"),
    ("FSIZE", 0, "export"),
    ("NPROC", 0, "jobs"),
    ("STACK", 1 << 16, "train"),
    ("CORE", 0, "runs"),
    ("CPU", 1, "train"),
]


class Case(NamedTuple):
    """A limit, how much it lets, and the command that meets it."""

    limit: str
    size: int
    command: str


def cases(count: int, seed: int) -> Iterator[Case]:
    """Those by hand, then each kind of limit in turn with a size and a command drawn."""
    yield from (Case(*one) for one in FIRST[:count])
    draw, kinds = random.Random(seed), [kind for kind in RANGES if kind not in ("CPU", "CORE")]
    for number in range(count - len(FIRST)):
        kind = kinds[number % len(kinds)]
        low, high = RANGES[kind]
        command = draw.choice([name for name in COMMANDS if kind in FRESH or name not in ("check", "bench", "jobs")])
        # Near nothing most happens, so half of the draws are small.
        yield Case(kind, low + int((high - low) * draw.random() ** (1 if kind in FRESH else 3)), command)


def limit(patch: pytest.MonkeyPatch, kind: str, size: int) -> None:
    """Limit this process, memory to what it has and so much more."""
    if kind == "NPROC":
        no_longer_root()
    name = kind.rpartition(" ")[2]
    if kind != name:
        pages = [int(text) for text in Path("/proc/self/statm").read_text().split()]
        data = Path("/proc/self/status").read_text().partition("VmData:")[2]
        size += pages[0] * resource.getpagesize() if name == "AS" else int(data.split()[0]) * 1024
    number = getattr(resource, f"RLIMIT_{name}")
    resource.setrlimit(number, (size, size if kind != "CPU" else size + 5))


def no_longer_root() -> None:
    """Become an ordinary user who may read and write as root does: root may start as many processes as it likes."""
    libc, header = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0)
    assert libc.prctl(8, 1, 0, 0, 0) == 0  # PR_SET_KEEPCAPS
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    overrides = 1 << 1 | 1 << 2 | 1 << 3  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
    assert libc.capset(header, (ctypes.c_uint32 * 6)(overrides, overrides, 0, 0, 0, 0)) == 0


@cache
def trained(server: ForkServer) -> Path:
    """A finished run to look at."""
    folder = Path(tempfile.mkdtemp(prefix="fault-limits-"))
    made = server.run([*TRAIN[:-1], "done"], folder)
    assert made.code == 0, made.err
    return folder / "runs/done"


def check(case: Case, place: Place) -> None:
    """Run it under the limit; what was reported is there and whole, and without the limit it comes to its end."""
    unbroken(place.server), sweep.unbroken(place.server)  # noqa: B018
    with in_memory(place) as place:
        shutil.copytree(trained(place.server), place.path / "runs/done")
        (place.path / "own.py").write_text(OWN)
        if case.limit in FRESH:
            done, reported = fresh(case, place), -1
        else:
            done, reported = broken(place, COMMANDS[case.command], [f"{HERE}:limit", case.limit, case.size])
        ended = (-signal.SIGXCPU,) if case.limit == "CPU" else ()
        assert done.code in (0, 5, *ended), f"exit code {done.code}: {done.err[-600:]}"
        assert "Traceback" not in done.err and "please report" not in done.err, done.err[-600:]
        # Where no file may grow there is none to say it in.
        assert done.code != 5 or case.limit == "FSIZE" or done.err.strip(), "nothing is said"
        look(case, place, done, reported)


def fresh(case: Case, place: Place) -> Done:
    """Start a process of its own under the limit."""

    def apply() -> None:
        number = getattr(resource, f"RLIMIT_{case.limit}")
        resource.setrlimit(number, (case.size, case.size))

    mutant = [f"from tests.faults.forkserver import prepare; prepare({one[0]!r})" for one in place.mutant]
    start = "; ".join([*mutant, "from mhsa_cli.__main__ import run", "run()"])
    done = subprocess.run(
        [sys.executable, "-c", start, *COMMANDS[case.command]],
        cwd=place.path,
        env={**plain(), **PLAIN, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        errors="replace",
        preexec_fn=apply,
        timeout=120,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def look(case: Case, place: Place, done: Done, reported: int) -> None:
    """Look at what is left, and go on without the limit."""
    from mhsa_cli.jobs.verify import verify_run
    from mhsa_cli.runs.run_dir import RunDir

    assert not verify_run(RunDir(place.path / "runs/done")).damage, "a run that was only read is damaged"
    run, trials = place.path / "runs/r", place.path / "runs/s"
    if case.command == "train" and run.exists():
        if reported >= 0:
            step, _, notes = RunDir(run).load_checkpoint()
            assert step >= reported and not notes, f"step {reported} was reported as saved, the newest is {step}"
        if done.code == 0 or reported >= 0:
            again = place.server.run(["train", "--resume", "r"], place.path, place.mutant)
            assert again.code == 0, again.err[-300:]
            check_end(case, end(run), unbroken(place.server))
    if (trials / "sweep.json").exists():
        again = place.server.run(["sweep", "--resume", "s", "--json"], place.path, place.mutant)
        assert again.code == 0, again.err[-300:]
        found, wanted = sweep.digests(trials), sweep.unbroken(place.server)
        assert found.keys() == wanted.keys() if in_short_memory(case) else found == wanted, "the trials end otherwise"


def in_short_memory(case: Case) -> bool:
    """Tell whether MKL may have had no room for buffers of its own: its sums are then rounded otherwise."""
    return case.limit.endswith(("AS", "DATA"))


def check_end(case: Case, found: tuple[bytes, ...], wanted: tuple[bytes, ...]) -> None:
    """Compare the weights, moments and curve of a run with those of one that met no limit."""
    if not in_short_memory(case):
        assert found == wanted, "it ends otherwise"
        return
    (*_, ours), (*_, theirs) = (map(json.loads, curve.splitlines()) for *_, curve in (found, wanted))
    assert ours.keys() == theirs.keys() and all(
        math.isclose(ours[k], theirs[k], rel_tol=1e-3) for k in ("step", "loss")
    )


def report_it(patch: pytest.MonkeyPatch) -> None:
    """The mutant: what no command has met is a fault of ours."""
    from mhsa_cli.jobs import messages

    patch.setattr(messages, "foreseen", lambda error: None)


ROW = Row(
    fault="limits on memory, open files, file sizes, processes, stack and CPU time",
    promise="P9",
    quick=len(FIRST),
    long=250,
    cases=cases,
    check=check,
    mutant=f"{HERE}:report_it",
)
