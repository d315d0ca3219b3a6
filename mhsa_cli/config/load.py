"""Load a config from a file and overrides, or report all its problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from mhsa_cli.config import overrides as changes
from mhsa_cli.config import pydantic_errors
from mhsa_cli.config.fields import SWEEP
from mhsa_cli.config.problems import ConfigError, clip
from mhsa_cli.config.reader import read_document, read_file
from mhsa_cli.config.schema import Config
from mhsa_cli.config.tasks import schema_of, task_name
from mhsa_cli.config.yaml_events import INVALID, Document, Path


def load_config(path: str | None, overrides: Sequence[str] = (), *, files: bool = True) -> Config:
    """Read a config file (None: all defaults), apply `KEY=VALUE` overrides, and check everything.

    With `files` the file of custom attention must exist; it is not run. Raises: ConfigError with all problems.
    """
    return _validate(read_file(path), overrides, files)


def parse(data: bytes, name: str, overrides: Sequence[str] = (), *, files: bool = False) -> Config:
    """Read a config from the bytes of a file called `name`. Raises: ConfigError with all problems."""
    return _validate(read_document(data, name), overrides, files)


def _validate(document: Document, overrides: Sequence[str], files: bool) -> Config:
    changes.apply(document, overrides)
    return check(document, files=files)


def check(document: Document, *, files: bool = True) -> Config:
    """Check a document; an empty section is all defaults. Raises: ConfigError, with the problems of reading, too."""
    for section in ("task", "model", "train"):
        if document.data.get(section, {}) is None:
            document.data[section] = {}
    problems = list(document.problems)
    if (SWEEP,) in document.keys and document.data.pop(SWEEP, None) is not None:
        message = f"`{SWEEP}` has several values for a setting, a training has one"
        hint = f"train all: mhsa sweep --config {clip(document.source.name)}\nor delete the section to train the rest"
        problems.append(document.keys[(SWEEP,)].problem("sweep", message, hint))
    data, odd = _without_odd_keys(document.data)
    problems += [problem for path in odd if (problem := pydantic_errors.unknown(path, document)) is not None]
    try:
        config = Config.model_validate(data, context={"seq_len": _seq_len(document.data), "files": files})
    except ValidationError as error:
        found = (pydantic_errors.problem(item, document) for item in error.errors(include_url=False))
        problems += [problem for problem in found if problem is not None]
        raise ConfigError(problems) from None
    if problems:
        raise ConfigError(problems)
    return config


def _without_odd_keys(data: dict[str, Any]) -> tuple[dict[str, Any], list[Path]]:
    """Remove keys with a lone surrogate, for which pydantic rejects the whole mapping; also return their paths."""
    kept: dict[str, Any] = {}
    odd: list[Path] = []
    for key, value in data.items():
        if not _is_unicode(key):
            odd.append((key,))
        elif isinstance(value, dict):
            odd += [(key, inner) for inner in value if not _is_unicode(inner)]
            kept[key] = {inner: item for inner, item in value.items() if _is_unicode(inner)}
        else:
            kept[key] = value
    return kept, odd


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _seq_len(data: dict[str, Any]) -> int | None:
    """Return the task's seq_len if it is known, even if the task has problems."""
    task = data.get("task", {})
    schema = schema_of(task_name(task))
    if task is INVALID or not isinstance(task, dict) or schema is None:
        return None
    value = task.get("seq_len", schema.model_fields["seq_len"].default)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
