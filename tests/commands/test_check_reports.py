"""`mhsa check --csv FILE --out DIR`: a table for a spreadsheet, and a report for each student."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from mhsa_cli.jobs.grade import runner
from mhsa_cli.jobs.grade.blocks import Row
from mhsa_cli.jobs.grade.reports import report_names
from mhsa_cli.renderers.pictures.check_csv import FORMULA, grades_csv
from tests.commands.shell import mhsa, tree
from tests.commands.test_check_command import HEAD, RIGHT, WRONG
from tests.commands.test_check_folders import hand_in
from tests.renderers import graded as g

REMARKED = HEAD + "        return x + 0.5\n"


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GRADER", "tests.commands.stand_in")


def test_a_class_becomes_a_table_and_a_report_for_each(here: Path) -> None:
    files = {"ann/attention.py": WRONG, "ann/helper.py": "x = 1\n", "bob.py": REMARKED, "zoë.py": RIGHT, "kim/": "",
             "roster.txt": "ann"}  # fmt: skip
    hand_in(here / "all", files)
    before = tree(here / "all")
    given = ["--entry", "Attention", "--csv", "grades.csv", "--out", "reports"]
    said = mhsa("check", "all", *given, "--json")
    assert said.code == 7 and said.json["faults"] == {"scale_none": 1}
    verdicts = [(item["faults"] != [], item["remarks"] != []) for item in said.json["blocks"]]
    assert verdicts == [(False, True), (False, False), (False, False), (True, False), (False, False), (False, False)]
    with Path("grades.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["block"]: row for row in csv.DictReader(file)}
    assert list(rows) == [item["block"] for item in said.json["blocks"]]
    found = {block: (row["verdict"], row["faults"], row["lines"], row["remarks"] != "") for block, row in rows.items()}
    assert found == {
        "all/bob.py:Attention": ("right", "", "", True),
        "all/roster.txt": ("nothing to grade", "", "", True),
        "all/zoë.py:Attention": ("right", "", "", False),
        "all/ann/attention.py:Attention": ("wrong", "scale_none", "line 3", False),
        "all/ann/helper.py:Attention": ("nothing to grade", "", "", True),
        "all/kim": ("nothing to grade", "", "", True),
    }
    reports = {path.name: path.read_text() for path in Path("reports").iterdir()}
    assert sorted(reports) == ["ann.md", "bob.md", "kim.md", "zoë.md"]
    assert reports["bob.md"] == mhsa("check", "all/bob.py:Attention", "--markdown").out
    assert "attention.py" in reports["ann.md"] and "helper.py" in reports["ann.md"] and "bob" not in reports["ann.md"]
    assert tree(here / "all") == before


def test_nothing_is_overwritten_and_nothing_lost(here: Path) -> None:
    hand_in(here / "all", {"ann.py": RIGHT, "bob.py": RIGHT})
    hand_in(here, {"taken.csv": "mine", "reports/bob.md": "mine", "other/notes.txt": "mine"})
    Path("linked").mkdir()
    Path("linked/ann.md").symlink_to(here / "taken.csv")
    before = tree(here)
    for given in (["--csv", "taken.csv"], ["--csv", "gone/x.csv"], ["--out", "reports"], ["--out", "taken.csv"],
                  ["--out", "linked"], ["--out", "gone/x"], ["--csv", ""]):  # fmt: skip
        said = mhsa("check", "all", "--entry", "Attention", *given)
        assert said.code == 2 and said.out == "" and tree(here) == before, given
    assert mhsa("check", "all", "--entry", "Attention", "--out", "other").code == 0
    assert sorted(path.name for path in Path("other").iterdir()) == ["ann.md", "bob.md", "notes.txt"]


def test_what_it_writes_into_the_graded_folder_is_no_row_of_it(here: Path) -> None:
    hand_in(here / "all", {"ann.py": RIGHT, "reports/": ""})
    said = mhsa("check", "all", "--entry", "Attention", "--out", "all/reports", "--csv", "all/grades.csv", "--json")
    assert said.code == 0 and len(said.json["blocks"]) == 1


def test_a_report_has_a_name_that_is_safe_and_its_own() -> None:
    owners = [
        "c/ann",
        "c/Ann.py",
        "d/ann",
        "c/..",
        "c/a b;$(x)\n.ipynb",
        "c/" + "é" * 200,
        "x.py:A",
        "x.py:B",
        "c/a.zip",
    ]
    names = list(report_names([Row("", owner) for owner in owners]).values())
    assert names[:5] == ["ann.md", "Ann-2.md", "ann-3.md", "block.md", "a_b_x.md"]
    assert names[6:] == ["x-A.md", "x-B.md", "a.zip.md"] and len(names[5].encode()) < 120
    assert all(Path(name).name == name and not name.startswith(".") for name in names)


def test_no_cell_is_a_formula_and_none_breaks_its_row() -> None:
    hostile = [g.hostile(verdict) for verdict in ("right", "wrong", "uncallable", "unclear")]
    for start in FORMULA:
        text = grades_csv([*hostile, replace(g.ZOE, block=f"{start}cmd|' /C calc'!A0")])
        rows = list(csv.reader(text.splitlines(), strict=True))
        assert len(rows) == 6 and {len(row) for row in rows} == {6}
        assert not [cell for row in rows for cell in row if cell.startswith(FORMULA)] and "cmd" in rows[5][0]
