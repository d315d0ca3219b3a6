"""What run.json and sweep.json may say: each value has its kind, so that whoever reads one need not ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from mhsa_cli.errors import IS, DamageError
from mhsa_cli.text import escape, shortened

LARGEST = (1 << 63) - 1
SHOWN = 40  # characters of a wrong value


class Kind(NamedTuple):
    """A kind of value: what it is called, and whether a value is of it."""

    name: str
    fits: Callable[[Any], bool]


def is_count(value: object) -> TypeGuard[int]:
    """Tell whether a value is a whole number that fits everywhere, and not below 0."""
    return type(value) is int and 0 <= value <= LARGEST


def is_number(value: object) -> TypeGuard[int | float]:
    """Tell whether a value is a number, NaN and infinity among them; JSON's true is none."""
    return type(value) is float or (type(value) is int and abs(value) <= LARGEST)


TEXT = Kind("a text", lambda value: isinstance(value, str))
COUNT = Kind("a whole number from 0 to 2^63 - 1", is_count)
NUMBER = Kind("a number", is_number)
YES_NO = Kind("true or false", lambda value: isinstance(value, bool))
POINT = Kind("a step and a loss", lambda v: isinstance(v, list) and len(v) == 2 and is_count(v[0]) and is_number(v[1]))
SETTINGS = Kind("an object", lambda value: isinstance(value, dict))

# A Kind; a list of such; an object with these keys, each of which may be missing or null, or with any key, "*".
Wanted = Kind | list[Any] | dict[str, Any]
RUN_FACTS: dict[str, Wanted] = {
    **dict.fromkeys(("mhsa", "status", "started", "task", "device", "torch", "cpu", "no_maps"), TEXT),
    **dict.fromkeys(("text_sha256", "weights_sha256", "eval_rows_sha256"), TEXT),
    **dict.fromkeys(("order", "step", "total_steps", "parameters", "seed", "n_heads", "threads"), COUNT),
    **dict.fromkeys(("eval_rows", "eval_rows_seen"), COUNT),
    "seconds": NUMBER,
    "command": [TEXT],
    "chance": {"loss": NUMBER, "accuracy": NUMBER},
    "final": {"eval_loss": NUMBER, "eval_accuracy": NUMBER, "step": COUNT},
    "changes": [{"step": COUNT, "settings": [TEXT]}],
    "attention": {"file": TEXT, "name": TEXT, "sha256": TEXT},
    "sweep": {
        **dict.fromkeys(("cell", "seed", "steps_to_target"), COUNT),
        **dict.fromkeys(("labels", "label_ids"), [TEXT]),
        "curve": [POINT],
        "message": TEXT,
        "cause": TEXT,
        "again": YES_NO,
    },
    "files": {"*": {"size": COUNT, "sha256": TEXT}},
}
SWEEP_FACTS: dict[str, Wanted] = {
    "command": [TEXT],
    "target": NUMBER,
    "started": NUMBER,
    "attention": {"*": TEXT},
    "texts": {"*": TEXT},
    "cells": [{"overrides": {"*": TEXT}, "config": SETTINGS, "seeds": COUNT}],
}


def shown(value: Any) -> str:
    """Write a wrong value for a message: short, and on any terminal."""
    return shortened(repr(value), SHOWN)


def check_facts(content: Mapping[str, Any], facts: Mapping[str, Wanted], path: Path, hint: str) -> None:
    """Refuse a document in which a value is of another kind than it should be. Raises: DamageError."""
    for where, value, wanted in _wrong(content, dict(facts), ""):
        raise DamageError((path, IS, f"damaged: {where} is {shown(value)}, expected {wanted}"), hint, "value")


def _wrong(value: Any, wanted: Wanted, where: str) -> Iterator[tuple[str, Any, str]]:
    """Yield each value that is of the wrong kind, with its place and what was wanted there."""
    if isinstance(wanted, Kind):
        if not wanted.fits(value):
            yield where, value, wanted.name
    elif isinstance(wanted, list):
        if not isinstance(value, list):
            yield where, value, "a list"
            return
        for number, item in enumerate(value):
            yield from _wrong(item, wanted[0], f"{where}[{number}]")
    elif not isinstance(value, dict):
        yield where, value, "an object"
    else:
        for key, item in value.items():
            own = wanted.get(key, wanted.get("*"))
            if own is not None and (item is not None or "*" in wanted):
                yield from _wrong(item, own, f"{where}.{escape(key)}" if where else escape(key))
