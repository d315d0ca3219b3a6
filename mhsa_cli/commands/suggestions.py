"""Suggestions for a mistyped command line: a command or option by another name, or a setting written as an option."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mhsa_cli.config.aliases import normalise, sentence_for, setting
from mhsa_cli.config.fields import all_keys, base_type, field_of, is_list, options
from mhsa_cli.config.pydantic_errors import SPELLINGS
from mhsa_cli.config.recipes import recipes
from mhsa_cli.config.scalars import write
from mhsa_cli.config.spelling import nearest
from mhsa_cli.config.tasks import TASK_SCHEMAS
from mhsa_cli.errors import UsageError
from mhsa_cli.runs.listing import RUN, is_sweep, run_argument
from mhsa_cli.runs.names import LONGEST
from mhsa_cli.text import escape, quoted

# What other programs call our commands. Looked up before the nearest spelling.
SYNONYMS: dict[str, str] = {
    "runs": "ls list ll dir history log logs show info status",
    "runs rm": "rm remove delete del",
    "inspect-heads": "heads head inspect attention attn maps",
    "curve": "plot loss graph metrics",
    "evaluate": "eval test score accuracy",
    "train --resume": "resume continue restart",
    "train": "fit learn start run",
    "sweep": "grid tune search multirun",
    "generate": "sample predict complete infer inference",
    "compare": "diff cmp",
    "check": "grade lint",
    "bench": "benchmark speed profile",
    "explain": "describe why what",
    "report": "html page browser web dashboard",
    "export": "save convert",
    "trace": "shapes debug",
    "verify": "fsck hash",
    "config init": "init new",
    "config check": "validate",
    "config show": "settings defaults",
    "--help": "usage man",
}
# The same for options. Looked up where the command has that option.
OPTION_SYNONYMS: dict[str, str] = {
    "--max-new-tokens": "--steps --max-tokens --num-tokens --length -n",
    "--goal": "--target --threshold",
    "--seconds": "--timeout --time-limit",
    "--jobs": "--workers --processes",
    "--resume": "--continue",
}


def _inverted(synonyms: Mapping[str, str]) -> dict[str, str]:
    return {word: name for name, words in synonyms.items() for word in words.split()}


_COMMANDS, _OPTIONS = _inverted(SYNONYMS), _inverted(OPTION_SYNONYMS)


def no_such_command(program: str, args: Sequence[str], known: Sequence[str]) -> UsageError:
    """Make the error of an unknown command, with the nearest one and the rest of the line as a hint."""
    word, *rest = args
    synonym = _COMMANDS.get(word.lower().replace("_", "-")) if " " not in program else None
    message, command = f"there is no command `{escape(word)}`", synonym or nearest(word, known, 3)
    if command is None:
        return UsageError(message, f"commands of {program}: {', '.join(known)}")
    return UsageError(message, f"did you mean: {' '.join([program, command, *map(quoted, rest)])}")


def check_settings(command: str, arguments: Sequence[str], root: Path) -> None:
    """Refuse arguments without a `=` that are a run, a config, a task or a key, with the right form as a hint.

    Raises: UsageError.
    """
    hints = {}
    for number, word in enumerate(arguments):
        if "=" not in word and (forms := _resume_forms(command, word, root) + _forms(word, arguments[number + 1 :])):
            hints[word] = "\n  or: ".join(f"mhsa {command} {form}" for form in forms)
    if hints:
        words = ", ".join(f"`{escape(word)}`" for word in hints)
        raise UsageError(f"arguments: found {words}, wanted settings as KEY=VALUE", "\n  ".join(hints.values()))


def _resume_forms(command: str, word: str, root: Path) -> list[str]:
    kinds: dict[str, Callable[[Path], bool]] = {"train": lambda path: (path / RUN).is_file(), "sweep": is_sweep}
    if command not in kinds or len(word) >= LONGEST:
        return []
    places = (path for path in (root / word, Path(word)) if kinds[command](path))
    return [f"--resume {run_argument(path)}" for path in places][:1]


def _forms(word: str, rest: Sequence[str]) -> list[str]:
    if word.endswith((".yaml", ".yml")):
        return [f"--config {quoted(word)}"]
    config = [f"--config {word}"] if word in recipes() else []
    if task := nearest(word, TASK_SCHEMAS):
        return [f"task.name={task}", *config]
    if config or (key := setting(word, all_keys())) is None:
        return config
    value = next((value.lstrip("=") for value in rest[:2] if value.lstrip("=")), None)
    return [written(key, word, value)]


def no_such_option(ctx: Any, name: str, args: Sequence[str]) -> UsageError:
    """Make the error of an unknown option; one that is named like a setting is written as KEY=VALUE in the hint."""
    typed, value = _as_typed(name, args)
    message = f"{ctx.command_path} has no option {escape(typed)}"
    params = ctx.command.get_params(ctx)
    options = [option for param in params for option in [*param.opts, *param.secondary_opts] if option.startswith("-")]
    close = _OPTIONS.get(typed) if _OPTIONS.get(typed) in options else None
    takes_settings = any(param.name == "settings" for param in params)
    if close is None and takes_settings and (hint := _as_setting(ctx.command_path, typed.lstrip("-"), value)):
        return UsageError(message, hint)
    close = close or nearest(typed, options, 3)
    return UsageError(message, f"did you mean: {close}" if close else f"see: {ctx.command_path} --help")


def _as_typed(name: str, args: Sequence[str]) -> tuple[str, str | None]:
    """Find an option as it was typed, and the value after it, if there is one."""
    at = next((i for i, arg in enumerate(args) if arg.partition("=")[0] == name), None)
    if at is None:  # `-lr 3` is read as the letters l and r
        at = next((i for i, arg in enumerate(args) if arg.startswith("-") and name[-1] in arg), None)
    if at is None:
        return name, None
    typed, equals, value = args[at].partition("=")
    if equals:
        return typed, value
    after = args[at + 1] if at + 1 < len(args) else "-"
    return typed, None if after.startswith("-") and not after[1:2].isdigit() else after


def _as_setting(program: str, name: str, value: str | None) -> str | None:
    keys, word = all_keys(), normalise(name)
    negated = setting(word[3:], keys) if value is None and word.startswith("no_") else None
    key = negated or setting(word, keys)
    if key is None or word == "name":
        return sentence_for(word)
    return f"settings are written KEY=VALUE: {program} {written(key, word, value)}"


def written(key: str, word: str, value: str | None) -> str:
    """Write the setting that `word` means as KEY=VALUE; without a value, with one that the key accepts."""
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
