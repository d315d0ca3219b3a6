"""The libraries that mhsa-cli asks for, against the versions that its metadata allow, its extras and its recipes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import zip_longest

from mhsa_cli.config.recipes import recipes
from mhsa_cli.jobs.doctor.imports import TORCH, Imported
from mhsa_cli.records.doctor import Check
from mhsa_cli.text import plural

DISTRIBUTION = "mhsa-cli"
OTHER_NAMES = {"pyyaml": "yaml"}  # of a module, where it is not that of its library
LIBRARIES = ("numpy", "scipy", "typer", "rich", "pyyaml", "pydantic", "safetensors", "psutil", TORCH)
MODULES = tuple(OTHER_NAMES.get(name, name) for name in LIBRARIES)  # in the order in which they are imported
# What each extra is for; those of developers are not listed.
EXTRAS = {
    "png": "-o FILE.png",
    "plots": "figures: -o FILE.pdf",
    "notebook": "tables as DataFrames",
    "tui": "mhsa explore",
    "tensorboard": "mhsa export --to tensorboard",
    "ray": "mhsa sweep --engine ray",
}
_WANTED = re.compile(
    r"(?P<name>[\w.-]+) *\(?(?:>= *(?P<least>[\w.]+))?\)?(?: *; *extra *== *['\"](?P<extra>\w+)['\"])?$"
)


def checks(found: Mapping[str, Imported]) -> Iterator[Check]:
    """Examine every library, then every extra, then the recipes."""
    lines = _requirements()
    if lines is None:
        yield Check("metadata", "libraries", f"{DISTRIBUTION} is not installed", {}, "no-metadata")
        lines = list(LIBRARIES)
    wanted = [match for line in lines if (match := _WANTED.match(line))]
    every = [_library(match["name"].lower(), match["least"], found) for match in wanted if not match["extra"]]
    good = sum(check.state == "ok" for check in every)
    facts = {check.id: check.facts["version"] for check in every}
    yield Check("libraries", "libraries", f"{good} of {len(every)} in the wanted versions", facts)
    yield from every
    extras = [_extra(name, [match for match in wanted if match["extra"] == name]) for name in EXTRAS]
    here = [check.facts["extra"] for check in extras if check.facts["installed"]]
    missing = [name for name in EXTRAS if name not in here]
    value = "; ".join([", ".join(here) or "none", *([f"not installed: {', '.join(missing)}"] if missing else [])])
    yield Check("extras", "libraries", value, {"installed": here, "missing": missing})
    yield from extras
    count = len(recipes())
    fault = None if count else "no-recipes"
    yield Check("recipes", "libraries", plural(count, "recipe"), {"count": count}, fault, minor=True)


def _requirements() -> Sequence[str] | None:
    try:
        return requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def is_older(found: str, least: str) -> bool:
    """Return whether a version comes before another, by the numbers that it begins with."""

    def numbers(text: str) -> list[int]:
        begun = re.match(r"\d+(\.\d+)*", text)
        return [int(part) for part in begun[0].split(".")] if begun else []

    pairs = zip_longest(numbers(found), numbers(least), fillvalue=0)
    return next((left < right for left, right in pairs if left != right), False)


def _library(name: str, least: str | None, found: Mapping[str, Imported]) -> Check:
    module = OTHER_NAMES.get(name, name)
    imported = found.get(module, Imported())
    have = _version(name) or imported.version or None
    value = f"{have or 'not installed'}{_wanted(least)}"
    facts = {"version": have, "least": least}
    if name == TORCH:  # whether it can be imported is a check of its own
        name, imported = f"{TORCH}-version", Imported()
    if imported.missing:
        return Check(name, "libraries", f"not installed{_wanted(least)}", facts, "library-missing")
    if imported.error is not None:
        return Check(name, "libraries", imported.error, {**facts, "error": imported.error}, "library-failed")
    old = have and least and is_older(have, least)
    return Check(name, "libraries", value, facts, "library-old" if old else None, minor=True)


def _wanted(versions: str | None) -> str:
    return f" (wanted: {versions} or newer)" if versions else ""


def _extra(name: str, wanted: Sequence[re.Match[str]]) -> Check:
    versions = {match["name"]: _version(match["name"]) for match in wanted}
    installed = bool(versions) and all(versions.values())
    facts = {"extra": name, "installed": installed, "versions": versions, "for": EXTRAS[name]}
    old = [m for m in wanted if (have := versions[m["name"]]) and m["least"] and is_older(have, m["least"])]
    have = ", ".join(f"{library} {found}" for library, found in versions.items() if found)
    if installed and old:
        least = ", ".join(f"{m['name']} {m['least']}" for m in old)
        return Check(f"extra-{name}", "libraries", f"{have}{_wanted(least)}", facts, "library-old")
    value = f"{have if installed else 'not installed'}, for {EXTRAS[name]}"
    return Check(f"extra-{name}", "libraries", value, facts, minor=True)
