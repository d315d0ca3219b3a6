"""The fields of the schema by their dotted keys, and the values each takes, in words."""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from mhsa_cli.config.problems import clip
from mhsa_cli.config.scalars import NULLS
from mhsa_cli.config.schema import ModelConfig, TrainConfig
from mhsa_cli.config.section import Expected
from mhsa_cli.config.tasks import TASK_SCHEMAS
from mhsa_cli.config.yaml_events import Path

SWEEP = "sweep"  # the section of a file whose keys are those of the others, with several values


@cache
def _fields() -> dict[str, list[FieldInfo]]:
    """Return the fields of every dotted key; a key of tasks has one for each task."""
    found: dict[str, list[FieldInfo]] = {}
    tasks = [("task", schema) for schema in TASK_SCHEMAS.values()]
    for section, schema in [*tasks, ("model", ModelConfig), ("train", TrainConfig)]:
        for name, field in schema.model_fields.items():
            found.setdefault(f"{section}.{name}", []).append(field)
    return found


def all_keys() -> list[str]:
    """List every dotted key, those of all tasks included."""
    return list(_fields())


def field_of(key: str) -> FieldInfo:
    """Return the field of a dotted key; of a task's key, that of the first task that has it."""
    return _fields()[key][0]


def fields_of(key: str) -> list[FieldInfo]:
    """List the fields of a dotted key: of a task's key, one for each task that has it."""
    return _fields()[key]


@cache
def _fields_at(path: Path) -> list[FieldInfo]:
    """Return the fields of the key at `path`; a value of a list in the section `sweep` has its key's."""
    key = ".".join(map(str, path))
    if path[:1] != (SWEEP,):
        return _fields().get(key, [])
    named = [fields for key, fields in _fields().items() if f".{key}".endswith(f".{path[1]}")] if len(path) == 3 else []
    return [field for fields in named for field in fields]


def is_text(path: Path) -> bool:
    """Return whether the key at `path` takes text."""
    return any(base_type(field) is str for field in _fields_at(path))


def reads_text(path: Path, written: str) -> bool:
    """Return whether what is written at a key is text, whatever it looks like; a key that takes null reads it."""
    nullable = any(_unwrap(field)[2] for field in _fields_at(path))
    return is_text(path) and not (nullable and written in NULLS)


def number_kind(key: str) -> type[int] | type[float] | None:
    """Return int or float if the dotted key takes numbers of this kind, else None, also for an unknown key."""
    kinds = [base_type(field) for field in _fields().get(key, ())]
    return next((kind for kind in (int, float) if kind in kinds), None)


def is_list(path: Path) -> bool:
    """Return whether the key at `path` takes a list."""
    return any(get_origin(base_type(field)) is tuple for field in _fields_at(path))


def expected(field: FieldInfo) -> str:
    """Describe the values of a field: `a whole number from 1 to 1,024`."""
    base, metadata, nullable = _unwrap(field)
    words = next((str(item) for item in metadata if isinstance(item, Expected)), None) or _words(base, metadata)
    return words + (", or null" if nullable else "")


def options(field: FieldInfo) -> tuple[str, ...]:
    """List the options of a Literal field; none for any other."""
    base, _, _ = _unwrap(field)
    return tuple(get_args(base)) if get_origin(base) is Literal else ()


def base_type(field: FieldInfo) -> Any:
    """Return the plain type of a field: int, float, bool, str, or the Literal."""
    return _unwrap(field)[0]


def _unwrap(field: FieldInfo) -> tuple[Any, list[Any], bool]:
    base: Any = field.annotation
    metadata, nullable = list(field.metadata), False
    if get_origin(base) in (Union, types.UnionType):
        nullable = type(None) in get_args(base)
        base = next(arg for arg in get_args(base) if arg is not type(None))
    while get_origin(base) is Annotated:
        base, *more = get_args(base)
        for item in more:
            metadata += item.metadata if isinstance(item, FieldInfo) else [item]
    return base, metadata, nullable


def _words(base: Any, metadata: list[Any]) -> str:
    if get_origin(base) is Literal:
        return "one of " + ", ".join(get_args(base))
    if base is bool:
        return "true or false"
    bounds = {
        name: getattr(item, name) for item in metadata for name in ("ge", "gt", "le", "lt") if hasattr(item, name)
    }
    if base is int:
        return f"a whole number from {bounds['ge']} to {_number(bounds['le'])}"
    if base is float:
        low = f"from {bounds['ge']}" if "ge" in bounds else f"above {bounds['gt']}"
        high = f"at most {_number(bounds['le'])}" if "le" in bounds else f"below {bounds['lt']}"
        return f"a finite number {low}, {high}"
    return "text"


def _number(value: float) -> str:
    if value >= 2**62:
        return "2**63 - 1"
    return f"{int(value):,}" if value == int(value) else str(value)


def describe(value: Any) -> str:
    """Describe a value that was found."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f"the text `{clip(value)}`"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "a mapping"
    return f"`{clip(str(value))}`"
