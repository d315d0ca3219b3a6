"""The options that several commands share, and short forms of options and arguments."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mhsa_cli.commands.completion import COMPLETERS
from mhsa_cli.runs.names import runs_root

Detail = Literal["quiet", "usual", "verbose"]  # of what a training prints


def option(name: str, value: str, help: str, **more: Any) -> Any:
    """Make an option: its spellings, as `--output, -o`, its metavar, and its line of help."""
    return typer.Option(*name.split(", "), metavar=value, help=help, autocompletion=COMPLETERS.get(value), **more)


def flag(name: str, help: str) -> Any:
    """Make an option without a value, such as `--quick` or `--log/--linear`."""
    return typer.Option(*name.split(", "), help=help)


def argument(name: str, help: str) -> Any:
    """Make an argument: its metavar, and a line of help for each name in it, as FILE and KEY=VALUE."""
    return typer.Argument(metavar=name, help=help, autocompletion=COMPLETERS.get(name))


class Live(StrEnum):
    """What is redrawn while a model trains."""

    CURVE = "curve"
    HEADS = "heads"
    NONE = "none"


ConfigOption = Annotated[
    str | None, option("--config, -c", "CONFIG", "YAML file, or a recipe of mhsa config list [default: built-in]")
]


def _checked_step(given: str) -> str:
    from mhsa_cli.jobs.steps import check_step  # loads records of heads and trainings: only where it is asked for

    return check_step(given)


def _check_steps(given: list[str] | None) -> list[str] | None:
    return None if given is None else [_checked_step(step) for step in given]


Overrides = Annotated[
    list[str] | None, argument("[KEY=VALUE]...", "settings to change, such as n_heads=8 (list: mhsa config show)")
]
SetOption = Annotated[list[str] | None, option("--set", "KEY=VALUE", "same as the argument KEY=VALUE; repeatable")]
RunArgument = Annotated[str | None, argument("[RUN]", "name or path of a run [default: newest, started last]")]
RunOrSweepArgument = Annotated[
    str | None, argument("[RUN]", "name or path of a run or a sweep [default: newest run, started last]")
]
RunsOption = Annotated[Path | None, option("--runs", "DIR", "folder of runs [default: $MHSA_RUNS or ./runs]")]
HeadsOption = Annotated[
    str | None,
    option("--heads, --head", "HEADS", "only these, such as L0.H3,L1.H0; L0 is a layer, 3 is H3 of every layer"),
]
StepOption = Annotated[
    str | None,
    option(
        "--step",
        "STEP",
        "at a checkpoint: a step, best (evaluation loss), first or last; 0: untrained [default: last]",
        callback=lambda given: None if given is None else _checked_step(given),
    ),
]
StepsOption = Annotated[
    list[str] | None,
    option(
        "--step",
        "STEP",
        "at a checkpoint: a step, best, first or last; 0: untrained; twice: of each run [default: last]",
        callback=_check_steps,
    ),
]
JsonOption = Annotated[bool, flag("--json", "print one JSON document; errors stay on stderr")]
AttentionOption = Annotated[
    str | None, option("--attention", "FILE.py:CLASS", "custom attention of the run, to import")
]
TaskOption = Annotated[str | None, option("--task", "FILE.py:NAME", "your own task of the run, to import")]
TasksOption = Annotated[
    list[str] | None, option("--task", "FILE.py:NAME", "your own task of a run, to import; repeatable")
]
ScoresOption = Annotated[
    list[str] | None, option("--score", "FILE.py:NAME", "your own score of the heads, to import; repeatable")
]
ScoreOption = Annotated[str | None, option("--score", "FILE.py:NAME", "your own score, which the run keeps")]
AttentionsOption = Annotated[
    list[str] | None,
    option("--attention", "FILE.py:CLASS", "custom attention of a run, to import; repeatable"),
]


def all_overrides(
    command: str, arguments: list[str] | None, options: list[str] | None, runs: Path | None = None
) -> list[str]:
    """Join both spellings of settings, arguments and `--set`; the config checks keys and values.

    Raises: UsageError for an argument that is no KEY=VALUE.
    """
    if any("=" not in argument or argument == "=" for argument in arguments or ()):
        from mhsa_cli.commands.suggestions import check_settings  # imports pydantic

        check_settings(command, arguments or (), runs_root(runs))
    return [*(arguments or ()), *(options or ())]
