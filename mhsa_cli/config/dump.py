"""A config as YAML, the annotated template, and the JSON schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mhsa_cli.config.fields import SWEEP
from mhsa_cli.config.grid import SEEDS
from mhsa_cli.config.ranges import KEYS, SCALES, Range
from mhsa_cli.config.scalars import resolve, write
from mhsa_cli.config.schema import Config, ModelConfig, TrainConfig
from mhsa_cli.config.section import Section

# Settings that are filled in from the file of a task where they are left out.
FROM_FILES = {"Rows": ("seq_len",), "OwnTask": ("vocab_size", "seq_len")}
_HEAD = """\
# A config of mhsa with every default; lines that you do not change can be deleted.
# KEY=VALUE on the command line overrides a line: mhsa train --config FILE model.n_heads=8
"""


_RANGE = {
    "type": "object",
    "properties": {
        "from": {"type": "number"},
        "to": {"type": "number"},
        "steps": {"type": "integer", "minimum": 2},
        "scale": {"enum": list(SCALES), "default": SCALES[0]},
    },
    "required": list(KEYS[:-1]),
    "additionalProperties": False,
}
_SWEEP = {
    "title": "Sweep",
    "type": "object",
    "properties": {"seeds": {"type": "integer", "minimum": 1, "default": SEEDS}},
    "additionalProperties": {"anyOf": [{"type": "array", "minItems": 1}, _RANGE]},
}


def dump_yaml(config: Config) -> str:
    """Write a config as YAML that loads back equal."""
    return _render(config.to_dict(), {})


def changed_settings(config: Config) -> list[tuple[str, str]]:
    """List the task and the settings unlike their defaults, as KEY and VALUE are written on the command line."""
    found = [("task.name", config.task.name)]
    for section, values in config.to_dict().items():
        fields = type(getattr(config, section)).model_fields
        for key, value in values.items():
            field = fields.get(key)
            default = None if field is None or field.is_required() else field.get_default(call_default_factory=True)
            if key != "name" and value != (list(default) if isinstance(default, tuple) else default):
                found.append((f"{section}.{key}", write(value)))
    return found


def dump_sweep(base: Mapping[str, Any], sweep: Mapping[str, Any]) -> str:
    """Write sections and a `sweep` section as YAML that gives the same grid again."""
    sections = {name: values for name, values in base.items() if values}
    return _render({**sections, SWEEP: sweep}, {})


def template() -> str:
    """Write the default config with a description of each line."""
    config = Config()
    schemas: dict[str, type[Section]] = {"task": type(config.task), "model": ModelConfig, "train": TrainConfig}
    notes = {
        (name, key): str(field.description)
        for name, schema in schemas.items()
        for key, field in schema.model_fields.items()
    }
    return _HEAD + "\n" + _render(config.to_dict(), notes)


def _render(data: Mapping[str, Mapping[str, Any]], notes: Mapping[tuple[str, str], str]) -> str:
    lines: list[str] = []
    for section, values in data.items():
        lines.append(f"{section}:")
        for key, value in values.items():
            line = f"  {key}: {value if isinstance(value, Range) else write(value)}"
            note = notes.get((section, key))
            lines.append(f"{line:<32}# {note}" if note else line)
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def plain_sweep(sweep: Mapping[str, Any]) -> dict[str, Any]:
    """Return a `sweep` section as plain data."""
    return {key: _plain(value) if isinstance(value, Range) else value for key, value in sweep.items()}


def _plain(span: Range) -> dict[str, Any]:
    return {"from": resolve(span.first), "to": resolve(span.last), "steps": span.steps, "scale": SCALES[span.log]}


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a config, for editors."""
    schema = Config.model_json_schema()
    schema["properties"][SWEEP] = _SWEEP
    for part in (schema, *schema["$defs"].values()):
        part.pop("description", None)  # the docstring, which `python -OO` drops
    for title, sizes in FROM_FILES.items():
        part = schema["$defs"][title]
        part["required"] = [name for name in part["required"] if name not in sizes]
    return schema
