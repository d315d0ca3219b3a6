"""Odd environments: variables, interpreter settings, folders and streams that change what a command says, or nothing.

Where nothing is refused by name here, the exit code is the plain one and a training has the plain weights.
"""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.environment import plain
from tests.faults.client import PLAIN, ROOT, Done, ForkServer
from tests.faults.row import Place, Row
from tests.faults.rows.environment_kinds import FORKED, REAL, Kind

HERE = "tests.faults.rows.environment"
SMALL = "task.name=shift vocab_size=7 seq_len=4 d_model=4 n_heads=2 batch_size=3 eval_sequences=5 epochs=1"
SMALL += " steps_per_epoch=3"
QUICK = 9  # environments that need a process of their own and are met in the short form, the first of their table
# Each with what becomes of it in a plain environment; {home} is the folder that holds a trained run and two configs.
COMMANDS: dict[str, tuple[list[str], int]] = {
    "train": (["train", *SMALL.split(), "--name", "r", "--json"], 0),
    "inspect": (["inspect-heads", "{home}/runs/made"], 0),
    "runs": (["runs"], 0),
    "help": (["train", "--help"], 0),
    "bad": (["config", "check", "{home}/bad.yaml"], 2),
}
LIGHT = [name for name in COMMANDS if name != "train"]  # what loads no torch, so that a process costs little


class Case(NamedTuple):
    """Which environment, and which command in it."""

    kind: str
    command: str


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every environment with one command, then every one with all others; `seed` draws nothing here."""
    turn = list(COMMANDS)
    made = [Case(kind, FORKED[kind].first or turn[i % len(turn)]) for i, kind in enumerate(FORKED)]
    made += [Case(kind, REAL[kind].first or LIGHT[i % len(LIGHT)]) for i, kind in enumerate(REAL)]
    rest = [Case(kind, command) for kind in (*FORKED, *REAL) for command in COMMANDS]
    yield from [*made, *(case for case in rest if case not in made)][:count]


@functools.cache
def home(server: ForkServer) -> Path:
    """A trained run and a config that is wrong, made once."""
    folder = Path(tempfile.mkdtemp(prefix="fault-environment-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    (folder / "bad.yaml").write_text('train: {lr: fast, "\\uD800": 1}\n')
    done = server.run(["train", *SMALL.split(), "--name", "made"], folder)
    assert done.code == 0, done.err
    return folder


def nobody_asks_for_the_folder(patch: pytest.MonkeyPatch) -> None:
    """The mutant: nobody asks whether the folder is there."""
    from mhsa_cli.commands import deleted_folder
    from mhsa_cli.runs import disk, listing

    for module in (deleted_folder, disk, listing):
        patch.setattr(module, "folder_is_gone", lambda: False)


def check(case: Case, place: Place) -> None:
    """Run the command in that environment, and hold it to the plain one."""
    kind = {**FORKED, **REAL}[case.kind]
    made = home(place.server)
    words, code = COMMANDS[case.command]
    argv = [word.format(home=made) for word in words]
    with kind.place(place.path) as folder:
        done = real(kind, argv, folder) if case.kind in REAL else forked(kind, argv, folder, place)
        wanted = kind.codes.get(case.command, code)
        said = done.out + done.err
        assert done.code == wanted, f"exit code {done.code}, wanted {wanted}: {said[-400:]}"
        assert "Traceback" not in said and "internal error" not in said, said[-900:]
        if case.command == "train" and wanted == 0:
            assert digest(place.path) == digest(made), "other weights than in a plain environment"
        if case.command == "help" and kind.plain_look:
            assert done.out.split() == usual_help(place.server), f"another help: {done.out[:300]}"


def digest(folder: Path) -> str:
    """The digest of the weights of the one run below a folder."""
    (found,) = [path for path in folder.rglob("run.json") if not path.parent.parent.is_symlink()]
    return str(json.loads(found.read_text())["weights_sha256"])


@functools.cache
def usual_help(server: ForkServer) -> list[str]:
    """The words of the help in a plain environment."""
    return server.run(COMMANDS["help"][0], home(server)).out.split()


def forked(kind: Kind, argv: list[str], folder: Path, place: Place) -> Done:
    """Run a command as a copy of the fork server, which is put into the environment before it begins."""
    put = ["tests.faults.rows.environment_kinds:surround", kind.env, kind.without]
    return place.server.run(argv, folder, [*place.mutant, put, *kind.prepare])


def real(kind: Kind, argv: list[str], folder: Path) -> Done:
    """Run a command in a process of its own: what the interpreter or a library reads at its start."""
    env = {} if kind.bare else {**plain(), **PLAIN, "PYTHONPATH": str(ROOT)}
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from mhsa_cli.__main__ import run; run()"
    program = ["-c", start] if kind.bare or kind.flags else ["-m", "mhsa_cli"]
    line = [sys.executable, *kind.flags, *program, *argv]
    done = subprocess.run(line, cwd=folder, env={**env, **kind.env}, capture_output=True, timeout=120, check=False)
    out, err = (text.decode(kind.encoding, "replace") for text in (done.stdout, done.stderr))
    return Done(done.returncode, out, err)


ROW = Row(
    fault=f"{len(FORKED) + len(REAL)} odd environments: variables, interpreter settings, folders, streams",
    promise="P10",
    quick=len(FORKED) + QUICK,
    long=(len(FORKED) + len(REAL)) * len(COMMANDS),
    cases=cases,
    check=check,
    mutant=f"{HERE}:nobody_asks_for_the_folder",
)
