"""`mhsa check`: whatever a file does, there is a grade of it, and the file and its folder stay as they were."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest

from mhsa_cli.jobs.grade import runner
from tests.commands.shell import Said, alive, mhsa, tree
from tests.faults.client import ForkServer

HEAD = "import os, signal, sys, time\n\n\nclass Attention:\n    def __call__(self, x):\n"
RIGHT = HEAD + "        return x\n"
WRONG = HEAD + "        return x + 1\n"
LIE = "[os.write(i, b'\\0\\0\\0\\1x') for i in range(3, 99) if 'socket' in os.path.realpath(f'/proc/self/fd/{i}')]"
FLAGS = "--order qq,--rope x,--with x,--jobs 0,--seconds 0,--seconds nan,--seconds 1e12,--memory inf,--memory 1e30"
ENDINGS = {
    "leaves": ("os._exit(7)", "exit code 7 while calling"),
    "exits": ("sys.exit(3)", "exit code 3 while calling"),
    "crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV while calling, at line 6 (in __call__)"),
    "dies": ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL while calling"),
    "grows": ("return bytearray(100 << 30)", "4 GiB"),
    "raises": ("raise LookupError('no')", "while calling: LookupError: no (raises.py, line 6)"),
    "interrupts": ("raise KeyboardInterrupt", "while calling: KeyboardInterrupt"),
    "asks": ("input()", "while calling: EOFError"),
    "lies": (LIE, "invalid result"),
}
REFUSALS = {
    "misses": ("import no_such_package as nn\nclass Attention(nn.Module): pass\n", "pip install no_such_package"),
    "breaks": ("class Attention(:\n", "line 1: invalid syntax"),
    "lacks": ("class Other: pass\n", "has no Attention"),
    "quits": ("import sys\nAttention = sys.exit(4)\n", "line 2: Attention cannot be defined: it ends the program"),
}


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GRADER", "tests.commands.stand_in")


def check(text: str, *options: object, name: str = "mine", reached: Callable[[Said], bool] | None = None) -> Said:
    """Check a file; what never ends gets more time until it `reached` what it should: a busy machine is slow."""
    Path(f"{name}.py").write_text(text)
    for seconds in (90,) if reached is None else (1, 8, 64):
        said = mhsa("check", f"{name}.py:Attention", "--seconds", seconds, *options)
        if reached is None or reached(said):
            break
    return said


def test_the_exit_code_tells_the_verdict(here: Path) -> None:
    assert check(RIGHT).code == 0
    assert check(WRONG).code == check(WRONG, "--json").code == check(WRONG, "--markdown").code == 7
    assert check(HEAD + "        return None\n").code == 2
    refused = check("class Attention(:\n")
    assert refused.code == 2 and refused.out == "" and refused.err.startswith("error: mine.py, line 1: invalid syntax")
    refused = check("Attention = 5\n")
    assert refused.code == 2 and "mine.py: Attention" in refused.err


def test_a_grade_as_json(here: Path) -> None:
    document = check(WRONG, "--json").json
    keys = ["passed", "verdict", "detected", "laws", "faults", "notes", "tried", "seconds", "codes", "mask"]
    assert list(document) == [*keys, "switched", "remarks", "failure"]
    assert (document["passed"], document["verdict"]) == (False, "wrong")
    law = {"title": "same output", "passed": False, "max_difference": 1.0, "finding": "it gave 6", "edge": False}
    assert document["laws"] == [law | {"id": "same", "code": "", "facts": {}, "rank": 0}]
    fault = {"id": "scale_none", "explanation": "it scales", "instead": "do not", "line": 3, "place": "line 3"}
    (named,) = document["faults"]
    assert {**fault, "max_difference": 1.5, "title": "no scale", "edge": False}.items() <= named.items()
    refused = check("class Attention(:\n", "--json")
    assert refused.code == 2 and refused.json["verdict"] == "uncallable" and refused.err == ""
    assert "mine.py, line 1: invalid syntax" in refused.json["tried"][0]


def test_a_grade_as_markdown_and_as_a_picture(here: Path) -> None:
    assert check(WRONG, "--markdown").out.startswith("## mine.py:Attention\n")
    assert "same output" in check(WRONG).out
    assert check(WRONG, "--markdown", "--json").code == 2


@pytest.mark.parametrize(
    ("line", "wanted"), [("while True: pass", "line 6"), ("time.sleep(600)", "line 6"), ENDINGS["crashes"]]
)
def test_an_ending_becomes_a_grade(here: Path, line: str, wanted: str) -> None:
    """More of them below, in one folder."""
    said = check(HEAD + f"        {line}\n", "--json", reached=lambda said: wanted in said.json["tried"][0])
    assert said.code == 2 and wanted in said.json["tried"][0], said.json["tried"]


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_loaded_says_why(here: Path, name: str) -> None:
    text, wanted = REFUSALS[name]
    said = check(text, name=name)
    assert said.code == 2 and wanted in said.err and f"error: {name}.py" in said.err


def test_what_it_prints_is_a_note_and_what_it_writes_is_gone(here: Path) -> None:
    lines = "open('written', 'w').write('x')", "print('one\\ntwo')", "os.write(2, b'three\\nfour\\n')", "return x"
    text = HEAD + "".join(f"        {line}\n" for line in lines)
    said = check(text, "--json")
    assert said.code == 0 and said.err == ""
    assert said.json["notes"] == ["4 lines printed: one | two | three ..."]
    assert not Path("written").exists() and sorted(here.iterdir()) == [here / "mine.py", here / "tiny.yaml"]


def test_a_flood_of_print_is_cut(here: Path) -> None:
    flooded = "more than"
    text = HEAD + "        while True: print('x' * 10_000)\n"
    said = check(text, "--json", reached=lambda said: flooded in str(said.json["notes"]))
    assert said.code == 2 and flooded in said.json["notes"][0]


def test_one_that_prints_much_is_graded_all_the_same(here: Path) -> None:
    said = check(HEAD + "        for _ in range(400): print('x' * 1_000_000)\n        return x\n", "--json")
    assert said.code == 0 and said.json["notes"][0].startswith("more than"), said.json
    text = HEAD + "        while True: os.write(1, b'x\\n' * 5_000_000)\n"
    said = check(text, "--json")
    assert said.code == 2 and "256 MB" in said.json["tried"][0], said.json


def test_no_name_of_ours_is_in_an_error(here: Path) -> None:
    text = "def f(a): ...\n" + HEAD + "        return {}\n"
    said = check(text.format("f()"), "--json").json["tried"][0]
    assert "TypeError: f() missing 1 required positional argument" in said and "mhsa_checked" not in said
    said = check(text.format("sys.modules[__name__].nothing"), "--json").json["tried"][0]
    assert "module 'mine' has no attribute 'nothing'" in said
    Path("all").mkdir()
    Path("all/mine.py").write_text("class Attention(:\n")
    said = mhsa("check", "all", "--json").json["blocks"][0]["tried"][0]
    assert said == ("all/mine.py, line 1: invalid syntax: class Attention(:; Python refuses this line: correct it")


def test_files_are_read_from_the_folder_of_the_file(here: Path) -> None:
    Path("sub").mkdir()
    Path("sub/size.txt").write_text("0")
    Path("sub/mine.py").write_text("n = int(open('size.txt').read())\n" + HEAD + "        return x + n\n")
    assert mhsa("check", "sub/mine.py:Attention").code == 0


def test_a_training_loop_beside_it_does_not_run(here: Path) -> None:
    said = check(RIGHT + "\nfor step in range(10**12):\n    pass\nsys.exit(3)\n", "--json")
    assert said.code == 0
    assert said.json["notes"] == ["lines 8-10 run at import, not needed by Attention: skipped"]


def test_flags_become_options(here: Path) -> None:
    flags = [
        "--causal",
        "--order",
        "kqv",
        "--rope",
        "half",
        "--d-model",
        "36",
        "--n-heads",
        "3",
        "--seq-len",
        "5",
        "--with",
        "bias=no",
        "--with",
        "p=0.5",
    ]
    found = check(RIGHT, "--json", *flags).json["detected"]["options"]
    wanted = {"causal": True, "order": "kqv", "rope": "half", "d_model": 36, "n_heads": 3, "seq_len": 5}
    assert found == str({**wanted, "arguments": ("bias=no", "p=0.5")})
    assert "'causal': False" in check(RIGHT, "--json", "--no-causal").json["detected"]["options"]


@pytest.mark.parametrize("flags", FLAGS.split(","))
def test_flags_that_mean_nothing_are_refused(here: Path, flags: str) -> None:
    Path("mine.py").write_text(RIGHT)
    said = mhsa("check", "mine.py:Attention", *flags.split())
    assert (said.code, said.out) == (2, "") and all(word in said.err for word in flags.split())


def test_a_folder_is_graded_whole_and_stays_as_it_was(here: Path) -> None:
    folder = Path("all")
    folder.mkdir()
    for name, (line, _) in ENDINGS.items():
        (folder / f"{name}.py").write_text(HEAD + f"        {line}\n")
    for name, (text, _) in REFUSALS.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "sub").mkdir()
    (folder / "sub" / "right.py").write_text("import beside\n" + RIGHT.replace("return x", "return beside.same(x)"))
    (folder / "sub" / "beside.py").write_text("def same(x):\n    return x\n\nAttention = 5\n")
    (folder / "wrong.md").write_text(f"# Mine\n\n```python\n{WRONG}```\n")
    before = tree(folder), sorted(folder.rglob("*"))
    said = mhsa("check", folder, "--entry", "Attention", "--seconds", 90, "--jobs", 3, "--json")
    assert (tree(folder), sorted(folder.rglob("*"))) == before
    assert said.code == 7 and said.json["passed"] is False
    found = {item["block"]: item for item in said.json["blocks"]}
    files = [*sorted(folder.glob("*.*")), *sorted(folder.glob("sub/*"))]
    assert list(found) == [f"{file}:Attention" for file in files]
    for name, (_, wanted) in {**ENDINGS, **REFUSALS}.items():
        item = found[f"all/{name}.py:Attention"]
        assert item["verdict"] == "uncallable" and wanted in item["tried"][0], item
    assert found["all/sub/right.py:Attention"]["verdict"] == "right"
    assert found["all/wrong.md:Attention"]["verdict"] == "wrong"
    assert len(said.err.splitlines()) == len(files) and f"{len(files)}/{len(files)}  all/" in said.err


def test_what_cannot_be_read_in_a_folder_is_a_row_of_it(here: Path) -> None:
    Path("all/ann/week/one").mkdir(parents=True)
    Path("all/ann/week/one/mine.py").write_text(RIGHT)
    assert mhsa("check", "all", "--entry", "Attention").code == 0
    Path("all/bob.py").symlink_to("/nowhere/mine.py")
    said = mhsa("check", "all", "--entry", "Attention", "--json")
    assert said.code == 2 and [item["verdict"] for item in said.json["blocks"]] == ["uncallable", "right"]
    assert "all/bob.py cannot be read" in said.json["blocks"][0]["tried"][0]


def test_the_code_of_a_folder_is_that_of_its_grades(here: Path) -> None:
    Path("a.py").write_text(RIGHT)
    Path("b.py").write_text(RIGHT)
    said = mhsa("check", ".", "--entry", "Attention")
    assert said.code == 0 and "3 blocks: 2 right, 1 nothing to grade" in said.out
    assert mhsa("check", ".", "--entry", "Attention", "--markdown").out.startswith("# Grades\n")
    Path("c.py").write_text("")
    said = mhsa("check", "a.py", "c.py", "--entry", "Attention")
    assert said.code == 2 and "2 blocks: 1 right, 1 nothing to grade" in said.out
    Path("d.py").write_text(WRONG)
    assert mhsa("check", "a.py", "c.py", "d.py", "--entry", "Attention").code == 7
    Path("none").mkdir()
    assert mhsa("check", "none").code == 2
    assert mhsa("check", "missing.py:A").code == 2


def test_where_nothing_can_be_forked_processes_are_spawned(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "get_all_start_methods", lambda: ["spawn"])
    assert runner._context().get_start_method() == get_context("spawn").get_start_method()
    assert check(WRONG).code == 7


def light(_: pytest.MonkeyPatch, room: str) -> None:
    """Grade without torch, and keep temporary files in a room of one's own."""
    runner.GRADER = runner.READY = "tests.commands.stand_in"  # type: ignore[misc]
    tempfile.tempdir = room


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -9)]
)
def test_no_process_outlives_the_command(here: Path, number: int, code: int, server: ForkServer) -> None:
    marks = Path("marks").absolute()
    text = f"import os\ndef spin():\n    open('{marks}', 'w').write(str(os.getpid()))\n    while True: pass\n"
    Path("mine.py").write_text(text + "A = spin()\n")
    room = here / "temporary"
    room.mkdir()
    prepared = ["tests.commands.test_check_command:light", str(room)]
    process = server.start(["check", "mine.py:A", "--seconds", 600], here, [prepared], {"TMPDIR": str(room)})
    until = time.monotonic() + 120
    while not (marks.exists() and marks.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    child = int(marks.read_text())
    assert alive(child)
    process.signal(number)
    done = process.wait()
    assert done.code == code and "Traceback" not in done.out + done.err
    while alive(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(child) and not list(room.glob("mhsa-check-*"))


# How it starts another: in its own session; in one that keeps only the output, only a folder, or nothing of it.
STARTED = {
    "child": "['sleep', '600']",
    "output": "['sh', '-c', 'sleep 600; exit'], start_new_session=True, cwd='/'",
    "folder": "['sleep', '600'], start_new_session=True, cwd='/', stdin=-3, stdout=-3, stderr=-3, "
    "pass_fds=[os.open('.', os.O_RDONLY)]",
    "nothing": "['sleep', '600'], start_new_session=True, cwd='/', stdout=-3, stderr=-3",  # DEVNULL
}


@pytest.mark.parametrize(
    ("line", "code", "how"),
    [
        ("return x", 0, "child"),
        ("return x", 0, "nothing"),
        ("os._exit(7)", 2, "child"),
        ("os._exit(7)", 2, "output"),
        ("os._exit(7)", 2, "folder"),
        ("time.sleep(600)", 2, "nothing"),
        ("os.kill(os.getpid(), 11)", 2, "child"),
        ("os.kill(os.getpid(), 11)", 2, "output"),
    ],
)
def test_what_it_starts_ends_with_it(here: Path, line: str, code: int, how: str) -> None:
    marks = Path("marks").absolute()
    start = f"        open('{marks}', 'w').write(str(subprocess.Popen({STARTED[how]}).pid))\n"
    text = "import subprocess\n" + HEAD + start + f"        {line}\n"
    endless = (lambda _: marks.exists() and marks.read_text() != "") if "sleep" in line else None
    assert check(text, reached=endless).code == code
    started, until = int(marks.read_text()), time.monotonic() + 60
    while alive(started) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(started)


def test_the_real_grader_stands_behind_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(here)
    text = "import torch\n\ndef Attention(q, k, v):\n    return torch.softmax(q @ k.mT, -1) @ v\n"
    document = check(text, "--json").json
    assert document["verdict"] == "wrong" and document["faults"][0]["id"] == "scale_none", document["tried"]
