"""mhsa run in this process, where torch is loaded already, and the reading of what it left behind."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from mhsa_cli.__main__ import main
from tests.environment import FOREIGN, plain

# Sizes that all differ, and every part that draws random numbers: V=11 T=6 D=12 H=3 d_head=4 L=2 B=7.
TINY = """\
task: {name: shift, vocab_size: 11, seq_len: 6}
model: {d_model: 12, n_heads: 3, n_layers: 2, d_mlp: 20, residual: true, norm: layernorm, dropout: 0.1,
        positions: learned}
train: {epochs: 2, steps_per_epoch: 5, batch_size: 7, eval_sequences: 9, warmup_steps: 3, grad_clip: 1.0, seed: 8}
"""


# The settings of a sweep whose trials train in a moment.
SMALL = ["task.name=copy", "vocab_size=12", "seq_len=6", "d_model=16", "epochs=2", "steps_per_epoch=12", "batch_size=5"]


@dataclass(frozen=True)
class Said:
    """What a command left behind: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one strict JSON document on stdout."""

        def refuse(text: str) -> None:
            raise AssertionError(f"{text} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


def _put_back(before: dict[str, str | None]) -> None:
    """Undo what a command did to its environment; what it set for the libraries below stays, as they read it late."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class Strict(io.TextIOWrapper):
    """Bytes in an encoding. A character that it lacks is an error, also where the command asked for a `?` instead."""

    def __init__(self, file: io.BytesIO | io.BufferedWriter, encoding: str, terminal: bool) -> None:
        super().__init__(file, encoding=encoding, newline="", write_through=True)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def reconfigure(self, *, errors: str = "strict", **_: Any) -> None:
        def unless_lost(error: UnicodeError) -> tuple[str | bytes, int]:
            shown, end = codecs.lookup_error(errors)(error)
            if "?" in str(shown):
                raise error
            return shown, end

        codecs.register_error("tests.unless_lost", unless_lost)
        super().reconfigure(errors="tests.unless_lost")


def mhsa(
    *arguments: object, encoding: str = "utf-8", terminal: bool = False, stderr: io.RawIOBase | None = None
) -> Said:
    """Run a command as the shell would, but in this process, where torch is loaded already.

    Its output goes into pipes, or to what calls itself a terminal; `stderr` may be a file.
    """
    files = (io.BytesIO(), io.BytesIO() if stderr is None else io.BufferedWriter(stderr))
    streams = [Strict(file, encoding, terminal) for file in files]
    code = 0
    with contextlib.ExitStack() as stack:
        stack.callback(_put_back, {name: os.environ.get(name) for name in FOREIGN})
        stack.enter_context(mock.patch.object(sys, "argv", ["mhsa", *map(str, arguments)]))
        stack.enter_context(contextlib.redirect_stdout(streams[0]))
        stack.enter_context(contextlib.redirect_stderr(streams[1]))
        try:
            main()
        except SystemExit as end:
            assert isinstance(end.code, int)
            code = end.code
    out, err = (file.getvalue().decode(encoding) if isinstance(file, io.BytesIO) else "" for file in files)
    return Said(code, out, err)


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder with its bytes and the time it was last written."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def metrics(run: Path) -> list[dict[str, Any]]:
    """The records of a run, each line read strictly."""
    return [Said(0, line, "").json for line in (run / "metrics.jsonl").read_text().splitlines()]


def facts(run: Path) -> dict[str, Any]:
    """The content of run.json, without the hashes it ends with."""
    found: dict[str, Any] = json.loads((run / "run.json").read_text())
    return {key: value for key, value in found.items() if key not in ("files", "sha256")}


def digests(sweep: Path = Path("runs/s")) -> dict[str, Any]:
    """The digest of each trial's weights by its name; of a trial without weights its status."""
    found = {path.parent.name: facts(path.parent) for path in sorted(sweep.glob("*/run.json"))}
    return {name: info.get("weights_sha256", info["status"]) for name, info in found.items()}


def without_hashes(run: Path) -> None:
    """Let a run be as an older version left it: its run.json lists no files and has no hash of its own."""
    (run / "run.json").write_text(json.dumps(facts(run)))


def alive(pid: int) -> bool:
    """Whether a process is at work: not gone, and no zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@contextlib.contextmanager
def at_step(step: int, action: Callable[[], None]) -> Iterator[None]:
    """Do something in the middle of one training step."""
    from mhsa_cli.core.training.stack import Stack

    original = Stack.step

    def stepping(self: Stack, *given: Any, **more: Any) -> None:
        if self.updates + 1 == step:
            action()
        original(self, *given, **more)

    with mock.patch.object(Stack, "step", stepping):
        yield


# Runs commands one after the other; says after each how it ended and what it has loaded of the large libraries.
ONE_BY_ONE = """
import json, os, sys
from mhsa_cli.__main__ import main
said, sys.stdout = sys.stdout, open(os.devnull, "w")
for command in json.loads(sys.argv[1]):
    sys.argv = ["mhsa", *command]
    try:
        code = main() or 0
    except SystemExit as end:
        code = end.code
    assert "mhsa_cli.commands.app" in sys.modules
    print(json.dumps([code, sorted({"torch", "numpy", "scipy", "psutil"} & set(sys.modules))]), file=said)
"""


def codes_without_torch(*commands: Sequence[object]) -> list[int]:
    """Run commands in one fresh process; returns their exit codes.

    None may load torch, numpy or scipy, and psutil only when a check or a sweep has run.
    """
    told = json.dumps([[str(argument) for argument in command] for command in commands])
    root = str(Path(__file__).parents[2])
    run = [sys.executable, "-c", ONE_BY_ONE, told]
    done = subprocess.run(run, env=environment(PYTHONPATH=root), capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(commands), done.stderr
    allowed: set[str] = set()
    for command, (_, loaded) in zip(commands, found, strict=True):
        allowed |= {"psutil"} if command[0] in ("check", "sweep") else set()
        assert set(loaded) <= allowed, command
    return [code for code, _ in found]


def environment(**changes: str) -> dict[str, str]:
    """The environment for a process of its own: nothing that changes output, and the given variables."""
    return {**plain(), **changes}


class Screen:
    """What a terminal of so many columns shows: the rows from the first on, those scrolled off its top included."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.rows, self.y, self.x = [""], 0, 0

    def feed(self, text: str) -> Screen:
        for code, letter, char in re.findall(r"\x1b\[([?0-9;]*)([A-Za-z])|([^\x1b])", text):
            if letter == "A":
                self.y -= int(code or 1)
            elif letter == "K":
                self.rows[self.y] = "" if code == "2" else self.rows[self.y][: self.x]
            elif char == "\r":
                self.x = 0
            elif char == "\n":
                self._down()
            elif char:
                self._put(char)
        return self

    def _down(self) -> None:
        self.y += 1
        if self.y == len(self.rows):
            self.rows.append("")

    def _put(self, char: str) -> None:
        if self.x == self.columns:
            self.x = 0
            self._down()
        row = self.rows[self.y].ljust(self.x)
        self.rows[self.y] = row[: self.x] + char + row[self.x + 1 :]
        self.x += 1

    @property
    def kept(self) -> list[str]:
        """The rows above the one in which a prompt would stand."""
        return self.rows[: self.y]


@contextlib.contextmanager
def own_terminal(columns: int, rows: int, term: str = "xterm-256color") -> Iterator[Callable[[], Screen]]:
    """Have a real terminal as stdout and stderr of this process; gives a function that closes it and reads it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    read = bytearray()

    def drain() -> None:
        with contextlib.suppress(OSError):  # the other side is closed
            while chunk := os.read(master, 65536):
                read.extend(chunk)

    reader = threading.Thread(target=drain)
    reader.start()

    def screen() -> Screen:
        for stream in streams:
            stream.close()
        reader.join()
        return Screen(columns).feed(read.decode())

    streams = [open(os.dup(slave), "w", encoding="utf-8", newline="") for _ in range(2)]  # noqa: PTH123, SIM115
    os.close(slave)
    try:
        with (
            mock.patch.dict(os.environ, TERM=term),
            contextlib.redirect_stdout(streams[0]),
            contextlib.redirect_stderr(streams[1]),
        ):
            yield screen
    finally:
        for stream in streams:
            stream.close()
        reader.join()
        os.close(master)


def mhsa_on_terminal(*arguments: object, columns: int = 80, rows: int = 24, **environ: str) -> tuple[int, list[str]]:
    """Run a command in this process on a real terminal; returns its code and the rows that it leaves there."""
    code = 0
    with own_terminal(columns, rows) as screen, mock.patch.dict(os.environ, environ):
        with mock.patch.object(sys, "argv", ["mhsa", *map(str, arguments)]):
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
        return code, screen().kept
