"""Umasks, and runs of another user that can be read in parts: 5 or 0, never called damaged, and nothing is written."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import stat
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from mhsa_cli.errors import StorageError
from tests.faults.client import ForkServer
from tests.faults.row import Place, Row
from tests.faults.rows.kill import in_memory
from tests.faults.rows.small_disk import no_longer_root

HERE = "tests.faults.rows.users"
OTHER = 1000
SIZES = ["task.name=copy", "vocab_size=12", "seq_len=6", "d_model=16", "batch_size=5", "eval_sequences=9", "epochs=2"]
SIZES += ["steps_per_epoch=4", "save_every=4"]
UMASKS = (0o000, 0o022, 0o027, 0o077, 0o777)
MAKERS = {
    "train": ["train", *SIZES, "--name", "fresh"],
    "sweep": ["sweep", *SIZES, "--seeds", "2", "--name", "fresh"],
    "export": ["export", "r", "--to", "csv", "-o", "runs/fresh"],
}
CHECKPOINT = "r/checkpoints/step-00000008"
PARTS = (
    "r/run.json",
    "r/config.yaml",
    "r/metrics.jsonl",
    "r/heads.json",
    "r/heads.jsonl",
    "r/.lock",
    "r/checkpoints",
    CHECKPOINT,
    f"{CHECKPOINT}/model.safetensors",
    f"{CHECKPOINT}/MANIFEST.json",
    "r",
    "s/sweep.json",
    "s/seed=42",
    "s/seed=42/run.json",
    "s/seed=42/checkpoints",
    "s",
    "",
)
HOW = {"nothing": 0o0, "no read": 0o1, "no search": 0o4, "no write": 0o5}  # for others; they may write nothing anyway
READERS = {
    "runs": ["runs", "--json"],
    "runs r": ["runs", "r", "--json"],
    "runs s": ["runs", "--runs", "runs/s", "--json"],
    "verify": ["verify", "r", "--json"],
    "verify s": ["verify", "s", "--json"],
    "inspect-heads": ["inspect-heads", "r"],
    "tokens": ["inspect-heads", "r", "--tokens", "1 2 3"],
    "explain": ["explain", "r"],
    "newest": ["explain"],
    "curve": ["curve", "r"],
    "timeline": ["timeline", "r"],
    "generate": ["generate", "r", "--prompt", "1 2 3"],
    "compare": ["compare", "r", "s/seed=43"],
    "export": ["export", "r", "--to", "npz", "-o", "out.npz"],
}
WRITERS = {
    "resume": ["train", "--resume", "r"],
    "go on": ["train", "--resume", "r", "epochs=3"],
    "resume s": ["sweep", "--resume", "s"],
    "train": MAKERS["train"],
    "sweep": MAKERS["sweep"],
}


class Case(NamedTuple):
    """A command under a umask; or one that meets a part of runs that another user lets it use so far and no further."""

    command: str
    umask: int = -1
    part: str = ""
    how: str = ""


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every umask, every part with a reader and a writer in turn; then all of them in an order that is drawn."""
    readers, writers, hows = list(READERS), list(WRITERS), list(HOW)
    first = [Case(name, umask=umask) for umask, name in zip(UMASKS, itertools.cycle(MAKERS))]
    for number, part in enumerate(PARTS):
        first.append(Case(readers[number % len(readers)], part=part, how=hows[number % 2]))
        first.append(Case(writers[number % len(writers)], part=part, how=hows[number % len(hows)]))
    first.append(Case("compare", part="s", how="no search"))
    first += [Case(name, part=part, how="nothing") for name in ("runs", "verify") for part in PARTS[:3]]
    rest = [Case(name, umask=umask) for umask in UMASKS for name in MAKERS]
    rest += [Case(*(name, -1, part, how)) for name in (*readers, *writers) for part in PARTS for how in HOW]
    rest = [case for case in rest if case not in first]
    random.Random(seed).shuffle(rest)
    yield from [*first, *rest][:count]


def ordinary(patch: pytest.MonkeyPatch, umask: int = -1) -> None:
    """Be a user without privileges, and with this umask."""
    no_longer_root(patch)
    if umask >= 0:
        os.umask(umask)


@cache
def made(server: ForkServer) -> Path:
    """A finished run and a finished sweep."""
    folder = Path(tempfile.mkdtemp(prefix="fault-users-"))
    for argv in (["sweep", *SIZES, "--seeds", "2", "--name", "s"], ["train", *SIZES, "--name", "r"]):
        done = server.run(argv, folder)
        assert done.code == 0, done.err
    return folder / "runs"


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything in a folder: mode, time and content."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, data)
    return found


def check(case: Case, place: Place) -> None:
    """Do it as an ordinary user, and look at what it says and leaves as root."""
    if os.geteuid() != 0:
        pytest.skip("files cannot be given to another user here (needs root)")
    kept = made(place.server)
    with in_memory(place) as place:
        runs = place.path / "runs"
        shutil.copytree(kept, runs)
        under_umask(case, place, runs) if case.umask >= 0 else of_another(case, place, runs)


def under_umask(case: Case, place: Place, runs: Path) -> None:
    """What is made has the permissions that the umask leaves; one that leaves none to the owner is told."""
    done = place.server.run(MAKERS[case.command], place.path, [*place.mutant, (f"{HERE}:ordinary", case.umask)])
    assert "Traceback" not in done.err, done.err[-300:]
    assert done.code == (StorageError.exit_code if case.umask & 0o700 else 0), f"exit code {done.code}: {done.err}"
    for path in [runs / "fresh", *(runs / "fresh").rglob("*")] if (runs / "fresh").exists() else []:
        wanted = (0o777 if path.is_dir() else 0o666) & ~case.umask
        assert stat.S_IMODE(path.stat().st_mode) == wanted, f"{path.name}: {stat.S_IMODE(path.stat().st_mode):o}"


def of_another(case: Case, place: Place, runs: Path) -> None:
    """Runs of another user, all of which may be read but one part of them."""
    for path in [runs, *runs.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.chown(path, OTHER, OTHER)
    part = runs / case.part
    part.chmod(0o700 | HOW[case.how] if part.is_dir() else 0o600 | HOW[case.how] & 0o4)
    before = snapshot(runs)
    argv = {**READERS, **WRITERS}[case.command]
    done = place.server.run(argv, place.path, [*place.mutant, (f"{HERE}:ordinary",)])
    assert "Traceback" not in done.err and "please report" not in done.err, done.err[-300:]
    assert done.code in (0, 5), f"exit code {done.code}: {done.err[-300:]}{done.out[-300:]}"
    assert done.code == 0 or "error: " in done.err, "nothing is said"
    assert snapshot(runs) == before, "something was written"
    if done.out and case.command.startswith("verify"):
        assert "wrong" not in [found["state"] for found in json.loads(done.out)["checks"]], done.out
    elif done.out and case.command.startswith("runs"):
        rows = json.loads(done.out)
        assert "damaged" not in [row["problem"] for row in (rows if isinstance(rows, list) else [rows])], done.out


def call_it_damage(patch: pytest.MonkeyPatch) -> None:
    """The mutant: what cannot be read is wrong."""
    from mhsa_cli.jobs import verify as jobs_verify
    from mhsa_cli.runs import verify

    for module in (verify, jobs_verify):
        patch.setattr(module, "state_of", lambda error: "wrong")


ROW = Row(
    fault="umasks; runs of another user with one part that cannot be read, searched or written",
    promise="P8",
    quick=46,
    long=700,
    cases=cases,
    check=check,
    mutant=f"{HERE}:call_it_damage",
)
