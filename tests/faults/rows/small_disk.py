"""Disks that are too small, full, closed or gone: exit code 5 with a reason, and the run goes on once there is room."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import resource
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.client import Done, ForkServer
from tests.faults.row import Place, Row
from tests.faults.rows.kill import SIZES, in_memory

HERE = "tests.faults.rows.small_disk"
STEPS = 60
TRAIN = ["train", *SIZES.split(), "log_every=1", "epochs=2", f"steps_per_epoch={STEPS // 2}", "--name", "r"]
DISKS = (32, 48, 56, 64, 72, 96, 112, 256)  # kB; the smallest is refused before the start, the largest is enough
KINDS = ("tmpfs", "tmpfs", "fsize", "tmpfs", "closed", "tmpfs", "gone", "fsize", "tmpfs", "read-only")


class Case(NamedTuple):
    """What happens; `size` is that of the disk in kB, the largest file in bytes, or the step at which it happens."""

    kind: str
    size: int
    save_every: int
    keep: int


def cases(count: int, seed: int) -> Iterator[Case]:
    """All kinds in turn; the disks by size, the others at random."""
    draw, disks = random.Random(seed), 0
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        size = draw.randrange(STEPS)
        if kind == "tmpfs":
            size, disks = DISKS[disks % len(DISKS)], disks + 1
        elif kind == "fsize":
            size = draw.randint(5_000, 16_000)
        yield Case(kind, size, draw.choice((1, 2, 5, 7)), draw.choice((1, 2, 3)))


def tell(patch: pytest.MonkeyPatch, pipe: str) -> None:
    """Say into a pipe which step the run folder has reported as saved."""
    from mhsa_cli.runs.run_dir import RunDir

    real, fd = RunDir.commit_checkpoint, os.open(pipe, os.O_WRONLY)

    def commit(run: RunDir, step: int, files: Any, keep: int = 2) -> Path:
        path = real(run, step, files, keep)
        os.write(fd, b"%d\n" % step)
        return path

    patch.setattr(RunDir, "commit_checkpoint", commit)


def limit(patch: pytest.MonkeyPatch, size: int) -> None:
    """No file of this process may become larger than that."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def no_longer_root(patch: pytest.MonkeyPatch) -> None:
    """Give up all capabilities: a folder closed to its owner is then closed to root as well."""
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0


def at_step(patch: pytest.MonkeyPatch, step: int, what: str) -> None:
    """Close the run folder, or move it away, in the middle of a step."""
    from mhsa_cli.core.training.stack import Stack

    real = Stack.step

    def instead(self: Stack, *arguments: Any, **more: Any) -> None:
        if self.updates == step:
            for folder in (Path("disk/r/checkpoints"), Path("disk/r")):
                folder.chmod(0o555) if what == "closed" else None
            Path("disk/r").rename("moved") if what == "gone" else None
        real(self, *arguments, **more)

    patch.setattr(Stack, "step", instead)


def never_mind(patch: pytest.MonkeyPatch) -> None:
    """The mutant: a checkpoint that cannot be written is none to worry about."""
    from mhsa_cli.errors import StorageError
    from mhsa_cli.runs import checkpoints

    real = checkpoints.commit_checkpoint

    def commit(run: Path, step: int, files: Any, keep: int) -> Path:
        with contextlib.suppress(StorageError):
            return real(run, step, files, keep)
        return run

    patch.setattr(checkpoints, "commit_checkpoint", commit)


@cache
def unbroken(server: ForkServer) -> tuple[bytes, ...]:
    """The end of a run with room enough."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = server.run(TRAIN, Path(folder))
        assert done.code == 0, done.err
        return end(Path(folder) / "runs/r")


def end(run: Path) -> tuple[bytes, ...]:
    """The weights, moments and curve of a finished run."""
    last = run / "checkpoints" / f"step-{STEPS:08d}"
    return tuple(path.read_bytes() for path in (*sorted(last.glob("*.safetensors")), run / "metrics.jsonl"))


@contextlib.contextmanager
def disk(folder: Path, options: str) -> Iterator[None]:
    """Mount a disk in memory at a folder."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("a tmpfs cannot be mounted here (needs root)")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def check(case: Case, place: Place) -> None:
    """Train where it does not fit; what was reported is there and whole, and with room the run comes to its end."""
    unbroken(place.server)
    with in_memory(place) as place, contextlib.ExitStack() as stack:
        if case.kind == "tmpfs":
            stack.enter_context(disk(place.path / "disk", f"size={case.size}k"))
        elif case.kind == "read-only":
            read_only(case, place)
            return
        else:
            (place.path / "disk").mkdir()
        command = [*TRAIN, f"save_every={case.save_every}", f"keep={case.keep}", "--runs", "disk"]
        if case.kind == "fsize":
            done, reported = broken(place, command, [f"{HERE}:limit", case.size])
        elif case.kind == "tmpfs":
            done, reported = broken(place, command)
        else:
            faults = [[f"{HERE}:no_longer_root"], [f"{HERE}:at_step", case.size, case.kind]]
            done, reported = broken(place, command, *faults)
        run = place.path / ("moved" if case.kind == "gone" else "disk/r")
        look(case, done, reported, run)
        if case.kind == "tmpfs":
            subprocess.run(["mount", "-o", "remount,size=1m", place.path / "disk"], check=True)
        elif case.kind == "closed":
            run.chmod(0o755), (run / "checkpoints").chmod(0o755)  # noqa: B018
        if reported < 0:  # nothing was saved: nothing to go on with
            shutil.rmtree(run, ignore_errors=True)
        again = ["train", "--resume", str(run)] if run.exists() else [*TRAIN, "--runs", "disk"]
        ended = place.server.run(again, place.path, place.mutant)
        assert ended.code == 0, f"with room: exit code {ended.code}: {ended.err[-300:]}"
        assert end(run if run.exists() else place.path / "disk/r") == unbroken(place.server), "it ends otherwise"


def broken(place: Place, command: list[str], *faults: list[Any]) -> tuple[Done, int]:
    """Run a command under faults; returns how it ended and the last step that was reported as saved, or -1."""
    pipe = place.path / "pipe"
    os.mkfifo(pipe)
    fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = place.server.run(command, place.path, [*place.mutant, [f"{HERE}:tell", str(pipe)], *faults])
        told = os.read(fd, 1 << 16)
    finally:
        os.close(fd)
    return done, max((int(line) for line in told.split()), default=-1)


def look(case: Case, done: Done, reported: int, run: Path) -> None:
    """Look at how it ended and at what is left."""
    from mhsa_cli.jobs.verify import verify_run
    from mhsa_cli.runs.run_dir import RunDir

    assert done.code in (0, 5), f"exit code {done.code}: {done.err[-300:]}"
    assert "internal error" not in done.err and "Traceback" not in done.err, done.err[-300:]
    if case.kind == "tmpfs":
        assert (case.size > 200) <= (done.code == 0), f"{case.size} kB were not enough: {done.err[-300:]}"
        assert (case.size < 40) <= ("not enough space" in done.err), "it was not estimated before the start"
    elif case.kind in ("closed", "gone"):
        assert done.code == 5, "it ended as if nothing had happened"
    if done.code == 5:
        assert "error: cannot " in done.err or "error: not enough space" in done.err, done.err[-300:]
    if reported >= 0:
        folder = RunDir(run)
        step, _, notes = folder.load_checkpoint()
        assert step >= reported, f"step {reported} was reported as saved, the newest is {step}"
        assert not notes, notes
        damage = verify_run(folder).damage
        assert not damage, damage


def read_only(case: Case, place: Place) -> None:
    """A finished run on a disk that cannot be written: everything that reads works, everything that writes says why."""
    made, folder = place.server.run([*TRAIN, "--runs", "made"], place.path), place.path / "disk"
    assert made.code == 0, made.err
    with disk(folder, "size=1m"):
        shutil.copytree(place.path / "made/r", folder / "r")
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        for reader in (["runs"], ["curve", "r"], ["inspect-heads", "r"], ["explain", "r"], ["verify", "r"]):
            done = place.server.run([*reader, "--runs", "disk"], place.path, place.mutant)
            assert done.code == 0, f"{reader[0]}: exit code {done.code}: {done.err[-300:]}"
        for writer in ([*TRAIN[:-1], "fresh"], ["train", "--resume", "r", f"epochs={case.size + 3}"]):
            done = place.server.run([*writer, "--runs", "disk"], place.path, place.mutant)
            assert done.code == 5 and "EROFS" in done.err, f"{writer[0]}: exit code {done.code}: {done.err[-300:]}"


ROW = Row(
    fault="disks of 8 sizes, a limit on files, a folder closed or moved away mid-run, a read-only disk",
    promise="P1",
    quick=50,
    long=150,
    cases=cases,
    check=check,
    mutant=f"{HERE}:never_mind",
)
