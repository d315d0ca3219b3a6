"""A condition on a config: `n_heads=8`, with the keys and values of an override, and commas between alternatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from mhsa_cli.config.aliases import suggest
from mhsa_cli.config.fields import all_keys, describe, expected, fields_of, options
from mhsa_cli.config.overrides import Override, is_override, read, split_values
from mhsa_cli.config.own_task import is_own
from mhsa_cli.config.problems import ConfigError, clip
from mhsa_cli.config.schema import Config
from mhsa_cli.config.spelling import did_you_mean


@dataclass(frozen=True, slots=True)
class Condition:
    """A setting, as section and key, and the values that satisfy the condition."""

    section: str
    key: str
    values: tuple[Any, ...]

    def holds(self, config: Config) -> bool:
        """Return whether a config has one of the values; not if its task lacks the setting."""
        section = getattr(config, self.section)
        known = self.key in type(section).model_fields or self.key in (section.model_extra or {})
        return known and getattr(section, self.key) in self.values


def read_condition(text: str) -> Condition | None:
    """Read `KEY=VALUE` or `KEY=VALUE,VALUE`; None if the text is neither. Raises: ConfigError."""
    if not is_override(text):
        return None
    key, _, values = text.partition("=")
    read_values = [read(f"{key}={value}") for _, value in split_values(values)]
    path = read_values[0].path
    return Condition(path[0], path[-1], tuple(map(_value, read_values)))


def _value(one: Override) -> Any:
    """Return the value as a config holds it. Raises: ConfigError if no config can have it."""
    if one.value.problems:
        raise ConfigError(one.value.problems)
    dotted, value = ".".join(one.path), one.value.data
    if dotted == "task.name" and isinstance(value, str) and is_own(value):
        return value
    if dotted not in all_keys():
        hint = suggest(one.path[-1], ".".join(one.path[:-1]), all_keys(), value)
        if one.path[0] == "task" and hint.kind == "keys":
            return value  # it may be a setting of somebody's own task
        raise one.key.error("unknown-key", f"unknown key `{clip(dotted)}`", hint.text)
    fields = fields_of(dotted)
    for field in fields:
        try:
            kind: Any = Annotated[field.annotation, field]
            return TypeAdapter(kind).validate_python(value, strict=True)
        except ValidationError:
            continue
    choices = [choice for field in fields for choice in options(field)]
    wanted = f"one of {', '.join(choices)}" if len(fields) > 1 and choices else expected(fields[0])
    mark = one.value.marks.get(one.path, one.key)
    raise mark.error(
        "value", f"`{dotted}`: found {describe(value)}, wanted {wanted}", did_you_mean(str(value), choices)
    )
