"""One run, one owner: eight starters of a name, resuming a live run, reading while it trains, locks of the dead."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from mhsa_cli.errors import MhsaError, RunError
from mhsa_cli.runs.listing import list_runs
from mhsa_cli.runs.run_dir import RunDir
from tests.faults.client import Command, ForkServer
from tests.faults.row import Place, Row

HERE = "tests.faults.rows.owners"
TINY = ["name=shift", "vocab_size=11", "seq_len=6", "d_model=12", "n_heads=3", "batch_size=7", "eval_sequences=9"]
SHARES = {"eight": 0.45, "live": 0.2, "reader": 0.1, "stale": 0.25}


class Case(NamedTuple):
    """What happens, and a number that varies it."""

    kind: str
    number: int


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every kind in its share, mixed."""
    draw = random.Random(seed)
    kinds = [kind for kind, share in SHARES.items() for _ in range(round(count * share))]
    kinds = (kinds + ["eight"] * count)[:count]
    draw.shuffle(kinds)
    for kind in kinds:
        yield Case(kind, draw.randrange(1 << 30))


def own(patch: pytest.MonkeyPatch, root: str, how: str, go: str, stop: str) -> None:
    """Become a process that makes or opens a run as its own, holds it until it is told to stop, and ends."""
    wait_for(Path(go))
    try:
        with RunDir.create(Path(root), "r") if how == "create" else RunDir.open(Path(root), "r", write=True) as run:
            Path(go + f".{os.getpid()}").touch()
            wait_for(Path(stop))
            run.update(owner=os.getpid())
    except MhsaError as error:
        os._exit(error.exit_code)
    os._exit(0)


def wait_for(path: Path, seconds: float = 20) -> None:
    """Wait until a file is there."""
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path.name} never came"
        time.sleep(0.002)


def owners(place: Place, how: str, count: int) -> list[Command]:
    """Start processes that all want the run at the same moment."""
    go, stop = place.path / "go", place.path / "stop"
    wanted = (f"{HERE}:own", str(place.path / "runs"), how, str(go), str(stop))
    found = [place.server.start(["runs"], place.path, [*place.mutant, wanted]) for _ in range(count)]
    go.touch()
    return found


@cache
def finished(server: ForkServer) -> Path:
    """A finished run to copy."""
    folder = Path(tempfile.mkdtemp(prefix="fault-owned-"))
    done = server.run(["train", *TINY, "epochs=1", "steps_per_epoch=5", "--name", "r"], folder)
    assert done.code == 0, done.err
    return folder / "runs"


def eight(case: Case, place: Place) -> None:
    """Exactly one of eight gets the name; the others learn that it is in use."""
    if case.number % 2:
        shutil.copytree(finished(place.server), place.path / "runs")
    racers = owners(place, "open" if case.number % 2 else "create", 8)
    until = time.monotonic() + 20
    while sum(not racer.ended_with() for racer in racers) > 1 and time.monotonic() < until:
        time.sleep(0.005)
    (place.path / "stop").touch()
    codes = sorted(racer.wait().code for racer in racers)
    assert codes == [0] + [6] * 7, f"exit codes {codes}"


def live(case: Case, place: Place) -> None:
    """A run that is owned cannot be resumed, and nothing in it changes."""
    shutil.copytree(finished(place.server), place.path / "runs")
    (owner,) = owners(place, "open", 1)
    wait_for(place.path / f"go.{owner.pid}")
    before = contents(place.path / "runs/r")
    argv = ["train", "--resume", "r", f"epochs={2 + case.number % 3}"]
    done = place.server.run(argv, place.path, place.mutant)
    assert done.code == 6 and f"pid {owner.pid}" in done.err, f"exit code {done.code}: {done.err}"
    assert contents(place.path / "runs/r") == before, "the run of another was changed"
    (place.path / "stop").touch()
    assert owner.wait().code == 0


def contents(run: Path) -> dict[str, bytes]:
    """Every file of a run."""
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def reader(case: Case, place: Place) -> None:
    """Whoever reads while it trains meets whole things only, and never an older step than before."""
    training = ["train", *TINY, "epochs=1", "steps_per_epoch=40", "save_every=1", "keep=1", "--name", "r"]
    command = place.server.start(training, place.path, place.mutant)
    newest, run = -1, place.path / "runs/r"
    while not command.ended_with():
        if not (run / "checkpoints").exists():
            continue
        folder = RunDir(run)
        with contextlib.suppress(RunError):  # only before the first save
            step = folder.load_checkpoint().step
            assert step >= newest, f"step {step} after step {newest}"
            newest = step
        steps = [record["step"] for record in folder.records("metrics.jsonl") if record["kind"] == "step"]
        assert steps == list(range(1, len(steps) + 1))
        assert list_runs(place.path / "runs")[0].status in ("running", "finished")
    done = command.wait()
    assert done.code == 0 and RunDir(run).load_checkpoint().step == 40, done.err


def stale(case: Case, place: Place) -> None:
    """An owner that was killed holds nothing, whatever its lock file says."""
    shutil.copytree(finished(place.server), place.path / "runs")
    (owner,) = owners(place, "open", 1)
    wait_for(place.path / f"go.{owner.pid}")
    owner.signal(signal.SIGKILL)
    assert owner.wait().code == -signal.SIGKILL
    if case.number % 3 == 0:
        (place.path / "runs/r/.lock").write_text(random.Random(case.number).choice(["", "{", '{"pid": 1}', "\0" * 99]))
    with RunDir.open(place.path / "runs", "r", write=True) as run:
        run.update(owner="the next one")
        heir = place.server.run(["train", "--resume", "r", "epochs=2"], place.path, place.mutant)
        assert heir.code == 6, f"exit code {heir.code}: {heir.err}"


def check(case: Case, place: Place) -> None:
    """Do what the case says."""
    {"eight": eight, "live": live, "reader": reader, "stale": stale}[case.kind](case, place)


def lock_nothing(patch: pytest.MonkeyPatch) -> None:
    """The mutant: every lock is granted."""
    from mhsa_cli.runs import lock

    patch.setattr(lock, "_try_lock", lambda fd, shared: True)


ROW = Row(
    fault="eight starters of one name; resuming a live run; reading during training; locks of dead owners",
    promise="P8",
    quick=220,
    long=1100,
    cases=cases,
    check=check,
    mutant=f"{HERE}:lock_nothing",
)
