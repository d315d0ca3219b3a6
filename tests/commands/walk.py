"""What there is to walk over, read off the code: every command with its options, every setting with its bounds."""

from __future__ import annotations

import enum
import importlib
import math
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from mhsa_cli.commands.app import COMMANDS
from mhsa_cli.config.dump import json_schema
from mhsa_cli.renderers.figures.sheet_options import COMPARE_PARTS, HEADS_PARTS, SWEEP_PARTS, TIMELINE_PARTS
from mhsa_cli.renderers.files.formats import RENDERERS

# The values of options and arguments that their types do not tell, by "command --option", option or metavar.
ONLY = {"inspect-heads": HEADS_PARTS, "timeline": TIMELINE_PARTS[:3]}  # those of runs
ONLY |= {"compare": COMPARE_PARTS[:2], "sweep": SWEEP_PARTS[:2]}
SCORED = ("train", "sweep", "inspect-heads", "explain", "timeline")
VALUES: dict[str, tuple[str, ...]] = {
    "export --output": ("a-folder-or-a-file-as-people-name-it-for-the-program-that-reads-it",),
    "export --step": ("best", "first"),  # the first one is 0, and nothing is overwritten
    "timeline --target": ("previous",),
    "report --output": ("a-page-as-people-name-it-for-those-who-will-look-at-it-in-a-browser.html",),
    "check --entry": ("Five",),
    "check --with": ("x=5",),
    "check --csv": ("a-table-of-grades-as-people-name-it-for-the-spreadsheet-that-reads-it.csv",),
    "check --out": ("a-folder-of-reports-as-people-name-it-for-those-who-get-them",),
    "check --seconds": ("0.1", "9"),  # the least ends every grade; nothing is measured against it
    "check --memory": ("0.1", "4"),
    "FILE": ("tiny.yaml",),
    "CONFIG": ("tiny.yaml", "shift"),
    "KEY=VALUE": ("train.seed=1",),
    "NAME": ("a-new-name-as-long-as-the-runs-that-people-number-with-all-their-settings",),
    "RUN": ("newest",),
    "SWEEP": ("grid",),
    "DIR": ("runs",),
    "--output": tuple(f"a-picture-as-people-name-it-for-the-page-where-it-will-stand.{e}" for e in ("pdf", *RENDERERS)),
    "WIDTH": ("1.5in", "84mm"),
    **{f"{command} --only": parts for command, parts in ONLY.items()},
    "FILE.py:CLASS": ("mine.py:Mine",),
    "FILE.py:NAME": ("own.py:Task",),
    **dict.fromkeys((f"{command} --score" for command in SCORED), ("own.py:score",)),
    "HEADS": ("L0.H0", "L0"),
    "LAYER": ("L0", "0"),
    "TOKENS": ("1", "2 1 0"),
    "PATHS": ("L0.H0:logits", "L0.H0,embedding:L0.H0.k"),
    "olsson2022": ("olsson2022",),
    "TEXT": ("narrow", "train.seed=1"),
    "STEP": ("0", "best", "first", "last"),
    "FORMAT": ("npz", "csv", "json", "transformer-lens", "tensorboard"),
    "ADDRESS": ("localhost:1",),
    "qkv": ("kqv",),
    "KIND": ("none", "interleaved", "half"),
}
# Texts of the schema that are no list of options, and lists.
TEXTS: dict[str, tuple[str, ...]] = {
    "task.path": ("text.txt",),
    "task.rows": ("rows.txt",),
    "model.attention": ("mine.py:Mine",),
    "train.init": ("init.safetensors",),
    "train.device": ("auto", "cpu"),
    "train.stop_at": ("accuracy=1", "loss=1000000"),
    "train.betas": ("[0, 0]", f"[{math.nextafter(1, 0)}, {math.nextafter(1, 0)}]"),
}


@dataclass(frozen=True)
class Option:
    """One option: its spellings that say different things, its type, and whether it takes several values."""

    names: tuple[str, ...]
    kind: type
    metavar: str | None
    least: float | None
    many: bool


@dataclass(frozen=True)
class WalkedCommand:
    """One command: its words, the metavar of its arguments, and its options."""

    words: tuple[str, ...]
    takes: str
    options: tuple[Option, ...]

    def __str__(self) -> str:
        return " ".join(self.words)


def functions() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command of the program, those of its groups included, with the function behind it."""
    for name in COMMANDS:
        module = importlib.import_module(f"mhsa_cli.commands.{name.replace('-', '_')}")
        if not hasattr(module, "app"):
            yield (name,), getattr(module, name.replace("-", "_"))
            continue
        for found in module.app.registered_commands:
            yield (name, found.name or found.callback.__name__), found.callback


def commands() -> Iterator[WalkedCommand]:
    """Every command of the program, those of its groups included."""
    for words, function in functions():
        takes, options = "", []
        for hint in get_type_hints(function, include_extras=True).values():
            if get_origin(hint) is not Annotated:
                continue
            of, info = get_args(hint)
            if isinstance(info, ArgumentInfo):
                takes = str(info.metavar)
            elif isinstance(info, OptionInfo):
                options.append(_option(of, info))
        yield WalkedCommand(words, takes, tuple(options))


def _option(of: Any, info: OptionInfo) -> Option:
    if get_origin(of) in (Union, types.UnionType):
        of = next(arg for arg in get_args(of) if arg is not type(None))
    many = get_origin(of) is list
    # Inside Annotated, typer keeps the first spelling where a default would stand.
    spelled = [name for name in (info.default, *(info.param_decls or ())) if str(name).startswith("--")]
    names = tuple(spelled[0].split("/")) if spelled else ()
    assert names, f"{info}: write the option's name out"
    return Option(names, get_args(of)[0] if many else of, info.metavar, info.min, many)


def values(command: WalkedCommand, option: Option) -> list[tuple[str, ...]]:
    """What to write for an option: its choices, the least it takes, or values of its kind."""
    name = option.names[0]
    if option.kind is bool:
        return [(spelling,) for spelling in option.names]
    if issubclass(option.kind, enum.Enum):
        return [(name, str(item.value)) for item in option.kind]
    known = VALUES.get(f"{command} {name}") or VALUES.get(name) or VALUES.get(option.metavar or "")
    if known is None and option.kind in (int, float):
        known = ("0", "1") if option.least is None else (f"{option.least:g}", f"{option.least + 1:g}")
    assert known, f"add a value for {option.metavar} ({command} {name}) to VALUES"
    return [(name, value) for value in known]


@dataclass(frozen=True)
class Setting:
    """One setting of one task, or of any (`task` is empty): its least, its greatest and every other choice of it."""

    key: str
    task: str
    least: str | None
    most: str | None
    choices: tuple[str, ...]


def settings() -> Iterator[Setting]:
    """Every setting of the schema that editors are given."""
    sections = json_schema()["$defs"]
    for title, section in sections.items():
        if title == "OwnTask":  # has no ends: its settings are in a file
            continue
        name = section["properties"].get("name", {}).get("const", "")
        place = "task" if name else title.removesuffix("Config").lower()
        for key, found in section["properties"].items():
            if key != "name":
                yield _setting(f"{place}.{key}", name, found)


def _setting(key: str, task: str, found: dict[str, Any]) -> Setting:
    choices = list(TEXTS.get(key, ()))
    least = most = None
    for form in found.get("anyOf", [found]):
        kind = form.get("type")
        if "enum" in form or kind in ("boolean", "null"):
            choices += form.get("enum", ["null"] if kind == "null" else ["false", "true"])
        elif kind in ("integer", "number"):
            least = _bound(form, "inimum", math.inf)
            most = _bound(form, "aximum", -math.inf)
        else:
            assert key in TEXTS, f"add a value for {key} to TEXTS: {form}"
    return Setting(key, task, least, most, tuple(choices))


def _bound(form: dict[str, Any], name: str, inwards: float) -> str:
    """The last number inside a bound, written as YAML reads it."""
    number = form.get("m" + name)
    if number is None:
        number = math.nextafter(form["exclusiveM" + name], inwards)
    return str(number) if form["type"] == "integer" else f"{float(number):.17e}"
