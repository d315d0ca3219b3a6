"""Files that the disk, or somebody, changed: nothing is used as if it were right, and `mhsa verify` tells."""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from mhsa_cli.errors import MhsaError
from tests.faults.client import ForkServer
from tests.faults.row import Place, Row

SMALL = "vocab_size=7 seq_len=4 d_model=4 n_heads=2 batch_size=3 eval_sequences=5 epochs=3 steps_per_epoch=2"
RUNS = {
    "shift": ["task.name=shift", *SMALL.split()],
    "text": ["task.name=text", "task.path=a.txt", *SMALL.split()[1:]],
    "other": ["task.name=shift", *SMALL.split(), "seed=9"],
    "other-text": ["task.name=text", "task.path=a.txt", *SMALL.split()[1:], "seed=9"],
}
PLAIN = ["run.json", "config.yaml", "metrics.jsonl", "heads.json", "heads.jsonl", "text.txt"]
FOLDERS = ["checkpoints/step-00000004", "checkpoints/step-00000006"]
INSIDE = ["model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json"]
FILES = [*PLAIN, *(f"{folder}/{name}" for folder in FOLDERS for name in INSIDE)]
FORMATS = ["run.json", "heads.json", f"{FOLDERS[1]}/MANIFEST.json", f"{FOLDERS[1]}/state.json"]


class Case(NamedTuple):
    """What is done to which file, or folder, of which run; the seed says where in it."""

    run: str
    how: str
    what: str
    seed: int


def places() -> list[tuple[str, str]]:
    """Every kind of damage with everything it can be done to."""
    found = [(how, name) for how in DAMAGES if how not in ("renamed", "format") for name in FILES]
    return found + [("renamed", name) for name in [*FILES, *FOLDERS]] + [("format", name) for name in FORMATS] * 4


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every kind of damage of every file first, then more of them at other places, and bits above all."""
    draw, every = random.Random(seed), places()
    weights = [5 if how in ("flip", "cut") else 1 for how, _ in every]
    for number in range(count):
        how, what = every[number] if number < len(every) else draw.choices(every, weights)[0]
        yield Case("text" if what == "text.txt" else draw.choice(("shift", "text")), how, what, draw.getrandbits(30))


def _changed(change: Callable[[bytearray, random.Random], None]) -> Callable[[Path, Path, random.Random], None]:
    def damage(path: Path, other: Path, draw: random.Random) -> None:
        data = bytearray(path.read_bytes())
        change(data, draw)
        path.write_bytes(data)

    return damage


def _flip(data: bytearray, draw: random.Random, count: int = 1) -> None:
    for bit in draw.sample(range(len(data) * 8), count):
        data[bit // 8] ^= 1 << bit % 8


def _overwrite(data: bytearray, draw: random.Random, zeros: bool) -> None:
    start = draw.randrange(len(data))
    size = min(draw.choice((1, 8, 64, 512)), len(data) - start)
    before = bytes(data[start : start + size])
    data[start : start + size] = bytes(size) if zeros else draw.randbytes(size)
    if data[start : start + size] == before:
        data[start] ^= 1


def _cut(data: bytearray, draw: random.Random) -> None:
    del data[draw.randrange(len(data)) :]


def _without_line(data: bytearray, draw: random.Random) -> None:
    lines = data.splitlines(keepends=True)
    del lines[draw.randrange(len(lines))]
    data[:] = b"".join(lines)


def _swap(path: Path, other: Path, draw: random.Random) -> None:
    partner = draw.choice([p for p in path.parent.iterdir() if p.is_file() and p.name not in (path.name, ".lock")])
    data = path.read_bytes()
    path.write_bytes(partner.read_bytes())
    partner.write_bytes(data)


def _rename(path: Path, other: Path, draw: random.Random) -> None:
    """A folder under another step's name, a file under another's name, or under one that nobody knows."""
    if path.is_dir():
        target = path.with_name(f"step-{draw.choice((5, 7, 12345678)):08d}")
    else:
        target = path.with_name(draw.choice([*PLAIN, *INSIDE, "copy of it"]))
        target = path.with_name("copy of it") if target == path else target
    path.replace(target)


def _link(path: Path, other: Path, draw: random.Random) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


def _format(path: Path, other: Path, draw: random.Random) -> None:
    """Another format number, all hashes made to fit: a file of another version, not a damaged one."""
    from mhsa_cli.records.formats import FORMAT
    from mhsa_cli.runs import commit, disk
    from mhsa_cli.runs.json_file import dump_sealed
    from mhsa_cli.runs.listing import load_sealed

    number = draw.choice((0, FORMAT + 1, 99, "x", "1", None, 1.5, True))
    content = json.loads(path.read_bytes())
    content.pop("sha256", None)
    content.pop("format")
    content |= {} if number is None else {"format": number}
    if path.name == "run.json":
        path.write_bytes(dump_sealed(content))
    elif path.name == "MANIFEST.json":
        path.write_bytes(commit._render(content))
    else:
        path.write_text(json.dumps(content))
    if path.name == "heads.json":
        info = load_sealed(path.with_name("run.json"))
        info["files"]["heads.json"] = disk.digest([path.read_bytes()])
        path.with_name("run.json").write_bytes(dump_sealed(info))
    elif path.name == "state.json":
        files = {name: (path.parent / name).read_bytes() for name in INSIDE[:3]}
        path.with_name("MANIFEST.json").write_bytes(commit._manifest(path.parent.name, files))


DAMAGES: dict[str, Callable[[Path, Path, random.Random], None]] = {
    "flip": _changed(_flip),
    "flips": _changed(lambda data, draw: _flip(data, draw, 8)),
    "cut": _changed(_cut),
    "longer": _changed(lambda data, draw: data.extend(draw.randbytes(draw.randint(1, 40)))),
    "zeros": _changed(lambda data, draw: _overwrite(data, draw, zeros=True)),
    "noise": _changed(lambda data, draw: _overwrite(data, draw, zeros=False)),
    "line": _changed(_without_line),
    "gone": lambda path, other, draw: path.unlink(),
    "swapped": _swap,
    "of another run": lambda path, other, draw: path.write_bytes(other.read_bytes()) and None,
    "link": _link,
    "renamed": _rename,
    "format": _format,
}


@cache
def trained(server: ForkServer) -> Path:
    """The runs that are damaged, copies of them; trained once."""
    folder = Path(tempfile.mkdtemp(prefix="fault-damage-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "a.txt").write_text("the cat sat on the mat. " * 9)
    for name, settings in RUNS.items():
        done = server.run(["train", *settings, "--name", name], folder)
        assert done.code == 0, done.err
    return folder


def uses(path: Path) -> dict[str, Any]:
    """What every reader makes of a run: what it reads, or the error it says; a checkpoint's notes are said as well."""
    from mhsa_cli.core.training.state import read_state
    from mhsa_cli.jobs.run_config import check_unedited, own_text, run_config
    from mhsa_cli.runs.heads import maps_from_dict, snapshots_from_lines
    from mhsa_cli.runs.metrics import records_of
    from mhsa_cli.runs.run_dir import RunDir

    run = RunDir(path)

    def text() -> Any:
        config = own_text(run_config(run), run)
        return Path(config.task.path).read_bytes() if config.task.name == "text" else None

    def checkpoint() -> Any:
        loaded = run.load_checkpoint()
        check_unedited(run_config(run), read_state(loaded.files)["config"], run)
        return loaded.notes or loaded

    readers: dict[str, Callable[[], Any]] = {
        "run.json": run.read_run_json,
        "config": lambda: run_config(run).to_dict(),
        "metrics": lambda: list(records_of(run.records("metrics.jsonl"))),
        "heads": lambda: maps_from_dict(run.read_heads()),
        "scores": lambda: snapshots_from_lines(run.records("heads.jsonl")),
        "text": text,
        "checkpoint": checkpoint,
    }
    found: dict[str, Any] = {}
    for name, read in readers.items():
        try:
            found[name] = read()
        except MhsaError as error:
            found[name] = error
    return found


@cache
def undamaged(run: Path) -> dict[str, Any]:
    """What the readers make of the run as it was."""
    return uses(run)


@cache
def parsed(text: bytes) -> Any:
    """A config's content: of thousands of cases most have the same, and YAML takes its time."""
    from mhsa_cli.config.load import parse

    return parse(text, "config.yaml")


def check(case: Case, place: Place) -> None:
    """Damage a copy; every reader gives what it gave before or says what is wrong, and so does `mhsa verify`."""
    import torch

    torch.set_num_threads(1)
    with mock.patch("mhsa_cli.jobs.run_config.parse", lambda text, name: parsed(text)):
        damage_and_look(case, place)


def damage_and_look(case: Case, place: Place) -> None:
    """Check a case."""
    from mhsa_cli.jobs.verify import verify_run
    from mhsa_cli.runs.run_dir import RunDir

    home = trained(place.server)
    run = place.path / case.run
    shutil.copytree(home / "runs" / case.run, run)
    os.chdir(home)  # where the text was
    wanted = undamaged(home / "runs" / case.run)
    other = home / "runs" / ("other-text" if case.run == "text" else "other")
    before = (run / case.what).read_bytes() if (run / case.what).is_file() else None
    DAMAGES[case.how](run / case.what, other / case.what, random.Random(case.seed))
    if before is not None and (run / case.what).is_file() and (run / case.what).read_bytes() == before:
        assert case.how in ("of another run", "link"), "nothing was damaged"
        if case.how == "of another run":  # the same bytes there
            return
    said = False
    for name, found in uses(run).items():
        if isinstance(found, MhsaError):
            assert found.exit_code in (4, 5), f"{name}: exit code {found.exit_code}: {found}"
            said = True
        elif found != wanted[name]:
            if (name, case.how) == ("run.json", "of another run"):
                continue  # whole in itself, but no other file fits it
            assert name == "checkpoint" and isinstance(found[0], str), f"{name} is used, though it is not what it was"
            said = True
    found = verify_run(RunDir(run))
    notes = [check.name for check in found.checks if check.state == "note"]
    harmless = case.what == "config.yaml" and not said and "config.yaml" in notes  # a comment, or an order
    assert found.damage or found.other_version or harmless, "mhsa verify finds nothing"
    if case.how == "format":
        told = " ".join(check.found for check in [*found.damage, *found.other_version])
        assert "format" in told, f"the format is not named: {told}"


def believe(patch: pytest.MonkeyPatch) -> None:
    """The mutant: of two files of the same size one is as good as the other."""
    from mhsa_cli.runs import disk, hashes

    real = hashes.open_listed

    def sizes_only(run: Path, name: str, listed: Mapping[str, Any], *limit: int) -> Any:
        path, entry = run / name, listed.get(name)
        same = entry is not None and path.is_file() and path.stat().st_size == entry["size"]
        return real(run, name, {name: disk.digest([path.read_bytes()])} if same else listed, *limit)

    patch.setattr(hashes, "open_listed", sizes_only)


ROW = Row(
    fault="damaged files: cut, bits flipped, lost, swapped, renamed, of another run or format",
    promise="P4",
    quick=400,
    long=20_000,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.damage:believe",
)
