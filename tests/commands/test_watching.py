"""Watching on a terminal: maps while a model trains, which change nothing, and a replay that keys steer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mhsa_cli.commands.keyboard import keys_of
from mhsa_cli.renderers.pictures.live import LiveTraining
from tests.commands import custom
from tests.commands.shell import TINY, at_step, environment, mhsa, tree
from tests.terminal import Terminal

ROOT = Path(__file__).parents[2]
REPLAY = ["-m", "mhsa_cli", "timeline", "tiny", "--replay"]
MEASURED = ("metrics.jsonl", "heads.jsonl")


@pytest.fixture
def redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal on which every record is drawn."""
    monkeypatch.setattr(LiveTraining, "pause", 0.0)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "30"}.items():
        monkeypatch.setenv(name, value)


def of(run: str) -> dict[str, bytes]:
    """What a run measured, and its weights."""
    return {
        path: content
        for path, (content, _) in tree(Path("runs", run)).items()
        if path in MEASURED or path.endswith("model.safetensors")
    }


@pytest.mark.parametrize("block", [None, "Mine"])
def test_watching_changes_no_bit(block: str | None, here: Path, redrawn: None) -> None:
    Path("tiny.yaml").write_text(TINY.replace("dropout: 0.1", "dropout: 0.2"))
    own = []
    if block is not None:
        custom.write(here)
        own = [f"model.attention=mine.py:{block}", "model.positions=none"]
    drawn = {}
    for live in ("none", "curve", "heads"):
        with at_step(4, lambda: signal.raise_signal(signal.SIGINT)):
            stopped = mhsa("train", "-c", "tiny.yaml", *own, "--name", live, "--live", live, terminal=True)
        more = ["--attention", own[0].split("=")[1]] if own else []
        resumed = mhsa("train", "--resume", live, "--live", live, *more, terminal=True)
        assert (stopped.code, resumed.code) == (130, 0), stopped.err + resumed.err
        drawn[live] = [said.err for said in (stopped, resumed)]
    assert len(of("none")) == 4 and of("none") == of("curve") == of("heads")
    for text in drawn["heads"]:
        assert "L1.H2" in text and "weight 0" in text
    assert all("loss (nats)" in text and "L1.H2" not in text for text in drawn["curve"])
    assert all("step=" in text and "\x1b[?25l" not in text for text in drawn["none"])


def test_where_no_line_can_be_redrawn_there_are_lines(here: Path) -> None:
    Path("tiny.yaml").write_text(TINY)
    said = mhsa("train", "-c", "tiny.yaml", "--live", "heads")
    assert said.code == 0 and "step=10/10" in said.err and "L0.H0" not in said.err


def replay(*arguments: str, columns: int = 60, rows: int = 20) -> Terminal:
    return Terminal([*REPLAY, *arguments], columns, rows, PYTHONPATH=str(ROOT))


def step_of(text: str) -> int:
    found = re.search(r"step (\d+) ", text)
    return -1 if found is None else int(found[1])


def test_keys_steer_a_replay_and_the_terminal_is_as_before(tiny: Path) -> None:
    with replay() as terminal:
        terminal.until(lambda text: "q quit" in text)
        assert not terminal.is_as_before()
        terminal.type("\x1b[H")
        terminal.until(lambda text: "step 0 " in text and "paused" in text)
        terminal.type("\x1b[C\x1bOC")
        terminal.until(lambda text: "step 2 " in text)
        terminal.type("-")
        terminal.until(lambda text: "speed 0.5" in text)
        for size in [(40, 12), (100, 30), (60, 20)]:
            terminal.resize(*size)
        shown = terminal.until(lambda text: text.count("step 2 ") == 1 and text.count("q quit") == 1)
        assert len(shown.split("\n")) <= 20
        terminal.type("q")
        assert terminal.wait() == 0 and terminal.is_as_before()
        text = terminal.screen.text
        assert step_of(text) == 2 and "q quit" not in text and text.endswith("next: mhsa inspect-heads tiny")
        assert sorted(re.findall(r"L\d\.H\d", text)) == [f"L{layer}.H{head}" for layer in (0, 1) for head in (0, 1, 2)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_before(number: signal.Signals, tiny: Path) -> None:
    with replay() as terminal:
        terminal.until(lambda text: "q quit" in text)
        assert terminal.wait(number) == 128 + number and terminal.is_as_before()
        assert terminal.raw.rstrip().endswith(b"\x1b[?25h") and b"Traceback" not in terminal.raw


def test_ctrl_c_is_a_signal_while_keys_are_read(tiny: Path) -> None:
    with replay() as terminal:
        terminal.until(lambda text: "q quit" in text)
        terminal.type("\x03")
        assert terminal.wait() == 130 and terminal.is_as_before()


def test_an_untouched_replay_ends_with_the_last_frame(tiny: Path) -> None:
    with replay("--head", "L1.H1", columns=80, rows=24) as terminal:
        assert terminal.wait() == 0 and terminal.is_as_before()
        text = terminal.screen.text
    assert step_of(text) == 10 and "L1.H1" in text and "L0" not in text and len(text.split("\n")) < 24


def test_without_a_keyboard_it_only_plays(tiny: Path) -> None:
    master, slave = os.openpty()
    told = environment(TERM="xterm-256color", COLUMNS="60", LINES="20", PYTHONPATH=str(ROOT))
    command = [sys.executable, *REPLAY]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=told)
    os.close(slave)
    read = b""
    try:
        while chunk := os.read(master, 65536):
            read += chunk
    except OSError:  # the child has closed its side
        pass
    os.close(master)
    assert child.wait(60) == 0 and b"q quit" not in read and b"step 10" in read


def test_heads_of_a_replay_are_checked(tiny: Path) -> None:
    said = mhsa("timeline", "tiny", "--heads", "L0.H0")
    assert said.code == 2 and "--replay" in said.err
    with replay("--heads", "L7.H0") as terminal:
        assert terminal.wait() == 2 and "--heads" in terminal.screen.text


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"q", ["q"]),
        (b" +-", [" ", "+", "-"]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b[1~l\x1b[4~", ["home", "l", "end"]),
        (b"\x1b[1;5C\x1b[15~", []),
        (b"\x1b", ["\x1b"]),
    ],
)
def test_what_terminals_send_becomes_keys(sent: bytes, keys: list[str]) -> None:
    assert keys_of(sent) == keys
