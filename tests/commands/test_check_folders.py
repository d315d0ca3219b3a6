"""`mhsa check FOLDER`: everything in a folder is a row, and nothing outside it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.jobs.grade import runner
from tests.commands.shell import Said, mhsa
from tests.commands.test_check_command import HEAD, RIGHT, WRONG

SECRET = "root:x:0:0:the secret of another file"


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GRADER", "tests.commands.stand_in")


def hand_in(folder: Path, files: dict[str, str]) -> None:
    """Write the files of a class; a name that ends in / is an empty folder."""
    for name, text in files.items():
        path = folder / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(text)


def graded(seconds: int = 90) -> tuple[Said, dict[str, Any]]:
    """Grade the folder `all`; returns each row by its path."""
    said = mhsa("check", "all", "--entry", "Attention", "--seconds", seconds, "--json")
    rows = {item["block"].removeprefix("all/").removesuffix(":Attention"): item for item in said.json["blocks"]}
    return said, rows


def failures(rows: dict[str, Any]) -> dict[str, str]:
    """Say of each row that is not right why."""
    return {name: item["failure"] or item["verdict"] for name, item in rows.items() if item["verdict"] != "right"}


def test_every_sub_folder_and_file_is_a_row(here: Path) -> None:
    files = {"ann/attention.py": RIGHT, "bob.py": RIGHT, "carla/": "", "dora/essay.pdf": "%PDF", "emil.zip": "PK",
             "finn/notes/": "", "gina.py": "x = 1\n", "hugo.ipynb": "{not json", "ines/blank.py": "",
             "jan/loop.py": HEAD + "        while True: pass\n"}  # fmt: skip
    hand_in(here / "all", {**files, "ann/.git/config.py": RIGHT, "__MACOSX/ann.py": RIGHT})
    for seconds in (1, 8, 64):  # a busy machine is slow
        said, rows = graded(seconds)
        if list(failures(rows).values()).count("timeout") == 1:
            break
    nothing = "nothing_to_grade"
    assert list(rows) == ["bob.py", "emil.zip", "gina.py", "hugo.ipynb", "ann/attention.py", "carla", "dora", "finn",
                          "ines/blank.py", "jan/loop.py"]  # fmt: skip
    assert failures(rows) == {"emil.zip": nothing, "gina.py": nothing, "hugo.ipynb": "not_loaded", "carla": nothing,
                              "dora": nothing, "finn": nothing, "ines/blank.py": nothing,
                              "jan/loop.py": "timeout"}  # fmt: skip
    assert said.code == 2 and said.json["passed"] is False


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"ann/attention.py": RIGHT, "ann/helper.py": "x = 1\n", "ann/data/sizes.csv": "1"}, 0),
        ({"ann.py": RIGHT, "__init__.py": "", "roster.csv": "ann"}, 0),
        ({"ann/attention.py": RIGHT, "bob/helper.py": "x = 1\n"}, 2),
        ({"ann/attention.py": RIGHT, "bob/": ""}, 2),
        ({"ann/attention.py": RIGHT, "ann/week2/": ""}, 2),
        ({"ann/attention.py": WRONG, "bob/": ""}, 7),
    ],
)
def test_who_hands_in_nothing_is_not_passed_over(here: Path, files: dict[str, str], code: int) -> None:
    hand_in(here / "all", files)
    said, _ = graded()
    assert said.code == code and said.json["passed"] is (code == 0)


def test_links_that_leave_the_folder_are_refused_unread(here: Path) -> None:
    hand_in(here, {"secret": SECRET, "solution/attention.py": RIGHT, "all/ann/attention.py": RIGHT})
    within = here / "all"
    (within / "bob.py").symlink_to(here / "secret")
    (within / "carla").symlink_to(here / "solution")
    hand_in(within, {"dora/": "", "emil/": "", "finn/own.py": RIGHT})
    (within / "dora/attention.py").symlink_to(here / "solution/attention.py")
    (within / "emil/attention.py").symlink_to("../ann/attention.py")
    (within / "finn/same.py").symlink_to("own.py")
    (within / "gina").symlink_to("ann")
    (within / "hugo.py").symlink_to("hugo.py")
    said, rows = graded()
    assert failures(rows) == {**dict.fromkeys(["bob.py", "carla", "gina", "dora/attention.py", "emil/attention.py"],
                                              "outside_link"), "hugo.py": "not_loaded"}  # fmt: skip
    assert rows["finn/same.py"]["verdict"] == "right" and said.code == 2
    for shown in (said.out, said.err, mhsa("check", "all", "--markdown").out, mhsa("check", "all").out):
        assert SECRET not in shown and "root:x" not in shown


def test_a_folder_without_anything_to_grade_is_refused(here: Path) -> None:
    hand_in(here / "all", {"roster.csv": "ann"})
    said = mhsa("check", "all")
    assert (said.code, said.out) == (2, "") and "all" in said.err
