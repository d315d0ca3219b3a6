"""Files with the format number of another version, all hashes right: refused by name, and nothing is touched."""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mhsa_cli.errors import NewerFormatError
from mhsa_cli.records.formats import FORMAT
from mhsa_cli.runs import commit, disk, json_file
from mhsa_cli.runs.json_file import dump_sealed
from tests.commands.shell import Said, mhsa
from tests.faults.row import Place, Row

HERE = "tests.faults.rows.newer"
SHORT = ["task.name=shift", "vocab_size=7", "seq_len=4", "d_model=6", "batch_size=3", "eval_sequences=5", "epochs=3"]
SETTINGS = [*SHORT, "steps_per_epoch=2", "n_heads=2"]
TRIAL, EARLIER, LAST = "s/n_heads=2_seed=42", "checkpoints/step-00000004", "checkpoints/step-00000006"
NUMBERS = (FORMAT + 1, 7, 10**30, 0, -1, None, "2", 2.0, True, [2], {})

ON = ["train", "--resume", "r", "train.epochs=4"]
AGAIN = ["train", "--resume", "r"]
SWEEP_ON = ["sweep", "--resume", "s"]
WEIGHTS = [["generate", "r", "--prompt", "1 2"], ["inspect-heads", "r", "--tokens", "1 2"], ON, AGAIN]
# Each file, and the commands that read it or would write over it.
READERS: dict[str, list[list[str]]] = {
    "r/run.json": [["inspect-heads", "r"], ["curve", "r"], ON, AGAIN],
    "r/heads.json": [["inspect-heads", "r"], ["explain", "r"], ON],
    f"r/{LAST}/MANIFEST.json": WEIGHTS,
    f"r/{LAST}/state.json": WEIGHTS,
    f"r/{EARLIER}/MANIFEST.json": [ON],
    f"r/{EARLIER}/state.json": [ON],
    "s/sweep.json": [SWEEP_ON],
    f"{TRIAL}/run.json": [SWEEP_ON],
    f"{TRIAL}/heads.json": [SWEEP_ON],
    f"{TRIAL}/{LAST}/MANIFEST.json": [SWEEP_ON],
    f"{TRIAL}/{LAST}/state.json": [SWEEP_ON],
}


class Case(NamedTuple):
    """The file, its format number, and the command that meets it."""

    file: str
    number: Any
    command: list[str]


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every file with every of its commands as of a newer version first, then all numbers, then draws of them."""
    draw = random.Random(seed)
    every = [(file, command) for file, commands in READERS.items() for command in commands]
    found = [Case(file, FORMAT + 1, command) for file, command in every]
    found += [Case(file, number, command) for number in NUMBERS[1:] for file, command in every]
    yield from found[:count]
    for _ in range(count - len(found)):
        yield draw.choice(found)._replace(number=draw.choice((draw.randint(FORMAT + 1, 99), *NUMBERS)))


@cache
def trained() -> Path:
    """A run, and a sweep with a trial that is not finished yet."""
    folder = Path(tempfile.mkdtemp(prefix="fault-newer-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    runs = folder / "runs"
    assert mhsa("train", *SETTINGS, "--name", "r", "--runs", runs).code == 0
    assert mhsa("sweep", *SETTINGS[:-1], "n_heads=1,2", "--seeds", 1, "--name", "s", "--runs", runs).code == 0
    info = json.loads((runs / TRIAL / "run.json").read_text())
    left = {key: value for key, value in info.items() if key not in ("sweep", "sha256", "final", "files")}
    (runs / TRIAL / "run.json").write_bytes(dump_sealed({**left, "status": "stopped", "files": None}))
    return runs


def renumber(path: Path, number: Any) -> None:
    """Give a file another format number, and make all hashes fit."""
    content = json.loads(path.read_bytes())
    content.pop("sha256", None)
    content.pop("format")
    content |= {} if number is None else {"format": number}
    if path.name in ("run.json", "sweep.json"):
        path.write_bytes(dump_sealed(content))
    elif path.name == "MANIFEST.json":
        path.write_bytes(commit._render(content))
    elif path.name == "state.json":
        path.write_text(json.dumps(content))
        files = {name.name: name.read_bytes() for name in path.parent.iterdir() if name.name != "MANIFEST.json"}
        path.with_name("MANIFEST.json").write_bytes(commit._manifest(path.parent.name, files))
    else:
        path.write_text(json.dumps(content))
        info = json.loads(path.with_name("run.json").read_bytes())
        if info["files"] is not None:
            info["files"][path.name] = disk.digest([path.read_bytes()])
        path.with_name("run.json").write_bytes(dump_sealed({k: v for k, v in info.items() if k != "sha256"}))


def content(folder: Path) -> dict[str, bytes]:
    """All bytes below a folder but those of locks."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def check(case: Case, place: Place) -> None:
    """Of a newer format: refused by its number, nothing touched. Of none that is known: never used."""
    shutil.copytree(trained(), place.path / "runs")
    os.chdir(place.path)
    renumber(Path("runs", case.file), case.number)
    before = content(Path("runs"))
    said = mhsa(*case.command)
    if type(case.number) is int and case.number > FORMAT:
        check_refused(said, case.number)
        assert content(Path("runs")) == before, "something was changed"
        verified = mhsa("verify", "s" if case.command == SWEEP_ON else "r")
        assert verified.code == 4, "mhsa verify finds nothing"
    else:
        assert said.code in (0, 4), f"exit code {said.code}: {said.err}"


def check_refused(said: Said, number: int) -> None:
    """Exit code 4, and the number is named."""
    assert said.code == 4 and str(number) in said.err, f"exit code {said.code}: {said.err}"


def take_for_damage(patch: pytest.MonkeyPatch) -> None:
    """The mutant: a newer format is damage like any other, so an older checkpoint will do."""
    from mhsa_cli.errors import DamageError

    real = json_file.check_format

    def only_damage(content: Any, path: Path) -> None:
        try:
            real(content, path)
        except NewerFormatError as error:
            raise DamageError(error.parts, error.hint) from error

    patch.setattr(json_file, "check_format", only_damage)


ROW = Row(
    fault="format numbers of other versions in every file of a run or sweep, all hashes right",
    promise="P4",
    quick=24,
    long=600,
    cases=cases,
    check=check,
    mutant=f"{HERE}:take_for_damage",
)
