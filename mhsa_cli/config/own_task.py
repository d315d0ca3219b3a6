"""A task of the user's own, named in a config as FILE.py:Name: its file is read for its settings, but not run."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

from pydantic import ConfigDict, Field, ValidationInfo, model_validator

from mhsa_cli.config.own_file import OwnKind, definition, file_digest, file_problem, form_problem, pick, split
from mhsa_cli.config.problems import clip
from mhsa_cli.config.recipes import installed
from mhsa_cli.config.section import Section, SeqLen, VocabSize, rule
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.text import escape, quoted

TASK = OwnKind("own-task", "Name", "MyTask", (".py",), functions=True)
KEY = "own_task"  # in run.json: file, name and sha256 of the user's own task
PLAIN = (bool, int, float, str, NoneType)  # kinds of a setting
SIZES = ("vocab_size", "seq_len")


def is_own(name: str) -> bool:
    """Return whether task.name names a file, not a built-in task."""
    return ":" in name or name.lower().endswith(".py")


def short_name(name: str) -> str:
    """Return the name of a task alone: `MyTask` of `tasks.py:MyTask`."""
    return split(name)[1] if is_own(name) else name


def located(name: str) -> str:
    """Return FILE.py:Name with the path to open: FILE itself, or where there is none the task installed as FILE."""
    return name if os.path.lexists(split(name)[0]) else installed_task(name) or name


def installed_task(name: str) -> str | None:
    """Return FILE.py:Name with the path of the file installed with the recipes; None if it is no such task."""
    file, task = split(name)
    path = installed(file)
    return None if path is None else f"{path}:{task}"


def digest(name: str) -> str:
    """Return the sha256 of the file of FILE.py:Name."""
    return file_digest(located(name))


def recorded_digest(info: Mapping[str, Any]) -> str | None:
    """Return the sha256 of the task's file that run.json has, if any."""
    found = (info.get(KEY) or {}).get("sha256")
    return found if isinstance(found, str) else None


def trusted_task(name: str, recorded: str | None) -> str | None:
    """Return the installed task of this name if its file has the recorded sha256: it needs no permission."""
    own = installed_task(name)
    return own if own is not None and digest(own) == recorded else None


def find_task(name: str, given: Sequence[str], who: str, recorded: str | None) -> str:
    """Find the task to import for a run: the one that --task names among `given`; with none given a trusted one.

    Raises: UsageError if there is none.
    """
    if not given and (trusted := trusted_task(name, recorded)):
        return trusted
    found = pick(name, given)
    if found is None and given:
        raise unwanted("--task", given[0], f"{name}, on which {who} was trained", f"--task {escape(name)}")
    if found is None:
        shown = escape(name)
        message = f"{who} was trained on {shown}, which is not imported without permission"
        raise UsageError(message, f"to let this command import it: --task {shown}")
    return found


def options_to_name(attentions: Iterable[str], tasks: Iterable[str], scores: Iterable[str]) -> str:
    """Write the options that let a command import the user's code again, each with a space before it."""
    own = {"--attention": attentions, "--task": (name for name in tasks if not installed_task(name)), "--score": scores}
    return "".join(f" {option} {quoted(name)}" for option, names in own.items() for name in names)


class Signature(NamedTuple):
    """The settings that a task takes, with those defaults that are written out; `open`: it may take others."""

    settings: tuple[str, ...]
    defaults: dict[str, Any]
    open: bool


def read_signature(name: str) -> Signature:
    """Read the settings of FILE.py:Name: the parameters of the function after two, or of the class's `__init__`.

    A class may also write its vocab_size and seq_len as attributes.
    """
    node = definition(name)
    if isinstance(node, ast.FunctionDef):
        return _parameters(node.args, skip=2)
    if node is None:
        return Signature((), {}, open=True)
    attributes = {target: value for target, value in _attributes(node) if target in SIZES}
    init = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    found = Signature((), {}, bool(node.bases or node.decorator_list)) if init is None else _parameters(init.args, 1)
    return found._replace(defaults={**attributes, **found.defaults})


def _parameters(args: ast.arguments, skip: int) -> Signature:
    plain = [*args.posonlyargs, *args.args]
    pairs = [
        *zip(plain[len(plain) - len(args.defaults) :], args.defaults, strict=True),
        *((arg, value) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value is not None),
    ]
    names = tuple(arg.arg for arg in (*plain[skip:], *args.kwonlyargs))
    known = {arg.arg: _literal(value) for arg, value in pairs}
    return Signature(names, {key: value for key, value in known.items() if value is not None}, args.kwarg is not None)


def _attributes(node: ast.ClassDef) -> list[tuple[str, Any]]:
    found = []
    for item in node.body:
        targets = (
            item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) else []
        )
        value = None if not isinstance(item, ast.Assign | ast.AnnAssign) or item.value is None else _literal(item.value)
        found += [(target.id, value) for target in targets if isinstance(target, ast.Name) and value is not None]
    return found


def _literal(node: ast.expr) -> Any:
    """Return a number, text or truth value that is written out; None for anything else."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, bool | int | float | str) else None


class OwnTask(Section):
    """A task in a file: its name, the sizes that every task has, and its own settings."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(description="FILE.py:Name, a function or class")
    vocab_size: VocabSize = Field(description="number of different ids")
    seq_len: SeqLen = Field(description="tokens in a row")

    @model_validator(mode="before")
    @classmethod
    def _as_in_the_file(cls, data: Any, info: ValidationInfo) -> Any:
        """Fill in the defaults of the file and refuse settings that it does not have; of a run all are written."""
        name = data.get("name") if isinstance(data, dict) else None
        if not isinstance(name, str):
            return data
        files = (info.context or {}).get("files")  # a run is readable without its file
        if problem := form_problem(name, TASK) or (file_problem(located(name), TASK) if files else None):
            raise rule(*problem, at=("name",))
        if odd := next((key for key, value in data.items() if not isinstance(value, PLAIN)), None):
            message = (
                f"`task.{clip(str(odd))}`: found a {type(data[odd]).__name__}, wanted a number, text, true or false"
            )
            raise rule("value", message, at=(odd,))
        if not files:
            return data
        known = read_signature(located(name))
        others = [key for key in data if key not in ("name", *SIZES, *known.settings)]
        if others and not known.open:
            settings = ", ".join(dict.fromkeys((*SIZES, *known.settings)))
            message = f"{clip(name)} has no setting `{clip(str(others[0]))}`"
            raise rule("unknown-setting", message, f"its settings: {settings}", at=(others[0],))
        return {**known.defaults, **data}

    @property
    def settings(self) -> dict[str, Any]:
        """All settings but the name, those of the file included."""
        return {"vocab_size": self.vocab_size, "seq_len": self.seq_len, **(self.model_extra or {})}
