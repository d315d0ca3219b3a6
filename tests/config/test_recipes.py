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


def test_the_table_of_published_tasks_has_the_figures_of_the_recipes() -> None:
    page = (ROOT / "docs" / "how-to" / "tasks.md").read_text(encoding="utf-8")
    rows = re.findall(r"`mhsa train -c (\w+)` \| ([\d.]+), ([\d.]+)% \| (.+?) \|", page)
    assert {name for name, *_ in rows} == {path.stem for path in (ROOT / "configs" / "tasks").glob("*.py")}
    for name, loss, accuracy, baselines in rows:
        head = recipes()[name].read_text(encoding="utf-8").partition("\n\n")[0].replace("\n#  ", "")
        assert f"{accuracy}%" in head, name
        assert loss in head, name
        for baseline in baselines.split(", "):
            words, _, figure = baseline.rpartition(" ")
            assert f"{words}: {figure}" in head, name


def test_the_recipes_of_others_have_the_figures_of_their_configs() -> None:
    page = (ROOT / "docs" / "gallery" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|.*\| `mhsa train -c (\w+)([^`]*)` \| (.+) \| (.+) \| [^|]+ \|$", page, re.MULTILINE)
    assert len(rows) == page.count("`mhsa train -c")
    for name, settings, *cells in rows:
        assert load_config(name, settings.split())
        head = recipes()[name].read_text(encoding="utf-8").partition("\n\n")[0]
        figures = re.findall(r"\d\.\d{4}|[\d.]+%", " ".join(cells))
        assert figures and all(figure in head for figure in figures), (name, figures)
