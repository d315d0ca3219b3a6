"""mhsa runs in a pipe, on a narrow screen, and for one run alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.commands.shell import facts, mhsa
from tests.commands.test_output import process

LONG = "a-run-whose-name-is-longer-than-many-a-screen-is-wide-and-than-any-column-of-it"


@pytest.fixture(autouse=True)
def three(tiny: Path) -> None:
    """The tiny run, one with a long name, and a damaged one."""
    shutil.copytree(tiny, tiny.parent / LONG)
    (tiny.parent / "torn").mkdir()


@pytest.mark.parametrize("columns", ["20", "60", "80", "200"])
def test_a_pipe_gets_a_run_a_line_with_nothing_cut(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = mhsa("runs").out.splitlines()
    wide = {line.split()[0]: line for line in lines[1:4]}
    assert set(wide) == {"tiny", LONG, "torn"}
    for name in ("tiny", LONG):
        row = next(row for row in mhsa("runs", "--json").json if Path(row["run"]).name == name)
        assert str(row["step"]) in wide[name] and row["started"][:10] in wide[name] and row["status"] in wide[name]
    assert "not a run folder" in wide["torn"]


@pytest.mark.usefixtures("screen")
@pytest.mark.parametrize("columns", [20, 40, 60, 80, 120, 150])
def test_a_screen_drops_columns_before_it_cuts_a_name(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = mhsa("runs").out
    words = out.split()
    assert LONG in words and {"tiny", "torn", "finished", "damaged:"} <= set(words)
    if columns >= 120:  # a table, and below it the columns that it lacks
        assert "started" not in out.splitlines()[0] and "started" in words
    else:
        assert "\nstatus: finished\n" in out and "\nstep: 10\n" in out


def test_grep_finds_a_run_by_its_name(tiny: Path) -> None:
    done = process(f"$MHSA runs | grep -c -- {LONG}", COLUMNS="40")
    assert done.stdout == b"1\n", done.stderr


@pytest.mark.parametrize("name", ["tiny", "runs/tiny", LONG])
def test_one_run_in_lines_and_as_a_document(name: str) -> None:
    said, document = mhsa("runs", name), mhsa("runs", name, "--json").json
    pairs = dict(line.split(": ", 1) for line in said.out.split("\n\n")[0].splitlines())
    assert said.code == 0 and document in mhsa("runs", "--json").json
    assert set(pairs) == {key for key, value in document.items() if value is not None}
    info = facts(Path("runs/tiny"))
    assert (pairs["run"], pairs["task"]) == (document["run"], "shift") and pairs["step"] == str(info["step"])
    assert pairs["weights_sha256"] == info["weights_sha256"] and pairs["seed"] == "8"
    assert said.out.rstrip().endswith(f"mhsa inspect-heads {Path(name).name}")


def test_a_run_that_is_not_there_or_damaged(tiny: Path) -> None:
    for name in ("nothing", "torn"):
        said = mhsa("runs", name)
        assert (said.code, said.out) == (4, "") and name in said.err
    (tiny / "run.json").write_text("{")
    said = mhsa("runs", "tiny")
    assert said.code == 0 and "status: damaged" in said.out and said.out.rstrip().endswith("mhsa verify tiny")
    assert mhsa("runs", "tiny", "--json").json["status"].startswith("damaged")


def test_one_task_alone() -> None:
    whole = mhsa("tasks", "--json").json
    for task in whole:
        assert mhsa("tasks", task["name"], "--json").json == task
    shown = mhsa("tasks", "reverse").out
    assert shown.startswith("reverse") and "induction" not in shown and "mhsa train task.name=reverse" in shown
    said = mhsa("tasks", "revers")
    assert (said.code, said.out) == (2, "") and "`revers`" in said.err and "mhsa tasks reverse" in said.err
    assert all(task["name"] in mhsa("tasks", "sorting").err for task in whole)


@pytest.mark.parametrize("command", [["runs"], ["curve"], ["explain"], ["inspect-heads"], ["verify"]])
def test_the_newest_run_is_named_by_a_word_everywhere(command: list[str], tiny: Path) -> None:
    newest, by_name = mhsa(*command, "newest", "--json"), mhsa(*command, "tiny", "--json")
    assert (newest.code, by_name.code) == (0, 0) and newest.out == by_name.out
