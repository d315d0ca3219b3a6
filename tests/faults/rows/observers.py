"""However a run is watched, named, placed and shown, it ends with the same weights, bit for bit."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import random
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.environment import plain
from tests.faults.client import PLAIN, ROOT, ForkServer, Prepare
from tests.faults.row import Place, Row

# One is computed by hand, the other draws random numbers in every step.
CONFIGS = {
    "by hand": {"epochs": "2", "steps_per_epoch": "9", "vocab_size": "11", "seq_len": "6", "d_model": "12"}
    | {"n_heads": "3", "batch_size": "5", "eval_sequences": "7"},
    "dropout": {"name": "copy", "epochs": "2", "steps_per_epoch": "7", "vocab_size": "9", "seq_len": "8"}
    | {"d_model": "16", "n_heads": "2", "dropout": "0.2", "batch_size": "3", "eval_sequences": "7", "norm": "rmsnorm"},
}
SETTINGS = {  # of the config, but of no weight
    "log_every": ["1", "4", "100"],
    "eval_every": ["1", "2", "5"],
    "save_every": ["1", "3", "7"],
    "keep": ["1", "9"],
    "eval_sequences": ["1", "300"],
}
PLACES = {  # of the command
    "name": ["zebra", "a.b-c_d", "Ünïcode [red]"],
    "folder": ["deep/er", "with space"],
    "order": ["backwards", "file", "shuffled file"],
    "json": ["yes"],
    "heads": ["unwatched"],
    "shown on": ["a terminal", "a dumb terminal", "a narrow terminal", "a log of 200 columns"],
    "locale": ["C"],
}
HASH_SEEDS = ["0", "4242"]
SCREENS = {
    "a terminal": {"TERM": "xterm-256color", "NO_COLOR": "", "COLUMNS": "100", "LINES": "40"},
    "a dumb terminal": {"TERM": "dumb"},
    "a narrow terminal": {"TERM": "xterm", "NO_COLOR": "", "COLUMNS": "20", "LINES": "6"},
    "a log of 200 columns": {"FORCE_COLOR": "1", "NO_COLOR": "", "COLUMNS": "200"},
}


class Case(NamedTuple):
    """A config, and what is done otherwise."""

    config: str
    otherwise: tuple[tuple[str, str], ...]


def cases(count: int, seed: int) -> Iterator[Case]:
    """One thing at a time for either config, then several at once."""
    kinds = SETTINGS | PLACES
    made = [Case("dropout", (("hash seed", number),)) for number in HASH_SEEDS]
    for turn in range(max(map(len, kinds.values()))):
        for number, (kind, values) in enumerate(kinds.items()):
            if turn < len(values):
                made.append(Case(list(CONFIGS)[(turn + number) % 2], ((kind, values[turn]),)))
    yield from made[:count]
    draw = random.Random(seed)
    for _ in range(count - len(made)):
        chosen = draw.sample(sorted(kinds), draw.randint(3, 7))
        yield Case(draw.choice(list(CONFIGS)), tuple((kind, draw.choice(kinds[kind])) for kind in chosen))


def on_a_terminal(patch: pytest.MonkeyPatch, columns: int = 80, rows: int = 25) -> None:
    """Put a terminal under the command's stdout and stderr; what it draws there is kept as its stderr."""
    (parent, child), kept = pty.openpty(), os.dup(2)
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    command = os.fork()  # a copy goes on as the command; this process reads what it draws, to the last word
    if command:
        os.close(child)
        with contextlib.suppress(OSError):  # the end of a terminal
            while data := os.read(parent, 1 << 16):
                os.write(kept, data)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]) & 0xFF)
    os.close(parent)
    for number in (1, 2):
        os.dup2(child, number)
    os.close(child)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: PTH123, SIM115


def unwatched(patch: pytest.MonkeyPatch) -> None:
    """Train without looking at heads on the way."""
    from mhsa_cli.core.training.lockstep import Group

    real = Group.__init__
    patch.setattr(Group, "__init__", lambda self, *given, **named: real(self, *given, **{**named, "watch": False}))


def evaluation_leaves_a_trace(patch: pytest.MonkeyPatch) -> None:
    """The mutant: whoever evaluates moves a weight by one bit."""
    from mhsa_cli.core.training.stack import Stack

    real = Stack.evaluate

    def instead(self: Stack, *given: Any) -> Any:
        found = real(self, *given)
        self.weights[3] *= 1 + 2**-22
        return found

    patch.setattr(Stack, "evaluate", instead)


@cache
def usual(config: str, server: ForkServer, mutant: tuple[Prepare, ...]) -> str:
    """The digest of the weights of the plain run."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = server.run(["train", *pairs(CONFIGS[config])], Path(folder), mutant)
        assert done.code == 0, done.err
        return digest(Path(folder) / "runs")


def pairs(settings: dict[str, str]) -> list[str]:
    """Write settings for the command line."""
    return [f"{key}={value}" for key, value in settings.items()]


def digest(runs: Path) -> str:
    """Read the digest of the only run in a folder."""
    (run,) = (path for path in runs.iterdir() if not path.name.startswith("."))
    found = json.loads((run / "run.json").read_text())
    assert found["status"] == "finished"
    return str(found["weights_sha256"])


def check(case: Case, place: Place) -> None:
    """Train it otherwise, and compare the weights."""
    otherwise = dict(case.otherwise)
    cwd = place.path / otherwise.get("folder", "here")
    cwd.mkdir(parents=True)
    settings = CONFIGS[case.config] | {key: otherwise[key] for key in SETTINGS if key in otherwise}
    argv = ["train", *arranged(settings, otherwise.get("order", ""), cwd)]
    if "name" in otherwise:
        argv += ["--name", otherwise["name"]]
    if "json" in otherwise:
        argv += ["--json"]
    screen = otherwise.get("shown on", "")
    env = SCREENS.get(screen, {}) | ({"LC_ALL": "C", "PYTHONUTF8": "0"} if "locale" in otherwise else {})
    prepare = [["tests.faults.rows.observers:unwatched"]] if "heads" in otherwise else []
    prepare += [["tests.faults.rows.observers:on_a_terminal"]] if screen.endswith("terminal") else []
    if "hash seed" in otherwise and not place.mutant:  # it counts from the start of a process
        env |= {**plain(), **PLAIN, "PYTHONHASHSEED": otherwise["hash seed"], "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "mhsa_cli", *argv]
        ended = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
    else:
        done = place.server.run(argv, cwd, [*prepare, *place.mutant], env)
        assert done.code == 0, done.err
    assert digest(cwd / "runs") == usual(case.config, place.server, place.mutant), "other weights"


def arranged(settings: dict[str, str], order: str, cwd: Path) -> list[str]:
    """Give the settings on the command line or in a file, in this order."""
    if "file" not in order:
        return pairs(dict(reversed(settings.items()))) if order == "backwards" else pairs(settings)
    from mhsa_cli.config.fields import all_keys

    homes = {key.partition(".")[2]: key.partition(".")[0] for key in all_keys()}
    lines: dict[str, list[str]] = {"train": [], "model": [], "task": []}
    for key, value in settings.items():
        lines[homes[key]].append(f"  {key}: {value}")
    draw = random.Random(order)
    for part in lines.values():
        draw.shuffle(part)
    (cwd / "c.yaml").write_text("\n".join(line for name, part in lines.items() for line in [f"{name}:", *part]))
    return ["--config", "c.yaml"]


ROW = Row(
    fault="logging, evaluating, saving, drawing, watching; name, folder, hash seed, order of keys, terminal",
    promise="P3",
    quick=40,
    long=120,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.observers:evaluation_leaves_a_trace",
)
