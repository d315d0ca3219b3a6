"""Run folders on their way through git, archives and copies: the run is what it was, or the reason is said."""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import subprocess
import tarfile
import tempfile
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from mhsa_cli.runs.line_ends import WAY_OUT
from tests.commands.shell import mhsa
from tests.faults.client import ForkServer
from tests.faults.row import Place, Row
from tests.faults.rows.forged import confined

SMALL = ["seq_len=4", "d_model=4", "n_heads=2", "batch_size=3", "eval_sequences=5", "steps_per_epoch=2", "epochs=2"]
CRLF, LF, MIXED = b"the cat sat\r\n" * 30, b"the cat sat\n" * 30, b"the cat\nsat\r\n" * 30
RUNS = {
    "shift": ["task.name=shift", "vocab_size=7", *SMALL],
    "lf": ["task.name=text", "task.path=lf.txt", *SMALL],
    "crlf": ["task.name=text", "task.path=crlf.txt", *SMALL],
    "mixed": ["task.name=text", "task.path=mixed.txt", *SMALL],
}
WEIGHTS = ("model.safetensors", "optimizer.safetensors")


class Case(NamedTuple):
    """Which run takes which way; whether the way is told to leave it as it is; the seed says what is left to chance."""

    run: str
    way: str
    told: bool
    seed: int


class Lossy(Exception):  # noqa: N818
    """The way may change line ends: a refusal is right as well."""


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder, with no settings but those given."""
    if shutil.which("git") is None:
        pytest.skip("git is not here")
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "HOME": str(folder)}
    own = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "safe.directory=*", "-c", "core.safecrlf=false"]
    done = subprocess.run([*own, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"git {arguments}: {done.stderr}"


def through_git(committed: str, checked_out: str) -> Callable[[Path, Path, Case], Path]:
    """Commit runs with core.autocrlf one way, clone and check them out with it another way."""

    def way(home: Path, place: Path, case: Case) -> Path:
        if not case.told:
            (home / "runs/.gitattributes").unlink()
        git(home, "init", "-q")
        git(home, "-c", f"core.autocrlf={committed}", "add", "-A")
        git(home, "commit", "-q", "-m", "runs")
        git(place, "clone", "-q", "-c", f"core.autocrlf={checked_out}", str(home), "clone")
        if not case.told and (committed, checked_out) != ("false", "false"):
            raise Lossy
        return place / "clone/runs"

    return way


def through_zip(home: Path, place: Path, case: Case) -> Path:
    """Pack and unpack with zip, which keeps whole seconds and no rights."""
    with zipfile.ZipFile(place / "a.zip", "w", random.Random(case.seed).choice([0, 8])) as packed:
        for path in sorted(home.rglob("*")):
            packed.write(path, path.relative_to(home))
    with zipfile.ZipFile(place / "a.zip") as packed:
        packed.extractall(place / "unzipped")
    return place / "unzipped/runs"


def through_tar(home: Path, place: Path, case: Case) -> Path:
    """Pack and unpack with tar."""
    kind = random.Random(case.seed).choice(["", "gz", "xz"])
    with tarfile.open(place / "a.tar", f"w:{kind}") as packed:
        packed.add(home, "home")
    with tarfile.open(place / "a.tar") as packed:
        packed.extractall(place / "untarred", filter="data")
    return place / "untarred/home/runs"


def copied(home: Path, place: Path, case: Case) -> Path:
    """Copy as cp -r does: new times, new numbers of files."""
    subprocess.run(["cp", "-r", str(home), str(place / "copy")], check=True)
    return place / "copy/runs"


def without_times(home: Path, place: Path, case: Case) -> Path:
    """Copy file by file in another order, times lost, as tools for other machines do."""
    paths = [path for path in home.rglob("*") if path.is_file()]
    random.Random(case.seed).shuffle(paths)
    for path in paths:
        target = place / "far" / path.relative_to(home)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        os.utime(target, (0, 0))
    return place / "far/runs"


def renamed(home: Path, place: Path, case: Case) -> Path:
    """Give the folder another name: in capitals, with spaces, in letters that are written in two ways."""
    name = random.Random(case.seed).choice([case.run.upper(), "a run", "Übung", "-", "%s", "run's", "[r]"])
    (home / "runs" / case.run).rename(
        home / "runs" / unicodedata.normalize(random.Random(case.seed).choice(["NFC", "NFD"]), name)
    )
    return home / "runs"


def read_only(home: Path, place: Path, case: Case) -> Path:
    """Take the right to write from every file, as archives and shares do."""
    for path in (home / "runs" / case.run).rglob("*"):
        if path.is_file():
            path.chmod(0o444)
    return home / "runs"


def no_lock(home: Path, place: Path, case: Case) -> Path:
    """Lose what only this machine needs: the lock."""
    (home / "runs" / case.run / ".lock").unlink()
    return home / "runs"


def hidden_lost(home: Path, place: Path, case: Case) -> Path:
    """Lose everything whose name begins with a dot, and folders without files."""
    for path in sorted(home.rglob(".*"), reverse=True):
        path.unlink()
    return home / "runs"


WAYS: dict[str, Callable[[Path, Path, Case], Path]] = {
    **{
        f"git {one} {two}": through_git(one, two)
        for one in ("false", "true", "input")
        for two in ("false", "true", "input")
    },
    "zip": through_zip,
    "tar": through_tar,
    "cp": copied,
    "without times": without_times,
    "renamed": renamed,
    "read-only": read_only,
    "no lock": no_lock,
    "hidden lost": hidden_lost,
}


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every way once, those through git with and without its attributes; then each with every run."""
    draw = random.Random(seed)
    every = [(way, told) for told in (False, True) for way in WAYS if told or way.startswith("git")]
    for number in range(count):
        way, told = every[number % len(every)]
        yield Case(list(RUNS)[(number + number // len(every)) % len(RUNS)], way, told, draw.getrandbits(30))


@cache
def trained(server: ForkServer) -> Path:
    """The runs that travel, each half-way and a copy that went on at home."""
    home = Path(tempfile.mkdtemp(prefix="fault-trips-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for name, text in (("lf", LF), ("crlf", CRLF), ("mixed", MIXED)):
        (home / f"{name}.txt").write_bytes(text)
    for name, settings in RUNS.items():
        done = server.run(["train", *settings, "--name", name], home)
        assert done.code == 0, done.err
    shutil.copytree(home / "runs", home / "on")
    for name in RUNS:
        done = server.run(["train", "--resume", f"on/{name}", "train.epochs=3"], home)
        assert done.code == 0, done.err
    return home


def bits(run: Path) -> dict[str, bytes]:
    """The weights, moments and metrics of a run's end."""
    newest = max((run / "checkpoints").iterdir())
    return {name: (newest / name).read_bytes() for name in WEIGHTS} | {"metrics": (run / "metrics.jsonl").read_bytes()}


def check(case: Case, place: Place) -> None:
    """Send a run on its way; then it verifies, is listed, and goes on to the same bits, or is refused with a reason."""
    start = trained(place.server)
    home = place.path / "home"
    for name in (f"runs/{case.run}", "runs/.gitattributes"):
        (shutil.copytree if (start / name).is_dir() else copy_file)(start / name, home / name)
    may_refuse = False
    here = Path.cwd()
    try:
        runs = WAYS[case.way](home, place.path, case)
    except Lossy:
        may_refuse, runs = True, place.path / "clone/runs"
    (run,) = (path for path in runs.iterdir() if path.is_dir())
    os.chdir(place.path)
    try:
        with confined():
            found = mhsa("verify", "--json", "--", run)
            listed = mhsa("runs", "--runs", runs, "--json")
            gone_on = mhsa("train", "--json", f"--resume={run}", "train.epochs=3")
    finally:
        os.chdir(here)
    assert listed.code == 0 and [Path(row["run"]) for row in listed.json] == [run], listed
    if may_refuse and found.code == 4:
        assert gone_on.code == 4 and not gone_on.out, gone_on
        wrong = [one["name"] for one in found.json["checks"] if one["state"] == "wrong"]
        told = any(WAY_OUT in line for line in found.json["usable"])
        assert wrong and (told or case.run == "mixed"), found  # of mixed line ends nobody can tell what they were
        return
    assert found.code == 0, found
    assert gone_on.code == 0, gone_on
    assert json.loads(gone_on.out)["steps"] == 6
    assert bits(run) == bits(start / "on" / case.run), "other bits"


def copy_file(source: Path, target: Path) -> None:
    """Copy one file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def silent(patch: pytest.MonkeyPatch) -> None:
    """The mutant: nobody looks whether line ends were changed."""
    from mhsa_cli.runs import commit, hashes, json_file

    for module in (commit, json_file, hashes):
        patch.setattr(module, "check_line_ends", lambda path, lines, is_right: None)


ROW = Row(
    fault="round trips: git with every core.autocrlf, zip, tar, copies, other names, lost locks, read-only files",
    promise="P4",
    quick=26,
    long=1000,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.round_trips:silent",
)
