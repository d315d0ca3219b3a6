"""KEY=VALUE from the command line: the same words, rules and errors as in the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mhsa_cli.config.aliases import list_keys, setting
from mhsa_cli.config.problems import ConfigError, Mark, Problem, Source, clip
from mhsa_cli.config.pydantic_errors import all_keys
from mhsa_cli.config.reader import read_value
from mhsa_cli.config.yaml_events import Document

EXAMPLE = "for example train.lr=1e-3 or n_heads=8"
_KEY = re.compile(r"[A-Za-z_.][\w.-]*=", re.ASCII)


def is_override(argument: str) -> bool:
    """Tell `KEY=VALUE` from a file name. A file with `=` in its name is written `./a=b.yaml`."""
    return _KEY.match(argument) is not None


@dataclass(frozen=True, slots=True)
class Override:
    """One `KEY=VALUE`, read: the path of its key, the place of the key, and the value as a document of its own."""

    path: tuple[str, ...]
    key: Mark
    value: Document


def apply(document: Document, overrides: Sequence[str]) -> None:
    """Put the overrides into the document. A key that is set twice, by whatever spelling, is a problem of it."""
    first: dict[tuple[str, ...], str] = {}
    for text in overrides:
        try:
            override = read(text)
        except ConfigError as error:
            document.problems.extend(error.problems)
            continue
        if override.path in first:
            key, before = ".".join(override.path), first[override.path]
            document.problems.append(set_twice(override.key, key, before, "keep one of them"))
            continue
        first[override.path] = text
        put(document, override)


def set_twice(mark: Mark, key: str, before: str, hint: str) -> Problem:
    """Say that an argument sets a key that `before`, given earlier, sets already."""
    return mark.problem("set-twice", f"`{clip(key)}` is set already, by `{clip(before)}`", hint)


def read(text: str) -> Override:
    """Read `KEY=VALUE`; a value that is no YAML, a section, or no `=` at all are refused.

    Raises: ConfigError. What is wrong with a value that can be read around stands in its document's problems.
    """
    source = Source(text, [text], override=True)
    key, equals, value = text.partition("=")
    whole = Mark(source, 1, 1, max(1, len(key)))
    if not equals or not key.strip():
        what = "wanted KEY=VALUE" + (", found nothing before the `=`" if equals else "")
        raise whole.error("override", what, EXAMPLE)
    if not all(part.strip() for part in key.split(".")):
        raise ConfigError([_gap(key.strip(), value, whole)])
    path = resolve_key(key.strip(), all_keys(), whole)
    if len(path) == 1 and path[0] in ("task", "model", "train"):
        example = {"task": "name=copy", "model": "d_model=64", "train": "lr=1e-3"}[path[0]]
        message = f"`{path[0]}` is a section: its keys are set one by one"
        raise whole.error("section", message, f"for example {path[0]}.{example}")
    return Override(path, whole, read_value(value, source, len(key) + 2, path))


def _gap(key: str, value: str, mark: Mark) -> Problem:
    """Say which name is missing beside a dot, and write the key out where the other name tells which is meant."""
    keys = all_keys()
    names = [part for part in key.split(".") if part.strip()]
    missing = "section before" if key.startswith(".") else "key behind" if key.endswith(".") else "name at"
    inside = [name for name in keys if names and name.startswith(f"{names[0]}.")]
    if key.endswith(".") and inside:
        hint = list_keys(inside)
    elif names and (meant := setting(names[-1], keys)):
        hint = f"write {meant}={clip(value)}"
    else:
        hint = EXAMPLE
    return mark.problem("override", f"`{clip(key)}`: the {missing} the dot is missing", hint)


def put(document: Document, override: Override) -> None:
    """Put one override into the document, in place of what the document says of that key."""
    path, value = override.path, override.value
    home = document.data
    for part in path[:-1]:
        if home.get(part) is None:
            home[part] = {}
        home = home[part]
        if not isinstance(home, dict):  # the file's fault, which the schema will name
            return
    for table in (document.marks, document.keys):  # what was wrong with the value that is replaced is still said
        for known in [known for known in table if known[: len(path)] == path]:
            del table[known]
    document.bad = {known for known in document.bad if known[: len(path)] != path} | value.bad
    home[path[-1]] = value.data
    document.marks.update(value.marks)
    document.keys.update({**value.keys, path: override.key})
    document.problems.extend(value.problems)


def resolve_key(key: str, keys: Sequence[str], mark: Mark) -> tuple[str, ...]:
    """Find the path of a key: `train.lr`, or a bare name that only one section has.

    Raises: ConfigError for a bare name that several sections have. Unknown names are left to the schema.
    """
    if "." in key:
        return tuple(key.split(".", 1))
    homes = [dotted for dotted in keys if dotted.rpartition(".")[2] == key]
    if len(homes) > 1:
        names = " or ".join(f"`{dotted}`" for dotted in homes)
        raise mark.error("ambiguous", f"`{clip(key)}` could be {names}", "write the whole name")
    return tuple(homes[0].split(".")) if homes else (key,)
