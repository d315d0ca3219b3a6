"""A stderr that cannot be written to costs nothing but what it would have said: only a signal ends a training."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from mhsa_cli.jobs.messages import open_streams
from tests.commands.shell import environment, facts, mhsa
from tests.faults.client import ForkServer

SMALL = ["task.name=shift", "vocab_size=11", "seq_len=6", "d_model=12", "batch_size=7", "epochs=2", "eval_sequences=9"]
SMALL += ["steps_per_epoch=9"]
SEEDS = [*SMALL, "n_heads=1,3", "--seeds", 2]


class Lost(io.RawIOBase):
    """A file that takes so many bytes and then fails for good."""

    def __init__(self, room: int, code: int, terminal: bool) -> None:
        self.room, self.code, self.terminal, self.failures = room, code, terminal, 0

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.terminal

    def write(self, data: object) -> int:
        size = len(bytes(data))  # type: ignore[call-overload]
        self.room -= size
        if self.room < 0:
            self.failures += 1
            raise OSError(self.code, os.strerror(self.code))
        return int(size)


def draw_at_once(patch: pytest.MonkeyPatch) -> None:
    """Redraw at every record, on what is a terminal."""
    patch.setenv("TERM", "xterm-256color")
    patch.setattr("mhsa_cli.renderers.pictures.live.LiveTraining.pause", 0)
    patch.setattr("mhsa_cli.renderers.pictures.live_sweep.LiveSweep.pause", 0)


def figures(text: str) -> str:
    return re.sub(r"\d+\.\d s\b|\"seconds\": [^,}]+", "", text)


@pytest.mark.parametrize("terminal", [False, True], ids=["plain", "animated"])
@pytest.mark.parametrize(("room", "code"), [(0, errno.EIO), (90, errno.ENOSPC), (700, errno.EPIPE)])
def test_a_training_goes_on_to_the_same_results(
    room: int, code: int, terminal: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_at_once(monkeypatch)
    usual = mhsa("train", *SMALL, "--runs", "usual", "--name", "r")
    lost = Lost(room, code, terminal)
    said = mhsa("train", *SMALL, "--name", "r", stderr=lost)
    assert lost.failures >= 1 and said.code == usual.code == 0
    assert figures(said.out.replace("runs/r", "usual/r")).split("next: ")[0] == figures(usual.out).split("next: ")[0]
    for name in ("metrics.jsonl", "heads.json", "checkpoints/step-00000018/model.safetensors"):
        assert Path("runs/r", name).read_bytes() == Path("usual/r", name).read_bytes()
    assert facts(Path("runs/r"))["status"] == "finished"


@pytest.mark.parametrize("terminal", [False, True], ids=["plain", "animated"])
def test_a_sweep_goes_on_to_the_same_results(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_at_once(monkeypatch)
    usual = mhsa("sweep", *SEEDS, "--name", "usual", "--json").json
    lost = Lost(8, errno.EIO, terminal)
    said = mhsa("sweep", *SEEDS, "--name", "s", "--json", stderr=lost)
    assert lost.failures >= 1 and said.code == 0 and said.json["groups"] == usual["groups"]
    digests = [[facts(Path(run["run"]))["weights_sha256"] for run in each["runs"]] for each in (usual, said.json)]
    assert digests[0] == digests[1]


def test_streams_closed_from_the_start_get_no_file_of_the_run(tiny: Path) -> None:
    """Else the next file to be opened, metrics.jsonl, is number 2, and a signal's message lands in it."""
    opened = "import os, mhsa_cli.jobs.messages as s; s.open_streams(); os._exit(os.open(os.devnull, os.O_RDONLY))"
    python = shlex.quote(sys.executable)
    for closed in ("2>&-", ">&- 2>&- <&-"):
        line = f'exec {python} -c "{opened}" {closed}'
        assert subprocess.run(line, shell=True, env=environment(), check=False).returncode > 2
        line = f"exec {python} -m mhsa_cli runs gone --json {closed}"  # what it complains of is no JSON
        done = subprocess.run(line, shell=True, capture_output=True, env=environment(), check=False)
        assert (done.returncode, done.stdout, done.stderr) == (4, b"", b"")


class Short(io.RawIOBase):
    """A file that takes five bytes of each write, and tells so."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(data)[:5]  # type: ignore[call-overload]
        self.taken += part
        return len(part)


def test_what_a_write_does_not_take_is_written_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """With PYTHONUNBUFFERED Python has no buffer, and drops the rest."""
    short = Short()
    stream = io.TextIOWrapper(short, "utf-8", write_through=True)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    open_streams()
    print("a line that is longer than that")
    assert short.taken == b"a line that is longer than that\n"


def hang_up(patch: pytest.MonkeyPatch, step: int) -> None:
    """Have a terminal as stdout and stderr, and close it in the middle of a step, as a window that is closed."""
    from mhsa_cli.core.training.stack import Stack

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for number in (1, 2):
        os.dup2(slave, number)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: PTH123, SIM115
    os.close(slave)
    real = Stack.step

    def instead(self: Stack, *given: object, **more: object) -> None:
        if self.updates + 1 == step:
            with contextlib.suppress(OSError):
                os.close(master)
        real(self, *given, **more)  # type: ignore[arg-type]

    patch.setattr(Stack, "step", instead)


def ignore_hang_up(_: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.mark.parametrize("animated", [False, True], ids=["plain", "animated"])
def test_a_terminal_that_is_closed_stops_what_trains_with_a_checkpoint(
    animated: bool, here: Path, server: ForkServer
) -> None:
    closes = [("tests.commands.test_lost_streams:hang_up", 7)]
    terminal = {"TERM": "xterm-256color" if animated else "dumb"}
    long = [text.replace("steps_per_epoch=9", "steps_per_epoch=1000") for text in SMALL]
    assert server.run(["train", *long, "--name", "r"], here, closes, terminal).code == 129
    run = facts(Path("runs/r"))
    assert run["status"] == "stopped" and 7 <= run["step"] < 2000
    assert Path(f"runs/r/checkpoints/step-{run['step']:08d}").is_dir()

    assert server.run(["sweep", *long, "--seeds", 2, "--name", "s"], here, closes, terminal).code == 129
    trials = [facts(path.parent) for path in Path("runs/s").glob("*/run.json")]
    assert [trial["status"] for trial in trials] == ["stopped"] * 2 and trials[0]["step"] >= 7
    assert mhsa("verify", "s").code == mhsa("verify", "r").code == 0


def test_under_nohup_a_closed_terminal_ends_nothing(here: Path, server: ForkServer) -> None:
    module = "tests.commands.test_lost_streams"
    prepared = [(f"{module}:ignore_hang_up",), (f"{module}:hang_up", 7)]
    for command in (["train", *SMALL, "--name", "r"], ["sweep", *SMALL, "--seeds", 1, "--name", "s"]):
        assert server.run([*command, "--json"], here, prepared).code == 5  # what stdout wanted to say has no place
    assert facts(Path("runs/r"))["status"] == facts(Path("runs/s/seed=42"))["status"] == "finished"


def lose_stdout(patch: pytest.MonkeyPatch, to: str, name: str) -> None:
    """Have a full disk as stdout, or a pipe that nobody reads, and a signal in the middle of the second step."""
    from mhsa_cli.core.training.stack import Stack

    if to == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open("/dev/full", os.O_WRONLY)
    os.dup2(writer, 1)
    sys.stdout = open(1, "w", closefd=False)  # noqa: PTH123, SIM115
    real = Stack.step

    def instead(self: Stack, *given: object, **more: object) -> None:
        if self.updates == 1:
            signal.raise_signal(getattr(signal, name))
        real(self, *given, **more)  # type: ignore[arg-type]

    patch.setattr(Stack, "step", instead)


@pytest.mark.parametrize("command", [["train"], ["sweep", "--seeds", 1]], ids=["train", "sweep"])
@pytest.mark.parametrize(
    ("to", "name", "code"),
    [("disk", "SIGINT", 5), ("disk", "SIGTERM", 5), ("disk", "SIGHUP", 129), ("pipe", "SIGINT", 130)],
)
def test_after_a_signal_a_full_disk_is_told_and_who_left_as_well_is_not_missed(
    command: list[object], to: str, name: str, code: int, here: Path, server: ForkServer
) -> None:
    prepared = [("tests.commands.test_lost_streams:lose_stdout", to, name)]
    done = server.run([*command, *SMALL, "--name", "r", "--json"], here, prepared)
    assert done.code == code and (code != 5 or ("cannot write to stdout: " in done.err and "runs/r\n" in done.err))
