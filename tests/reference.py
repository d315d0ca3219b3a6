"""Writes the pages of docs/reference that repeat what the code says: commands.md, settings.md and api.md.

python -m tests.reference [--write]  exit 1 and the names of the pages that differ; --write writes them
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from pydantic.fields import FieldInfo

import mhsa_cli as mhsa
from mhsa_cli.api.shown import ShownGrade, ShownMaps
from mhsa_cli.commands.app import COMMANDS, SECTIONS
from mhsa_cli.config.aliases import ALIASES, SENTENCES
from mhsa_cli.config.axes import SEEDS as SEEDS_KEY
from mhsa_cli.config.dump import FROM_FILES
from mhsa_cli.config.fields import SWEEP, expected
from mhsa_cli.config.grid import SEEDS
from mhsa_cli.config.own_task import OwnTask
from mhsa_cli.config.ranges import FORM, MOST, SCALES
from mhsa_cli.config.scalars import write
from mhsa_cli.config.schema import ModelConfig, TrainConfig
from mhsa_cli.config.section import Section
from mhsa_cli.config.tasks import OWN, TASK_SCHEMAS
from mhsa_cli.errors import MhsaError
from tests.commands.shell import mhsa as run
from tests.commands.walk import functions
from tests.environment import plain

FOLDER = Path(__file__).parents[1] / "docs/reference"
WRITTEN = "<!-- Written by `python -m tests.reference --write`. -->"
COLUMNS, PROSE = 80, 120
EXITS = {
    0: "all went well; of `mhsa check`: every block is right",
    1: "a fault of this program, with a short message; the trace is in a file",
    2: "a wrong command line or config; of `mhsa check`: no block is wrong, but one is not clear",
    3: "a loss or a gradient is not finite",
    4: "a run, a sweep or a checkpoint is missing, damaged, or of a newer format",
    5: "the disk, a permission or the memory refused",
    6: "another process owns the run",
    7: "the answer is no: a wrong block (`mhsa check`), other bits (`mhsa verify --resume-check`), a no to `runs rm`",
    130: "Ctrl-C (129: SIGHUP, 143: SIGTERM); the checkpoint is saved, the command that continues is printed",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def page(*parts: str) -> str:
    """Join the parts of a page, with an empty line between them."""
    return "\n\n".join([*filter(None, parts), WRITTEN]) + "\n"


def prose(*sentences: str) -> str:
    """Break a paragraph into lines."""
    return textwrap.fill(" ".join(sentences), PROSE, break_long_words=False, break_on_hyphens=False)


def block(text: str, language: str = "text") -> str:
    """Fence a text as code."""
    return f"```{language}\n{text.strip()}\n```"


def help_of(*words: str) -> str:
    """Return the help of a command as a terminal of 80 columns shows it."""
    with mock.patch.dict(os.environ, {**plain(), "COLUMNS": str(COLUMNS)}, clear=True):
        return run(*words, "--help").out


def commands() -> str:
    """Write commands.md: the help of every command."""
    words = {name: [one for one, _ in functions() if one[0] == name] for name in COMMANDS}
    parts = [
        "# Commands",
        prose(
            "Each command with its help, as `mhsa COMMAND --help` prints it. `RUN` is a name, a path, or `newest`;",
            "`KEY=VALUE` is one of the [settings](settings.md).",
        ),
        block(help_of()),
    ]
    for heading, section in SECTIONS.items():
        parts.append(f"## {heading}")
        for name in section:
            for one in dict.fromkeys([(name,), *words[name]]):
                parts += [f"### mhsa {' '.join(one)}", block(help_of(*one))]
    codes = table(("code", "meaning"), ((str(code), text) for code, text in EXITS.items()))
    return page(*parts, "## Exit codes", codes, "[Promises](../explanation/promises.md) has the tests of these.")


def default_of(field: FieldInfo, filled_in: bool) -> str:
    """Write the default of a setting."""
    if field.is_required():
        return "from the file" if filled_in else "required"
    value = field.get_default(call_default_factory=True)
    return f"`{write(list(value) if isinstance(value, tuple) else value)}`"


def settings_of(section: str, schema: type[Section]) -> str:
    """Write the table of a section's settings."""
    filled_in = FROM_FILES.get(schema.__name__, ())
    rows = [
        (f"`{section}.{name}`", default_of(field, name in filled_in), expected(field), str(field.description))
        for name, field in schema.model_fields.items()
        if name != "name"
    ]
    return table(("setting", "default", "values", "meaning"), rows)


def settings() -> str:
    """Write settings.md: every setting of a config."""
    parts = [
        "# Settings",
        prose(
            "Every setting of a config. In a YAML file each stands in its section, `task`, `model` or `train`; on the",
            "command line it is `KEY=VALUE`, by its whole name, `model.n_heads=8`, or the last part, `n_heads=8`.",
            "`mhsa config init` writes a file with all defaults, `mhsa config show` prints the settings of a config,",
            "`mhsa config schema` writes the JSON schema for an editor. A value that a setting does not take, or that",
            "does not go with another setting, is an error with its line.",
        ),
        "## task",
        prose(
            f"`task.name` is one of {', '.join(f'`{name}`' for name in TASK_SCHEMAS)}, or a task of yours, `{OWN}`;",
            f"the default is `{next(iter(TASK_SCHEMAS))}`. Each task has its own settings.",
        ),
    ]
    for name, schema in TASK_SCHEMAS.items():
        about = f"{str(schema.model_fields['name'].description).capitalize()}."
        parts += [f"### task: {name}", about, settings_of("task", schema)]
    own = prose(
        "A class or a function in a file. Its other parameters are settings of the task, too:",
        "[Tasks of your own](../how-to/tasks.md).",
    )
    parts += ["### task: your own", own, settings_of("task", OwnTask)]
    parts += ["## model", settings_of("model", ModelConfig), "## train", settings_of("train", TrainConfig)]
    ways = [
        (
            f"`{SWEEP}.{SEEDS_KEY}`",
            f"`{SEEDS}`",
            "a whole number from 1 on",
            "seeds of each setting, from train.seed on",
        ),
        (
            f"`{SWEEP}.KEY`",
            "",
            "`[V1, V2, ...]`",
            "a training for each value of a setting, such as `n_heads: [1, 2, 4]`",
        ),
        (
            f"`{SWEEP}.KEY`",
            "",
            f"`{{from: A, to: B, steps: N, scale: {' | '.join(SCALES)}}}`",
            f"N values from A to B, 2 to {MOST:,} of them; scale is {SCALES[0]} where it is left out",
        ),
    ]
    parts += [
        f"## {SWEEP}",
        prose(
            "The grid of [`mhsa sweep`](commands.md#mhsa-sweep); `mhsa train` refuses a config with it. KEY is any",
            "setting above but `train.seed`. On the command line a list is `KEY=V1,V2`, a range",
            f"`KEY={FORM.split(' or ')[0]}`, with `:log` after it for a logarithmic one.",
        ),
        table(("setting", "default", "values", "meaning"), ways),
        "## Names in other projects",
        "These names are suggested in errors, never applied.",
        table(("setting", "also called"), ((f"`{key}`", names_in(names)) for key, names in ALIASES.items())),
        "Names of other projects without a setting here:",
        table(("name", "instead"), ((names_in(names), text) for names, text in SENTENCES.items())),
    ]
    return page(*parts)


def names_in(text: str) -> str:
    """Write each of some names as code."""
    return ", ".join(f"`{name}`" for name in text.split())


class Bare(str):
    """An annotation that is written without quotes."""

    def __repr__(self) -> str:
        return str(self)


def signature(name: str, function: Any) -> str:
    """Write how a function is called, on one line, or with a line for each parameter."""
    given = inspect.signature(function)
    bare = [
        one.replace(annotation=Bare(one.annotation) if isinstance(one.annotation, str) else one.annotation)
        for one in given.parameters.values()
        if one.name not in ("self", "cls")
    ]
    returned = "" if given.return_annotation in (inspect.Signature.empty, "None") else f" -> {given.return_annotation}"
    line = f"{name}{inspect.Signature(bare)}{returned}"
    if len(line) <= COLUMNS:
        return line
    inner: list[str] = []
    for before, one in zip([None, *bare], bare, strict=False):
        last = None if before is None else before.kind
        if last is one.POSITIONAL_ONLY and one.kind is not last:
            inner.append("/")
        if one.kind is one.KEYWORD_ONLY and last not in (one.KEYWORD_ONLY, one.VAR_POSITIONAL):
            inner.append("*")
        inner.append(str(one))
    return f"{name}(\n" + "".join(f"    {part},\n" for part in inner) + f"){returned}"


def members(kind: type, of: str) -> tuple[list[str], list[str]]:
    """Write the public properties and methods that a class defines, or has from one that is not shown itself."""
    properties, methods = [], []
    owners = [owner for owner in kind.__mro__[::-1] if owner is kind or owner.__module__.startswith("mhsa_cli.api.")]
    found = {name: value for owner in owners for name, value in vars(owner).items() if not name.startswith("_")}
    for name, value in found.items():
        if isinstance(value, property | functools.cached_property):
            function = value.fget if isinstance(value, property) else value.func
            returned = inspect.signature(function).return_annotation if function else ""
            properties.append(f"- `{of}.{name}: {returned}`: {' '.join((inspect.getdoc(value) or '').split())}")
        elif inspect.isfunction(value) and inspect.getdoc(value):
            methods.append(block(signature(f"{of}.{name}", value), "py") + f"\n\n{inspect.getdoc(value)}")
    return properties, methods


def entry(name: str, value: Any) -> list[str]:
    """Write a name: how it is called, its docstring, and the members of a class."""
    heading = f"### {name}"
    if isinstance(value, type) and issubclass(value, Section):
        section = value.__name__.removesuffix("Config").lower()
        return [heading, f"The section [`{section}`](settings.md#{section}) of a config: its settings as keywords."]
    parts = [heading]
    # What a call returns is not made by the user, and Python's own classes have no signature.
    if not (isinstance(value, type) and (value.__module__.startswith("mhsa_cli.api.") or issubclass(value, Warning))):
        parts.append(block(signature(name, value), "py"))
    parts.append(inspect.getdoc(value) or "")
    properties, methods = members(value, name.rpartition(".")[2]) if isinstance(value, type) else ([], [])
    return [*parts, "\n".join(properties), *methods]


def errors(kind: type[MhsaError]) -> Iterator[tuple[str, str, str, str]]:
    """List an error and those below it."""
    if kind.__module__ == MhsaError.__module__:
        about = (inspect.getdoc(kind) or "").splitlines()[0]
        yield f"`{kind.__name__}`", f"`{kind.code}`", str(kind.exit_code), about
    for below in kind.__subclasses__():
        yield from errors(below)


TASKS = prose(
    "The built-in tasks by name: `mhsa.tasks[NAME].description`, and `.settings`, a mapping of names to `default`,",
    "`description` and `required`. [Settings](settings.md#task) lists them.",
)


def api() -> str:
    """Write api.md: every public name of the package with its signature and docstring."""
    parts = [
        "# Python API: every name",
        "`import mhsa_cli as mhsa` gives these names. [Python](python.md) shows their use.",
        "## mhsa",
        block(mhsa.__doc__ or ""),
    ]
    for name in dir(mhsa):
        value = getattr(mhsa, name)
        if name.startswith("__") or name == "nn":
            continue
        if name == "tasks":
            parts += [f"### mhsa.{name}", TASKS]
            continue
        parts += entry(f"mhsa.{name}", value)
        if value is MhsaError:
            parts.append(table(("error", "code", "exit code", "meaning"), dict.fromkeys(errors(MhsaError))))
    parts += [
        "## What calls return",
        *entry("ShownMaps", ShownMaps),
        *entry("ShownGrade", ShownGrade),
        "## mhsa.nn",
        mhsa.nn.__doc__ or "",
    ]
    for name in mhsa.nn.__all__:
        parts += entry(f"mhsa.nn.{name}", getattr(mhsa.nn, name))
    return page(*parts)


PAGES = {"commands.md": commands, "settings.md": settings, "api.md": api}


def main() -> None:
    """Compare the pages, or write them."""
    different = []
    for name, make in PAGES.items():
        text, path = make(), FOLDER / name
        if "--write" in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            different.append(f"docs/reference/{name} is not what the code says")
    if different:
        sys.exit("\n".join(different))


if __name__ == "__main__":
    main()
