"""The tasks by name, each with its description and settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from mhsa_cli.config.dump import FROM_FILES
from mhsa_cli.config.tasks import TASK_SCHEMAS


class Setting(NamedTuple):
    """A setting of a task; one without a default is required."""

    default: Any
    description: str
    required: bool


class TaskSettings(NamedTuple):
    """What a task asks for, and its settings by name."""

    description: str
    settings: Mapping[str, Setting]


def _read(schema: Any) -> TaskSettings:
    filled_in = FROM_FILES.get(schema.__name__, ())
    fields = {
        name: Setting(
            None if field.is_required() else field.default,
            field.description,
            field.is_required() and name not in filled_in,
        )
        for name, field in schema.model_fields.items()
        if name != "name"
    }
    return TaskSettings(schema.model_fields["name"].description, fields)


tasks: Mapping[str, TaskSettings] = MappingProxyType({name: _read(schema) for name, schema in TASK_SCHEMAS.items()})
