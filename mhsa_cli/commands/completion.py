"""What a shell may complete: runs, settings, recipes and tasks, found without torch; on any error nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from mhsa_cli.errors import COMPLETION
from mhsa_cli.runs.names import NEW, NEWEST, RM, SHOW, runs_root

Find = Callable[[typer.Context, str], Iterable[str]]


def join_words() -> int:
    """Join what bash split at `=` in the line that is to be completed; return how much of the last word bash keeps."""
    if os.environ.get(COMPLETION) != "complete_bash":
        return 0
    words, kept = [""], 0
    at = int(os.environ["COMP_CWORD"])
    for word in os.environ["COMP_WORDS"].split("\n")[: at + 1]:
        if word == "=" or words[-1].endswith("="):
            words[-1] += word
            kept = words[-1].rindex("=") + 1
        else:
            words.append(word)
            kept = 0
    os.environ.update(COMP_WORDS="\n".join(words[1:]), COMP_CWORD=str(len(words) - 2))
    return kept


def _completer(find: Find) -> Callable[[typer.Context, str], list[str]]:
    """Offer the words found that begin with the typed one."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            return [word for word in dict.fromkeys(find(ctx, incomplete)) if word.startswith(incomplete)]
        except Exception:  # a shell shows a message in the middle of the line that is typed
            return []

    return complete


def _root(ctx: typer.Context) -> Path:
    return runs_root(next((ctx.params[name] for name in ("runs", "root") if ctx.params.get(name)), None))


def _words_before(ctx: typer.Context) -> list[str]:
    """List the arguments before the typed one."""
    return next((list(ctx.params[name]) for name in ("names", "overrides") if ctx.params.get(name)), [])


def _find_sweeps(ctx: typer.Context, typed: str) -> Iterable[str]:
    from mhsa_cli.runs.listing import list_sweeps

    return [path.name for path, _ in list_sweeps(_root(ctx))]


def _find_runs(ctx: typer.Context, typed: str) -> Iterable[str]:
    """Find runs and sweeps, a sweep also with a slash, after which its trials are found."""
    from mhsa_cli.runs.listing import RUN, is_sweep, trial_folders

    root = _root(ctx)
    folder, slash, _ = typed.rpartition("/")
    if slash:
        return [f"{folder}/{trial.name}" for trial in trial_folders(root / folder)]
    names = [entry.name for entry in root.iterdir() if os.path.lexists(entry / RUN) and not is_sweep(entry)]
    return [*names, NEWEST, *(name + end for name in _find_sweeps(ctx, typed) for end in ("", "/"))]


def _find_listed(ctx: typer.Context, typed: str) -> Iterable[str]:
    """Find what `mhsa runs` takes: a run, or `rm` and runs and sweeps."""
    return [*_find_runs(ctx, typed), *([] if _words_before(ctx) else [RM])]


def _find_settings(ctx: typer.Context, typed: str) -> Iterable[str]:
    """Find `KEY=`, by whole keys and short names, and `KEY=VALUE` where one key is left."""
    from mhsa_cli.config.fields import all_keys

    keys = [key for key in all_keys() if ctx.info_name != "evaluate" or key.startswith("task.")]
    names = [key.rpartition(".")[2] for key in keys]
    known = {name: key for key, name in zip(keys, names, strict=True) if names.count(name) == 1}
    known |= {key: key for key in keys}
    name, equals, _ = typed.partition("=")
    if equals:
        return [f"{name}={value}" for value in _values(known[name])]
    found = [name for name in known if name.startswith(typed) and (typed or "." in name)]
    if len(found) == 1:
        return [f"{found[0]}={value}" for value in ("", *_values(known[found[0]]))]
    return [f"{name}=" for name in found]


def _values(key: str) -> list[str]:
    """List the options of a setting, or its default."""
    from mhsa_cli.config.fields import base_type, fields_of, options
    from mhsa_cli.config.scalars import write

    fields = fields_of(key)
    if base_type(fields[0]) is bool:
        return ["true", "false"]
    choices = [choice for field in fields for choice in options(field)]
    return choices or [write(field.get_default()) for field in fields[:1] if not field.is_required()]


def _find_overrides(ctx: typer.Context, typed: str) -> Iterable[str]:
    """Find settings; in `mhsa sweep` also `show`, and sweeps after it."""
    before = _words_before(ctx)
    if ctx.info_name == "sweep" and before[:1] == [SHOW]:
        return _find_sweeps(ctx, typed)
    return [*_find_settings(ctx, typed), *([SHOW] if ctx.info_name == "sweep" and not before else [])]


def _find_configs(ctx: typer.Context, typed: str) -> Iterable[str]:
    """Find recipes and YAML files."""
    from mhsa_cli.config.recipes import recipes

    folder, slash, _ = typed.rpartition("/")
    files = [f"{folder}{slash}{path.name}" for path in Path(f"{folder}{slash}" or ".").iterdir()]
    return [*recipes(), *(name for name in files if name.endswith((".yaml", ".yml")))]


def _find_tasks(ctx: typer.Context, typed: str) -> Iterable[str]:
    """Find what `mhsa tasks` takes first: a task, or `new`."""
    from mhsa_cli.config.tasks import TASK_SCHEMAS

    return [] if _words_before(ctx) else [*TASK_SCHEMAS, NEW]


def _either(*finds: Find) -> Find:
    def find(ctx: typer.Context, typed: str) -> Iterable[str]:
        return [word for each in finds for word in each(ctx, typed)]

    return find


# By the metavar of an argument or option; what stands nowhere here the shell completes itself, as files.
COMPLETERS: dict[str, Any] = {
    metavar: _completer(find)
    for metavar, find in {
        "RUN": _find_runs,
        "[RUN]": _find_runs,
        "[RUN]...": _find_runs,
        "RUN RUN": _find_runs,
        "[RUN | rm RUN...]": _find_listed,
        "[RUN] [KEY=VALUE]...": _either(_find_runs, _find_settings),
        "SWEEP": _find_sweeps,
        "[KEY=VALUE]...": _find_overrides,
        "KEY=VALUE": _find_settings,
        "CONFIG": _find_configs,
        "CONFIG... [KEY=VALUE]...": _either(_find_configs, _find_settings),
        "[CONFIG] [KEY=VALUE]...": _either(_find_configs, _find_settings),
        "[TASK | new FILE.py]": _find_tasks,
    }.items()
}
