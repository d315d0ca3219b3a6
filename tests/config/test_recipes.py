"""The recipes: where they are found, by which names, and what a wrong path is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mhsa_cli.config import recipes as room
from mhsa_cli.config.load import load_config
from mhsa_cli.config.problems import ConfigError
from mhsa_cli.config.recipes import nearest_recipes, recipes, summary

ROOT = Path(__file__).parents[2]


def test_every_ready_config_is_a_recipe_with_a_sentence() -> None:
    found = recipes()
    assert {path.name for path in found.values()} == {path.name for path in (ROOT / "configs").glob("*.yaml")}
    for name, path in found.items():
        told = summary(path)
        assert 10 < len(told) <= 120 and path.read_text(encoding="utf-8").startswith(f"# {told}."), name
    assert len({summary(path) for path in found.values()}) == len(found)


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_is_found_from_any_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = load_config(str(ROOT / "configs" / f"{name}.yaml"))
    monkeypatch.chdir(tmp_path)
    assert load_config(name) == wanted
    Path(name).mkdir()  # a folder is no config
    assert load_config(name) == wanted


def test_a_file_goes_before_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("copy").write_text("model: {n_heads: 2}")
    assert load_config("copy").task.name == "repeat" and load_config("copy").model.n_heads == 2
    Path("copy").write_text("model: {n_heads: two}")
    with pytest.raises(ConfigError):
        load_config("copy")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("configs/copy.yaml", "copy"), ("copy.yml", "copy"), ("coppy", "copy"), ("../gpt-block.yaml", "gpt_block"),
        ("induct.yaml", "induction"), ("Rope", "rope"),
    ],
)  # fmt: skip
def test_a_wrong_path_gets_the_nearest_recipe(given: str, meant: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert nearest_recipes(given)[0] == meant
    with pytest.raises(ConfigError) as caught:
        load_config(given)
    [problem] = caught.value.problems
    assert problem.code == "no-file" and f"`{meant}`" in str(problem.hint)


def test_a_path_near_to_none_gets_none_and_a_lost_folder_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nearest_recipes("my-own-experiment.yaml") == []
    monkeypatch.setattr(room, "FOLDER", Path("nowhere"))
    assert recipes() == {} and nearest_recipes("copy") == []


GALLERY = ROOT / "docs" / "gallery"
PAGE = (GALLERY / "index.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| \[[^]]+\]\(#([\w-]+)\) \| .+? \| ([\d,]+) \| .+ \| (.+) \|$", PAGE, re.MULTILINE)
ENTRIES = {
    re.sub(r"[^\w -]", "", title).lower().replace(" ", "-"): text
    for title, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
FIGURE = re.compile(r"\d\.\d{3,4}\b|[\d.]+%")


def head_of(name: str) -> str:
    """Read the first lines of a recipe, as one line."""
    return recipes()[name].read_text(encoding="utf-8").partition("\n\n")[0].replace("\n#  ", "")


@pytest.mark.parametrize(("entry", "seconds", "ours"), ROWS, ids=[row[0] for row in ROWS])
def test_an_entry_of_the_gallery_has_the_figures_of_its_config(entry: str, seconds: str, ours: str) -> None:
    text = ENTRIES[entry]
    commands = re.findall(r"^(?:\$ )?mhsa train -c (\w+)(.*?) --name \w+$", text, re.MULTILINE)
    for name, settings in commands:
        assert load_config(name, settings.split())
    [[said, figures]] = re.findall(r"\*\*Ours\*\* \(([\d,]+) s\): (.+?)\n\n", text, re.DOTALL)
    assert said == seconds
    head = head_of(commands[0][0])
    assert FIGURE.search(ours)
    for figure in FIGURE.findall(ours):
        assert figure in figures, figure
    for figure in FIGURE.findall(figures):
        assert figure in head, figure
    for baseline, loss in re.findall(r"_([^_]+)_ (\d\.\d{3})\b", figures):
        assert f"{baseline}: {loss}" in head, baseline


def test_the_gallery_has_every_entry_in_its_table_and_every_picture_on_its_page() -> None:
    assert [entry for entry, *_ in ROWS] == list(ENTRIES)
    shown = re.findall(r"!\[[^]]{20,}\]\(images/([^)]+)\)", PAGE)
    assert sorted(shown) == sorted(path.name for path in (GALLERY / "images").iterdir())
    drawn = re.findall(r"^mhsa .* -o (\S+)$|`mhsa [^`]* -o (\S+)`", PAGE, re.MULTILINE)
    assert sorted(shown) == sorted(a or b for a, b in drawn)
    assert sum(path.stat().st_size for path in (GALLERY / "images").iterdir()) < 2_500_000


def test_every_task_that_is_installed_as_a_file_is_in_the_gallery() -> None:
    trained = set(re.findall(r"mhsa train -c (\w+)", PAGE))
    assert trained >= {path.stem for path in (ROOT / "configs" / "tasks").glob("*.py")}
