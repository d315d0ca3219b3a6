"""Settings as they are written in Python, turned into a config file and KEY=VALUE."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mhsa_cli.config.fields import all_keys, is_list
from mhsa_cli.config.ranges import KEYS
from mhsa_cli.config.recipes import recipes
from mhsa_cli.config.scalars import write
from mhsa_cli.config.tasks import TASK_SCHEMAS
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.text import escape

Source = str | os.PathLike[str] | None  # a config file, or the name of a task
Settings = Mapping[str, Any] | None


def config_and_changes(
    source: Source, settings: Settings, more: Mapping[str, Any], *, grid: bool = False
) -> tuple[str | None, list[str]]:
    """Return the config file, or None, and all settings as KEY=VALUE; the config checks keys and values.

    With `grid` a list holds the values of an axis, a mapping a range. Raises: UsageError for a value that no setting
    takes.
    """
    if not isinstance(source, str | os.PathLike | None):
        hint = 'write it in a file, and name that: "mine.py:MyTask"' if callable(source) else None
        raise UsageError(f"found a {type(source).__name__}, wanted a config, a recipe or a task by its name", hint)
    config = os.fspath(source) if source is not None and is_config(source) else None
    task = [] if source is None or config is not None else [_setting("task.name", os.fspath(source), grid=False)]
    pairs = [*(settings or {}).items(), *more.items()]
    return config, [*task, *(_setting(str(key), value, grid) for key, value in pairs)]


def is_config(source: str | os.PathLike[str]) -> bool:
    """Return whether a config file or recipe is meant: by its ending, or as there is one; a task's name is none."""
    path, name = Path(source), os.fspath(source)
    return path.suffix.lower() in (".yaml", ".yml") or (
        name not in TASK_SCHEMAS and (path.is_file() or name in recipes())
    )


def check_kinds(kinds: Mapping[str, tuple[Any, type, str]]) -> None:
    """Check arguments that are no settings: each with its value, its type and that in words. Raises: UsageError."""
    for name, (value, kind, words) in kinds.items():
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise unwanted(name, repr(value), words)


def command_line(name: str, config: str | None, changes: Sequence[str]) -> list[str]:
    """Return the command with the same config and settings, for the records of a run."""
    return ["mhsa", name, *([] if config is None else ["--config", config]), *changes]


def _setting(key: str, value: Any, grid: bool) -> str:
    takes_list = any(is_list(tuple(known.split("."))) for known in all_keys() if key in (known, known.split(".")[1]))
    if grid and isinstance(value, Mapping):
        return f"{key}={_range(key, value)}"
    value = plain_value(key, value)
    is_axis = grid and isinstance(value, list) and not (takes_list and not any(isinstance(one, list) for one in value))
    if is_axis and not value:
        raise unwanted(key, "[]", "one value or more")
    return f"{key}={','.join(map(write, value)) if is_axis else write(value)}"


def _range(key: str, value: Mapping[str, Any]) -> str:
    """Write a range as on the command line. Raises: UsageError."""
    given = {name: plain_value(f"{key}[{name!r}]", one) for name, one in value.items()}
    if not {*KEYS[:-1]} <= given.keys() or not given.keys() <= {*KEYS}:
        raise unwanted(key, repr(dict(value)), '{"from": 1e-3, "to": 1e-2, "steps": 5, "scale": "log"}')
    scale = f":{given['scale']}" if "scale" in given else ""
    return f"{write(given['from'])}..{write(given['to'])}:{write(given['steps'])}{scale}"


def plain_value(key: str, value: Any) -> Any:
    """Turn a value into plain data, also a number of NumPy or torch. Raises: UsageError."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if callable(getattr(value, "item", None)):  # a number of NumPy is a float, too, with a repr of its own
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | range):
        return [plain_value(key, one) for one in value]
    raise UsageError(f"{escape(key)}: found a {type(value).__name__}, wanted a number, text, bool, None or a list")
