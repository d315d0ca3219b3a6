"""What a word on the command line was meant to be: a command by another name, or a setting written as an option."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mhsa_cli.config.aliases import normalise, sentence_for, setting
from mhsa_cli.config.expected import base_type, options
from mhsa_cli.config.pydantic_errors import SPELLINGS, all_keys, field_of, is_list
from mhsa_cli.config.scalars import write
from mhsa_cli.config.spelling import nearest
from mhsa_cli.config.tasks import TASK_SCHEMAS
from mhsa_cli.errors import UsageError
from mhsa_cli.runs.listing import RUN, is_sweep, run_argument
from mhsa_cli.runs.names import LONGEST
from mhsa_cli.text import escape, quoted

# What people call our commands elsewhere: asked before any nearness of letters.
SYNONYMS: dict[str, str] = {
    "runs": "ls list ll dir history log logs show info status",
    "inspect-heads": "heads head inspect attention attn maps",
    "curve": "eval evaluate plot loss graph metrics",
    "train --resume": "resume continue restart",
    "train": "fit learn start run",
    "sweep": "grid tune search multirun",
    "generate": "sample predict complete infer inference",
    "compare": "diff cmp",
    "check": "grade lint",
    "bench": "benchmark speed profile",
    "explain": "describe why what",
    "export": "save convert",
    "trace": "shapes debug",
    "verify": "fsck hash",
    "config init": "init new",
    "config check": "validate",
    "config show": "settings defaults",
    "--help": "usage man",
}
_MEANT = {word: command for command, words in SYNONYMS.items() for word in words.split()}


def no_such_command(program: str, args: Sequence[str], known: Sequence[str]) -> UsageError:
    """Say that a word is no command, and offer the one that was meant, with what was typed behind it."""
    word, *rest = args
    root = " " not in program
    meant = _MEANT.get(word.lower().replace("_", "-")) if root else None
    meant = meant or nearest(word, known, 3)
    if meant is None:
        return UsageError(f"there is no command `{escape(word)}`", f"commands of {program}: {', '.join(known)}")
    offered = " ".join([program, meant, *map(quoted, rest)])
    return UsageError(f"there is no command `{escape(word)}`", f"did you mean: {offered}")


def check_settings(command: str, arguments: Sequence[str], root: Path) -> None:
    """Lead on from a word that is a run, a config, a task, or a key with its value behind it. Raises: UsageError."""
    told = []
    for number, word in enumerate(arguments):
        if "=" in word:
            continue
        if ways := _resumes(command, word, root) + _leads_to(word, arguments[number + 1 :]):
            told.append((word, "\n  or: ".join(f"mhsa {command} {way}" for way in ways)))
    if told:
        words = ", ".join(f"`{escape(word)}`" for word, _ in told)
        raise UsageError(f"settings are written KEY=VALUE, found {words}", "\n  ".join(way for _, way in told))


def _resumes(command: str, word: str, root: Path) -> list[str]:
    kinds: dict[str, Callable[[Path], bool]] = {"train": lambda path: (path / RUN).is_file(), "sweep": is_sweep}
    if command not in kinds or len(word) >= LONGEST:
        return []
    places = (path for path in (root / word, Path(word)) if kinds[command](path))
    return [f"--resume {run_argument(path)}" for path in places][:1]


def _leads_to(word: str, behind: Sequence[str]) -> list[str]:
    if word.endswith((".yaml", ".yml")):
        return [f"--config {quoted(word)}"]
    ready = Path("configs", f"{word}.yaml")
    config = [f"--config {quoted(ready)}"] if len(word) < LONGEST and ready.is_file() else []
    if task := nearest(word, TASK_SCHEMAS):
        return [f"task.name={task}", *config]
    if config or (key := setting(word, all_keys())) is None:
        return config
    value = next((value.lstrip("=") for value in behind[:2] if value.lstrip("=")), None)
    return [written(key, word, value)]


def no_such_option(ctx: Any, name: str, args: Sequence[str]) -> UsageError:
    """Say that an option is none of the command; where it is a setting's name, write the setting as it is written."""
    typed, value = _as_typed(name, args)
    message = f"{ctx.command_path} has no option {escape(typed)}"
    takes_settings = any(param.name == "settings" for param in ctx.command.get_params(ctx))
    if takes_settings and (way := _as_setting(ctx.command_path, typed.lstrip("-"), value)):
        return UsageError(message, way)
    options = [option for param in ctx.command.get_params(ctx) for option in [*param.opts, *param.secondary_opts]]
    close = nearest(typed, [option for option in options if option.startswith("-")], 3)
    return UsageError(message, f"did you mean {close}?" if close else f"see: {ctx.command_path} --help")


def _as_typed(name: str, args: Sequence[str]) -> tuple[str, str | None]:
    """Find an option as it stands on the command line, and the value behind it, if there is one."""
    at = next((i for i, arg in enumerate(args) if arg.partition("=")[0] == name), None)
    if at is None:  # `-lr 3` is read as the letters l and r
        at = next((i for i, arg in enumerate(args) if arg.startswith("-") and name[-1] in arg), None)
    if at is None:
        return name, None
    typed, equals, value = args[at].partition("=")
    if equals:
        return typed, value
    behind = args[at + 1] if at + 1 < len(args) else "-"
    return typed, None if behind.startswith("-") and not behind[1:2].isdigit() else behind


def _as_setting(program: str, name: str, value: str | None) -> str | None:
    keys, word = all_keys(), normalise(name)
    negated = setting(word[3:], keys) if value is None and word.startswith("no_") else None
    key = negated or setting(word, keys)
    if key is None or word == "name":
        return sentence_for(word)
    return f"settings are written KEY=VALUE: {program} {written(key, word, value)}"


def written(key: str, word: str, value: str | None) -> str:
    """Write the setting that `word` means as one argument; without a value of its own, with one that the key takes."""
    field, word = field_of(key), word.removeprefix("use_")
    if value is None or "=" in value or (is_list(tuple(key.split("."))) and "[" not in value):
        choices = options(field)
        if base_type(field) is bool:
            value = "false" if word.startswith("no_") else "true"
        elif word in choices or SPELLINGS.get(word) in choices:  # --rope, --bf16
            value = SPELLINGS.get(word, word)
        else:
            value = "FILE" if field.is_required() else write(field.get_default())
    name = key if key == "task.name" else key.rpartition(".")[2]
    return quoted(f"{name}={value}")
