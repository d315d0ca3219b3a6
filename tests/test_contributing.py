"""CONTRIBUTING.md followed: its examples are applied to a copy of the project, and the tests it names run there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mhsa_cli
from tests.environment import plain

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"`([\w/]+\.py)`[^`]*:\n\n```(python|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What the page says to run, of the entries that were added and of their tables.
TESTS = [
    "tests/core/test_tasks.py",
    "tests/core/test_positions.py",
    "tests/core/test_labels.py",
    "tests/core/test_head_targets.py",
    "tests/check/test_laws.py::test_every_law_has_its_breaker_and_its_words",
    "tests/check/test_laws.py::test_a_law_sees_what_breaks_it[equal_rows]",
    "tests/check/test_laws.py::test_the_right_one_breaks_none_and_is_asked_all",
    "tests/check/test_faults.py",
    "tests/commands/test_added.py",
]
SELECTED = "delay or log or second or equal_rows or scale_batch or every or right or same_output or added"
ADDED = """
import json
from pathlib import Path

import pytest

from tests.check import test_faults
from tests.commands.shell import mhsa

SMALL = ["task.name=delay", "vocab_size=8", "seq_len=6", "steps_per_epoch=40", "lr=0.02", "n_heads=2"]


def test_the_added_task_is_learned_and_its_heads_are_measured(here: Path) -> None:
    said = mhsa("train", *SMALL, "--json")
    assert said.code == 0, said.err
    assert said.json["final"]["eval_accuracy"] == 1
    heads = json.loads(next(here.glob("runs/*/heads.json")).read_text())["heads"]
    assert all("second" in head["scores"] for head in heads)


def test_the_added_scheme_passes_the_checks_of_a_trace_and_limits_are_refused(here: Path) -> None:
    assert mhsa("trace", *SMALL, "positions=log").code == 0
    assert mhsa("trace", *SMALL, "positions=log", "attention=linear").code == 2
    refused = mhsa("trace", *SMALL, "lag=6")
    assert refused.code == 2 and "task.lag" in refused.err


def test_the_added_fault_is_found_by_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_faults, "FORMS", [("scale_batch", {"scale": "batch"})])
    test_faults.test_the_search_names_what_the_table_computes()


def test_the_added_command_counts() -> None:
    assert mhsa("parameters", "d_model=12", "n_heads=3", "positions=none", "vocab_size=5", "--json").json == {
        "parameters": 5 * 12 + 4 * 12 * 13 + 5 * 13
    }
    assert mhsa("parameters", "--help").code == 0
"""


def apply(block: str, kind: str, file: Path) -> None:
    """Write a new file, or change one by hunks of unchanged, removed and added lines; additions alone go to its end."""
    if kind == "python":
        assert not file.exists(), file
        file.write_text(block, encoding="utf-8")
        return
    for hunk in re.split(r"^@@.*\n", block, flags=re.MULTILINE):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] or "\n" for line in lines if not line.startswith("+"))
        new = "".join(line[1:] or "\n" for line in lines if not line.startswith("-"))
        text = file.read_text(encoding="utf-8")
        assert not old or text.count(old) == 1, f"{file}: these lines are there {text.count(old)} times:\n{old}"
        file.write_text(text.replace(old, new) if old else text + new, encoding="utf-8")


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with all examples of the page."""
    place = tmp_path_factory.mktemp("project")
    beside = shutil.ignore_patterns("__pycache__", "fixtures", "golden")
    shutil.copytree(Path(mhsa_cli.__file__).parent, place / "mhsa_cli", ignore=beside)
    shutil.copytree(ROOT / "tests", place / "tests", ignore=beside)
    shutil.copy(ROOT / "pyproject.toml", place)
    for path, kind, block in BLOCK.findall(PAGE):
        apply(block, kind, place / path)
    (place / "tests/commands/test_added.py").write_text(ADDED, encoding="utf-8")
    return place


def test_every_example_of_the_page_is_applied() -> None:
    assert len(BLOCK.findall(PAGE)) == len(re.findall(r"^```(python|diff)$", PAGE, re.MULTILINE)) > 12


def test_every_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"tests/[\w/]+(?:\.py)?", PAGE))
    assert len(named) > 15 and [path for path in named if not (ROOT / path).exists()] == []


def test_what_the_page_adds_has_the_projects_style(changed: Path) -> None:
    """Undefined names, too: an annotation's name is not looked up when it is only read."""
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "mhsa_cli"],
            cwd=changed, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout


def test_what_the_page_adds_is_held_to_the_tests_of_its_table(changed: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", SELECTED, *TESTS]
    done = subprocess.run(
        command, cwd=changed, env=plain() | {"PYTHONPATH": str(changed)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
