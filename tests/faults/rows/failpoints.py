"""One save, broken at every call it makes to the system: by a kill, a full disk, a broken disk, a refusal, a signal."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.client import ForkServer
from tests.faults.row import Place, Row
from tests.faults.rows.kill import SIZES, in_memory

HERE = "tests.faults.rows.failpoints"
STEPS, BROKEN = 6, 4  # steps of the run, and the step whose save is broken: the third that deletes an older one
TRAIN = ["train", *SIZES.split(), "log_every=1", "save_every=1", "epochs=2", "steps_per_epoch=3", "--name", "r"]
HOW = ("kill", "ENOSPC", "EIO", "EACCES", "EINTR")
# The calls of one save that change something, in their order: metrics and scores to the disk; a folder; three files
# and their manifest, each opened, written and brought to the disk; the folder; the rename that makes it visible, and
# its folder; then the oldest checkpoint, renamed away, emptied and removed.
CALLS = [
    *("fsync", "fsync", "mkdir", "mkdir"),
    *("open", "write", "fsync") * 4,
    *("open", "fsync", "rename", "open", "fsync"),
    *("rename", "unlink", "unlink", "unlink", "unlink", "rmdir"),
]
VISIBLE, SAVED = 19, 21  # from this call on the new checkpoint can be seen, and from this one on the save is done


class Case(NamedTuple):
    """The number of the call that is broken, from 0, and how."""

    call: int
    how: str


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every call with every fault; the first 27 have every call once, the first 75 nearly thrice."""
    found = [Case(n, HOW[(n + turn) % len(HOW)]) for turn in range(len(HOW)) for n in range(len(CALLS))]
    yield from found[:count]


def fail_at(patch: pytest.MonkeyPatch, number: int, how: str) -> None:
    """Break the save of one step at its call of that number. A full disk stays full until the save is over."""
    from mhsa_cli.runs.run_dir import RunDir

    real_commit = RunDir.commit_checkpoint
    made: list[str] = []
    saving = False

    def wrapped(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            counts = name != "open" or args[1] & (os.O_CREAT | os.O_DIRECTORY)
            if saving and counts:
                made.append(name)
                here = len(made) - 1 == number
                full = how == "ENOSPC" and len(made) - 1 > number and name in ("mkdir", "open", "write", "fsync")
                if here and how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if here or full:
                    code = getattr(errno, how)
                    raise OSError(code, os.strerror(code))
            return real(*args, **kwargs)

        return call

    def commit(run: RunDir, step: int, files: Any, keep: int = 2) -> Path:
        nonlocal saving
        saving = step == BROKEN
        try:
            return real_commit(run, step, files, keep)
        finally:
            saving = False
            if step == BROKEN and how == "none":
                (run.path.parent.parent / "calls").write_text(" ".join(made))

    for name in set(CALLS):
        patch.setattr(os, name, wrapped(name))
    patch.setattr(RunDir, "commit_checkpoint", commit)


def write_in_place(patch: pytest.MonkeyPatch) -> None:
    """The mutant: a checkpoint is written under its own name from the start."""
    from mhsa_cli.runs import atomic, checkpoints, commit

    def commit_directory(parent: Path, name: str, files: Any, kept: str = "") -> Path:
        (parent / name).mkdir()
        for file, data in [*files.items(), (commit.MANIFEST, commit._manifest(name, files))]:
            atomic.write_new_file(parent / name / file, data)
        return parent / name

    patch.setattr(checkpoints, "commit_directory", commit_directory)


@cache
def unbroken(server: ForkServer) -> dict[str, bytes]:
    """The end of the run that nothing happens to; also makes sure that CALLS are the calls of a save."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = server.run(TRAIN, folder, [(f"{HERE}:fail_at", -1, "none")])
        assert done.code == 0, done.err
        assert (folder / "calls").read_text().split() == CALLS, "a save makes other calls than are broken here"
        return end(folder / "runs/r")


def end(run: Path) -> dict[str, bytes]:
    """The last checkpoint and the curve of a finished run."""
    found = {path.name: path.read_bytes() for path in (run / "checkpoints" / f"step-{STEPS:08d}").iterdir()}
    return {**found, "metrics.jsonl": (run / "metrics.jsonl").read_bytes()}


def check(case: Case, place: Place) -> None:
    """Break the save; what is left is whole, the exit code tells what happened, and the run can go on to its end."""
    wanted = unbroken(place.server)
    with in_memory(place) as place:
        prepare = [*place.mutant, (f"{HERE}:fail_at", case.call, case.how)]
        done = place.server.run(TRAIN, place.path, prepare)
        refused = case.how not in ("kill", "EINTR") and case.call < SAVED
        code = -signal.SIGKILL if case.how == "kill" else 5 if refused else 0
        assert done.code == code, f"exit code {done.code}, not {code}: {done.err[-300:]}"
        if refused:
            assert "error: cannot " in done.err and case.how in done.err, f"not said: {done.err[-300:]}"
            assert f"older checkpoint of step {BROKEN - 1} is still valid" in done.err or case.call < 2, done.err[-300:]
        look(case, place.path / "runs/r", code)
        if code != 0:
            done = place.server.run(["train", "--resume", "r"], place.path, place.mutant)
            assert done.code == 0, f"resumed: exit code {done.code}: {done.err[-300:]}"
        found = end(place.path / "runs/r")
        for name, data in wanted.items():
            assert found[name] == data, f"{name} differs from that of the run that nothing happened to"


def look(case: Case, path: Path, code: int) -> None:
    """Look at what was left behind."""
    from mhsa_cli.jobs.verify import verify_run
    from mhsa_cli.runs.run_dir import RunDir

    run = RunDir(path)
    step, _, notes = run.load_checkpoint()
    least = STEPS if code == 0 else BROKEN - (case.call < VISIBLE)
    assert step >= least, f"the newest checkpoint is of step {step}, that of step {least} was saved"
    assert not notes, notes
    damage = verify_run(run).damage
    assert not damage, damage
    if code >= 0:
        left = [path.name for path in path.rglob(".tmp-*")]
        assert not left, f"left behind: {left}"


ROW = Row(
    fault=f"a save broken at each of its {len(CALLS)} system calls: SIGKILL, ENOSPC, EIO, EACCES, EINTR",
    promise="P1",
    quick=75,
    long=135,
    cases=cases,
    check=check,
    mutant=f"{HERE}:write_in_place",
)
