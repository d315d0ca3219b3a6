"""What a package brings besides its code: metadata, its typing marker, the map of the code, the changelog."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import mhsa_cli
from mhsa_cli.commands.app import COMMANDS
from tests.test_architecture import LIBRARIES, PACKAGE, ROOMS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_wheel_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_the_wheel_holds_every_recipe_and_the_page_of_a_report() -> None:
    [patterns] = PROJECT["tool"]["setuptools"]["package-data"].values()
    packed = {path.resolve() for pattern in patterns for path in PACKAGE.glob(pattern)}
    page = [path for path in (PACKAGE / "renderers/report").resolve().iterdir() if path.suffix in {".css", ".js"}]
    assert packed == {(PACKAGE / "py.typed").resolve(), *(ROOT / "configs").resolve().rglob("*.*"), *page}


def test_the_metadata_agree_with_the_package() -> None:
    project = PROJECT["project"]
    assert "version" in project["dynamic"] and "version" not in project  # in one place
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "mhsa_cli.__version__"}
    assert all((ROOT / name).is_file() for name in (project["readme"], *project["license-files"]))
    versions = {line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)}
    assert project["requires-python"] == f">={min(versions, key=lambda version: int(version[2:]))}"


def test_the_citation_is_that_of_this_version() -> None:
    cited = yaml.safe_load(read("CITATION.cff"))
    assert cited["version"] == mhsa_cli.__version__
    assert f"## {cited['version']} - {cited['date-released']}\n" in read("CHANGELOG.md")
    assert cited["authors"] == [{"name": "mhsa-cli contributors"}] and cited["license"] == PROJECT["project"]["license"]


def test_every_dependency_is_pinned_within_its_range() -> None:
    pins = dict(line.lower().split("==") for line in read("constraints.txt").splitlines() if "==" in line)
    extras = PROJECT["project"]["optional-dependencies"]
    wanted_by = [
        PROJECT["project"]["dependencies"],
        *(extras[name] for name in ("dev", "ray", "png", "plots", "notebook", "browser", "tui", "docs")),
    ]
    for line in (line for lines in wanted_by for line in lines):
        wanted = Requirement(line)
        assert wanted.specifier.contains(pins[wanted.name.lower()]), line


def test_the_changelog_has_this_version_and_what_comes_next() -> None:
    sections = re.findall(r"^## (\S+)", read("CHANGELOG.md"), re.MULTILINE)
    assert sections[0] == "Unreleased" and mhsa_cli.__version__ in sections
    newest = re.search(r"^## (\d\S+) - \d{4}-\d\d-\d\d\n(.*?)^## ", read("CHANGELOG.md"), re.MULTILINE | re.DOTALL)
    assert newest and newest[1] == mhsa_cli.__version__ and newest[2].count("\n") <= 90
    assert re.findall(r"^### (.+)$", newest[2], re.MULTILINE)[0] == "Breaking changes"
    assert set(re.findall(r"`mhsa ([a-z][\w-]*)", newest[2])) <= set(COMMANDS)


def test_ci_runs_the_whole_check_on_the_oldest_python() -> None:
    [job] = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert PROJECT["project"]["requires-python"] == f">={job['strategy']['matrix']['python'][0]}"


def test_the_map_draws_the_walls_that_are_tested() -> None:
    [drawn] = re.findall(r"```text\n(.*?)```", MAP, re.DOTALL)
    walls = {line.split()[0]: set(line.split()[1:]) for line in drawn.splitlines()}
    assert walls == {room: allowed - {room} for room, allowed in ROOMS.items() if room != "__init__"}


def test_the_map_lists_the_libraries_of_the_rooms() -> None:
    rows = [line.strip("|").split("|") for line in MAP.splitlines() if line.startswith("| `")]
    told = {room: set(re.findall(r"\w+", row[2])) for row in rows for room in re.findall(r"`(\w+)[/.]", row[0])}
    names = {"PIL": "Pillow", "pydantic_core": "pydantic"}
    rooms = {room: {names.get(n, n) for n, where in LIBRARIES.items() if room in where} for room in told}
    assert told == rooms


def defined(file: Path) -> set[str]:
    """List the functions and classes of a file, methods as `Class.method`."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def test_the_map_names_what_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)(?:: ([\w., ]+))?`", MAP)
    assert len(re.findall(r"^## From ", MAP, re.MULTILINE)) == 4 and len(named) > 50
    for path, names in named:
        if path.startswith("tests/"):
            assert (ROOT / path).is_file()
        else:
            assert set(filter(None, names.split(", "))) <= defined(PACKAGE / path), path


@pytest.mark.parametrize("goal", ["demo", "lesson"])
def test_make_says_what_it_installs_and_how_a_shell_finds_the_command(goal: str, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    command = ["make", "-n", "--no-print-directory", goal, f"VENV={venv}"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S603
    pip = next(number for number, line in enumerate(lines) if "pip install" in line)
    assert lines[pip - 1].startswith(f'echo "installing into {venv}: ')
    assert "mhsa train" in lines[-2] and lines[-1].startswith("echo ") and f"source {venv}/bin/activate" in lines[-1]
