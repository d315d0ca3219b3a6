"""The libraries that mhsa-cli asks for, against the versions that its metadata allow, and its extras."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version

from mhsa_cli.jobs.doctor.imports import TORCH, Imports
from mhsa_cli.records.doctor import Check

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


def checks(found: Imports) -> Iterator[Check]:
    """Examine every library, then every extra."""
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

    left, right = numbers(found), numbers(least)
    longest = max(len(left), len(right))
    return left + [0] * (longest - len(left)) < right + [0] * (longest - len(right))


def _library(name: str, least: str | None, found: Imports) -> Check:
    module = OTHER_NAMES.get(name, name)
    have = _version(name) or found.versions.get(module)
    wanted = f" (wanted: {least} or newer)" if least else ""
    facts = {"version": have, "least": least}
    if name == TORCH and (name not in found.versions or name in found.crashed):  # a check of its own
        return Check(f"{name}-version", "libraries", f"{have}{wanted}", facts, minor=True)
    if module in found.missing:
        return Check(name, "libraries", f"not installed{wanted}", facts, "library-missing")
    if why := found.failed.get(module) or found.crashed.get(module):
        return Check(name, "libraries", why, {**facts, "error": why}, "library-failed")
    own = f"{name}-version" if name == TORCH else name
    if have and least and is_older(have, least):
        return Check(own, "libraries", f"{have}{wanted}", facts, "library-old")
    return Check(own, "libraries", f"{have}{wanted}", facts, minor=True)


def _extra(name: str, wanted: Sequence[re.Match[str]]) -> Check:
    versions = {match["name"]: _version(match["name"]) for match in wanted}
    installed = bool(versions) and all(versions.values())
    facts = {"extra": name, "installed": installed, "versions": versions, "for": EXTRAS[name]}
    old = [m for m in wanted if (have := versions[m["name"]]) and m["least"] and is_older(have, m["least"])]
    have = ", ".join(f"{library} {found}" for library, found in versions.items() if found)
    if installed and old:
        least = ", ".join(f"{m['name']} {m['least']}" for m in old)
        return Check(f"extra-{name}", "libraries", f"{have} (wanted: {least} or newer)", facts, "extra-old")
    value = f"{have}, for {EXTRAS[name]}" if installed else f"not installed, for {EXTRAS[name]}"
    return Check(f"extra-{name}", "libraries", value, facts, minor=True)
