"""What lands in pipes, narrow terminals, old encodings and closed ends; and what a failure looks like."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.errors import BusyError, MhsaError, NonFiniteError, RunError, StorageError, UsageError
from tests.commands.shell import Said, environment, mhsa

LOOK = (["inspect-heads", "tiny"], ["curve", "tiny"], ["runs"])
SOURCE = str(Path(__file__).parents[2])


def process(command: str, **changes: str) -> subprocess.CompletedProcess[bytes]:
    """Run a shell line in which $MHSA is the program."""
    env = environment(MHSA="program", PYTHONPATH=SOURCE, **changes)
    program = f'program() {{ {shlex.quote(sys.executable)} -m mhsa_cli "$@"; }}'
    line = ["bash", "-c", f"set -o pipefail; {program}; {command}"]
    return subprocess.run(line, env=env, capture_output=True, check=False)


@pytest.mark.parametrize("force", [{}, {"FORCE_COLOR": "0"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"COLUMNS": "40"}])
def test_pipes_get_plain_lines(force: dict[str, str], tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in force.items():
        monkeypatch.setenv(name, value)
    commands = [*LOOK, ["tasks"], ["train", "--config", "tiny.yaml"], ["train", "--help"]]
    for said in [mhsa(*command) for command in commands]:
        assert said.code == 0
        assert "\x1b" not in said.out + said.err and "\r" not in said.out + said.err


def test_a_long_training_writes_few_lines_into_a_log(here: Path) -> None:
    said = mhsa("train", "steps_per_epoch=100", "epochs=4", "log_every=1", "eval_every=5", "eval_sequences=3")
    assert said.code == 0 and 10 < len(said.err.splitlines()) < 60
    assert "step=400/400" in said.err.splitlines()[-1]


@pytest.mark.parametrize("columns", ["0", "-5", "abc", "", "1", "5", "20", "79", "100000", "１２"])
def test_no_width_makes_output_vanish(columns: str, tiny: Path, screen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    wanted = int(columns) if columns.isascii() and columns.isdigit() and columns != "0" else 80
    for command in (*LOOK, ["tasks"]):
        said = mhsa(*command)
        assert said.code == 0 and len(said.out.split()) > 20
        drawn = [line for line in said.out.splitlines() if "mhsa" not in line and "every key" not in line]
        assert max(map(len, drawn)) <= max(20, min(200, wanted)), max(drawn, key=len)


@pytest.mark.parametrize("terminal", [False, True])
def test_sentences_are_wrapped_between_words_where_the_width_is_known(
    terminal: bool, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = mhsa("explain", "tiny").out.splitlines()
    monkeypatch.setenv("COLUMNS", "33")
    shown = mhsa("explain", "tiny", terminal=terminal).out
    narrow = re.sub("\x1b\\[[0-9;]*m", "", shown).splitlines()  # names of heads are bold
    assert " ".join(narrow).split() == " ".join(whole).split()
    assert max(map(len, whole)) > 100 and len(whole) < len(narrow)
    commands = [line for line in narrow if "mhsa " in line]
    assert commands == [line for line in whole if "mhsa " in line]  # to be copied whole
    assert all(len(line) <= 33 for line in narrow if line not in commands)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "cp437"])
def test_encodings_without_our_glyphs(encoding: str, tiny: Path) -> None:
    for command in (*LOOK, ["train", "--config", "tiny.yaml"]):
        said = mhsa(*command, encoding=encoding)
        assert said.code == 0 and len(said.out) > 100, said.err
        assert "?" not in said.out  # drawn with other glyphs, not with replacements
    assert mhsa("tasks", encoding=encoding).code == 0


@pytest.mark.parametrize("name", ["[red]x", ":x:", "a b;$c", "é漢", "\\[bold]"])
def test_names_are_shown_as_they_are(name: str, tiny: Path) -> None:
    run = Path("runs") / name
    shutil.move(tiny, run)
    for said in (mhsa("runs"), mhsa("inspect-heads", name), mhsa("curve", name)):
        assert said.code == 0 and name in said.out
    assert mhsa("curve", name, "--json").json["runs"][0]["run"] == f"runs/{name}"
    missing = mhsa("curve", "[/nope]" + name)
    assert missing.code == 4 and "[/nope]" + name in missing.err
    done = mhsa("train", "--resume", name)
    assert done.code == 0 and re.search(r"--resume ('.*'|\S+) train.epochs=3", done.err)


def test_an_undecodable_name_is_escaped(tiny: Path) -> None:
    run = Path("runs") / "caf\udce9\x1b[31m"
    try:
        shutil.move(tiny, run)
    except OSError:
        pytest.skip("this file system wants UTF-8 names")
    for said in (mhsa("runs"), mhsa("inspect-heads"), mhsa("curve", run), mhsa("train", "--resume", run)):
        assert said.code == 0 and "caf\\xe9\\x1b[31m" in said.out + said.err
        assert "\x1b" not in said.out + said.err
    assert mhsa("runs", "--json").json[0]["run"] == str(run)
    assert mhsa("curve", run, "-o", "a.txt").code == 0 and "caf\\xe9\\x1b[31m" in Path("a.txt").read_text("utf-8")


def test_real_processes_in_the_c_locale_and_with_closed_ends(tiny: Path) -> None:
    old = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for changes in (old, {"PYTHONIOENCODING": "ascii"}):
        done = process("$MHSA inspect-heads && $MHSA runs && $MHSA curve", **changes)
        assert (done.returncode, done.stderr) == (0, b"") and done.stdout.isascii() and b"L1.H2" in done.stdout
    for line in ("$MHSA inspect-heads | head -1", "$MHSA runs --json | true", "$MHSA curve | head -c 1"):
        done = process(line)
        assert done.stderr == b"" and done.returncode in (0, 1), line
    full = process("$MHSA runs > /dev/full; echo $?; $MHSA runs --json > /dev/full; echo $?; $MHSA runs >&-; echo $?")
    assert full.stdout.split() == [b"5", b"5", b"0"]
    assert (
        full.stderr.count(b"error: cannot write to stdout: ") == 2
        and b"Traceback" not in full.stderr
        and b"internal" not in full.stderr
    )


def test_our_own_bug_is_told_shortly_and_kept_in_a_file(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        secret_local = "do not " + "print me"  # noqa: F841
        raise RuntimeError("[bold]oops[/bold]")

    monkeypatch.setattr("mhsa_cli.runs.listing.newest_first", broken)
    said = mhsa("runs")
    assert (said.code, said.out) == (1, "") and len(said.err.splitlines()) == 2
    assert "internal error: RuntimeError: [bold]oops[/bold]" in said.err and "mhsa doctor -v" in said.err
    found = re.search(r"in (\S+\.txt)$", said.err.strip())
    assert found is not None
    trace = Path(found[1]).read_text()
    Path(found[1]).unlink()
    assert trace.startswith("mhsa 'runs'\n") and "in broken" in trace and "do not print me" not in trace
    real = tempfile.NamedTemporaryFile

    def full(*given: Any, **named: Any) -> Any:
        file = real(*given, dir=".", **named)
        file.write = lambda _: (_ for _ in ()).throw(OSError("no room"))
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    said = mhsa("runs")
    assert said.code == 1 and "in broken" in said.err and not list(Path().glob("mhsa-*"))


# Refuses one library to whatever runs, as a machine does that lacks it or the memory to load it.
WITHOUT = """
import sys
from mhsa_cli.__main__ import run

class Refuse:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "pydantic":
            raise {error}("no " + name)

sys.meta_path.insert(0, Refuse())
sys.argv = ["mhsa", "config", "show"]
run()
"""


@pytest.mark.parametrize(("error", "code"), [("ImportError", 1), ("MemoryError", 5)])
def test_what_tells_a_failure_loads_nothing_that_may_be_what_failed(error: str, code: int, here: Path) -> None:
    program = [sys.executable, "-c", WITHOUT.format(error=error)]
    env = environment(PYTHONPATH=SOURCE, TMPDIR=str(here))
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert "no pydantic" in done.stderr and "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 2
    assert "train." not in done.stderr  # nothing was to be trained


def test_ctrl_c_before_the_command_began_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    import typer.main

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(typer.main, "get_command", interrupted)
    assert mhsa("runs") == Said(130, "", "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MhsaError("why", "what to do"), 1),
        (UsageError("why", "what to do"), 2),
        (NonFiniteError("why", "what to do"), 3),
        (RunError("why", "what to do"), 4),
        (StorageError("why", "what to do"), 5),
        (OSError(5, "why"), 5),
        (BusyError("why", "what to do"), 6),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(32, "why"), 1),
        (MemoryError("why"), 5),
    ],
)
def test_exit_codes(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("mhsa_cli.runs.listing.newest_first", fail)
    said = mhsa("runs", "--json")
    assert (said.code, said.out) == (code, "") and "Traceback" not in said.err
    if isinstance(error, MhsaError):
        assert said.err == "error: why\n  what to do\n"


@pytest.mark.parametrize("command", [[], ["train"], ["config", "check"]])
def test_help_is_there_under_its_short_name(command: list[str]) -> None:
    short, long = mhsa(*command, "-h"), mhsa(*command, "--help")
    assert short.code == 0 and short.out == long.out and "Usage" in short.out
