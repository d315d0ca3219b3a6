"""The recipes: ready configs, and the tasks they name, installed with the package and found from any folder."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path

from mhsa_cli.config.spelling import nearest

FOLDER = Path(__file__).parents[1] / "configs"
_ENDINGS = (".yaml", ".yml")


def recipes() -> dict[str, Path]:
    """List the recipes by name, each with its file."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def summary(recipe: Path) -> str:
    """Return the first sentence of a recipe, which its first line begins with, without the full stop."""
    first = recipe.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return re.split(r"\. (?=[A-Z])", first)[0].removesuffix(".")  # not at "et al. 2024"


def find(given: str) -> str:
    """Return the path of the recipe of this name; `given` itself if there is such a file, or no such recipe."""
    if os.path.lexists(given) and not Path(given).is_dir():
        return given
    return str(recipes().get(given, given))


def installed(file: str) -> Path | None:
    """Return the file installed with the recipes that a path names, from their folder or from here; None: none."""
    for path in (FOLDER / file, Path(file)):
        if os.path.isfile(path) and path.resolve().is_relative_to(FOLDER.resolve()):  # noqa: PTH113
            return path
    return None


def nearest_recipes(given: str) -> list[str]:
    """List the recipes that a wrong path may mean: the one of this name in another folder, or the nearest names."""
    names = list(recipes())
    name = Path(given).name
    stem = next((name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending)), name)
    close = nearest(stem, names, 3)
    return [close] if close else get_close_matches(stem, names, n=3)
