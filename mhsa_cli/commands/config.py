"""`mhsa config`: write a config to start from, check one, show what it means."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from mhsa_cli.commands.command_line import Command, Group
from mhsa_cli.commands.options import SetOption, argument, flag
from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.dump import dump_yaml, json_schema, template
from mhsa_cli.config.estimate import parameters
from mhsa_cli.config.load import load_config
from mhsa_cli.config.overrides import is_override
from mhsa_cli.config.problems import ConfigError, Problem
from mhsa_cli.config.schema import Config
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.messages import writable
from mhsa_cli.runs.output_files import check_new, write_new
from mhsa_cli.text import escape

app = typer.Typer(cls=Group, rich_markup_mode=None)

Files = Annotated[list[str], argument("FILE... [KEY=VALUE]...", "Configs, and settings to change.")]
MaybeFile = Annotated[list[str] | None, argument("[FILE] [KEY=VALUE]...", "A config, and settings to change.")]


def _say(text: str) -> None:
    print(writable(text, sys.stdout))


@app.command(
    cls=Command, help="Write the default config with a reason on every line. An existing file is never touched."
)
def init(file: Annotated[str, argument("[FILE]", "Where to; - is the terminal.")] = "-") -> None:
    """Run `mhsa config init`."""
    if file == "-":
        _say(template().rstrip("\n"))
        return
    check_new(Path(file), "mhsa config init FILE")
    write_new(Path(file), {"": template().encode()})
    _say(f"wrote {escape(file)}\nnext: mhsa train --config {escape(file)}")


@app.command(cls=Command, help="Check configs and name every problem in them.")
def check(arguments: Files, settings: SetOption = None) -> None:
    """Run `mhsa config check`."""
    files, overrides = _split(arguments, settings)
    if not files:
        raise UsageError("which config? wanted FILE... [KEY=VALUE]...", "`mhsa config show` shows the defaults")
    problems: list[Problem] = []
    for file in files:
        try:
            _say(f"{escape(file)}: ok ({_summary(load_config(file, overrides))})")
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)


@app.command(cls=Command, help="Show a config with every default filled in; it loads back as it is.")
def show(
    arguments: MaybeFile = None,
    settings: SetOption = None,
    as_json: Annotated[bool, flag("--json", "Write JSON instead of YAML.")] = False,
) -> None:
    """Run `mhsa config show`."""
    files, overrides = _split(arguments or [], settings)
    if len(files) > 1:
        raise UsageError(f"found {len(files)} files, wanted one", "settings are written KEY=VALUE, without spaces")
    config = load_config(files[0] if files else None, overrides)
    _say(json.dumps(config.to_dict(), indent=2) if as_json else dump_yaml(config).rstrip("\n"))


@app.command(cls=Command, help="Write the JSON schema of configs, for editors that complete and check as you type.")
def schema() -> None:
    """Run `mhsa config schema`."""
    _say(json.dumps(json_schema(), indent=2))


def _split(arguments: list[str], settings: list[str] | None) -> tuple[list[str], list[str]]:
    files = [argument for argument in arguments if not is_override(argument)]
    return files, [*(argument for argument in arguments if is_override(argument)), *(settings or ())]


def _summary(config: Config) -> str:
    count = parameters(config.task, config.model)
    unknown = "your own block" if is_file(config.model.attention) else "the file's vocabulary"
    weights = f"parameters: known with {unknown}" if count is None else f"{count:,} parameters"
    return f"task {config.task.name}, {weights}, {config.total_steps:,} steps"
