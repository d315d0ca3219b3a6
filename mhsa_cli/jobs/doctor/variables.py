"""Environment variables beside what they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def chosen_of(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Pick the variables of these names that are set to something."""
    return {name: environ[name] for name in names if environ.get(name)}


def with_chosen(value: str, chosen: Mapping[str, str]) -> str:
    """Add variables to the value of a check."""
    return ", ".join([value, *(f"{name}={text}" for name, text in chosen.items())])
