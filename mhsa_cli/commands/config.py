"""`mhsa config`: write, check and show configs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from mhsa_cli.commands.command_line import Command, Group
from mhsa_cli.commands.options import JsonOption, SetOption, argument, flag
from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.dump import dump_sweep, dump_yaml, json_schema, plain_sweep, template
from mhsa_cli.config.estimate import parameters
from mhsa_cli.config.grid import Grid, sweep_of
from mhsa_cli.config.load import check as check_document
from mhsa_cli.config.load import load_config
from mhsa_cli.config.overrides import is_override
from mhsa_cli.config.problems import ConfigError, Problem
from mhsa_cli.config.recipes import recipes, summary
from mhsa_cli.config.schema import Config
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.messages import writable
from mhsa_cli.runs.output_files import check_new, write_new
from mhsa_cli.text import escape, plural, quoted

app = typer.Typer(cls=Group, rich_markup_mode=None)
F = TypeVar("F", bound=Callable[..., None])


def _command(title: str, example: str, more: str = "") -> Callable[[F], F]:
    text = "\n\n".join(filter(None, (title, more)))
    return app.command(example.split()[0], cls=Command, help=text, epilog=f"Example: mhsa config {example}")


def _say(text: str) -> None:
    print(writable(text, sys.stdout))


@_command("Write the default config, every line explained", "init my.yaml", "An existing file is never overwritten.")
def init(file: Annotated[str, argument("[FILE]", "file to write [default: -, which is stdout]")] = "-") -> None:
    """Run `mhsa config init`."""
    if file == "-":
        _say(template().rstrip("\n"))
        return
    check_new(Path(file), "mhsa config init FILE")
    write_new(Path(file), {"": template().encode()})
    _say(f"wrote {escape(file)}\nnext: mhsa train --config {quoted(file)}")


@_command("List the recipes: ready configs that are installed", "list", "Their names stand for files: --config NAME.")
def list_recipes(as_json: JsonOption = False) -> None:
    """Run `mhsa config list`."""
    from mhsa_cli.commands.output import Paper, print_json  # imports rich
    from mhsa_cli.renderers.kit.table import Column, table

    found = [{"name": name, "summary": summary(path), "path": str(path)} for name, path in recipes().items()]
    if as_json:
        print_json(found)
        return
    paper = Paper()
    columns = [
        Column("recipe", itemgetter("name"), whole=True),
        Column("what it trains", itemgetter("summary"), wraps=True),
    ]
    paper.draw(table(columns, found, paper.surface))
    paper.next("mhsa train --config copy")


@_command("Check configs and report every problem", "check my.yaml n_heads=8")
def check(
    arguments: Annotated[
        list[str], argument("CONFIG... [KEY=VALUE]...", "YAML file or recipe to check\nsettings to change")
    ],
    settings: SetOption = None,
) -> None:
    """Run `mhsa config check`."""
    files, overrides = _split(arguments, settings)
    if not files:
        raise UsageError("arguments: found no config, wanted CONFIG...", "show the defaults: mhsa config show")
    problems: list[Problem] = []
    for file in files:
        try:
            grid = sweep_of(file, overrides)
            found = _summary(load_config(file, overrides)) if grid is None else _sweep_summary(grid)
            _say(f"{escape(file)}: ok ({found})")
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)


@_command("Show a config with all defaults filled in", "show my.yaml n_heads=8", "The output is a config itself.")
def show(
    arguments: Annotated[
        list[str] | None,
        argument("[CONFIG] [KEY=VALUE]...", "YAML file or recipe [default: built-in]\nsettings to change"),
    ] = None,
    settings: SetOption = None,
    as_json: Annotated[bool, flag("--json", "print JSON instead of YAML; errors stay on stderr")] = False,
) -> None:
    """Run `mhsa config show`."""
    files, overrides = _split(arguments or [], settings)
    if len(files) > 1:
        raise UsageError(
            f"arguments: found {len(files)} files, wanted 1", "settings are written KEY=VALUE, without spaces"
        )
    file = files[0] if files else None
    if file is not None and (grid := sweep_of(file, overrides)) is not None:
        base = check_document(grid.base).to_dict()
        text = dump_sweep(base, grid.sweep).rstrip("\n")
        _say(json.dumps({**base, "sweep": plain_sweep(grid.sweep)}, indent=2) if as_json else text)
        return
    config = load_config(file, overrides)
    _say(json.dumps(config.to_dict(), indent=2) if as_json else dump_yaml(config).rstrip("\n"))


@_command("Write the JSON schema of configs", "schema", "Editors use it to complete and check settings.")
def schema() -> None:
    """Run `mhsa config schema`."""
    _say(json.dumps(json_schema(), indent=2))


def _split(arguments: list[str], settings: list[str] | None) -> tuple[list[str], list[str]]:
    files = [argument for argument in arguments if not is_override(argument)]
    return files, [*(argument for argument in arguments if is_override(argument)), *(settings or ())]


def _sweep_summary(grid: Grid) -> str:
    settings = plural(len(grid.cells), "setting")
    return f"sweep of {settings} x {plural(grid.seeds, 'seed')}, task {grid.cells[0].configs[0].task.name}"


def _summary(config: Config) -> str:
    count = parameters(config.task, config.model)
    unknown = "custom attention" if is_file(config.model.attention) else "the vocabulary of the file"
    weights = f"parameters depend on {unknown}" if count is None else f"{count:,} parameters"
    return f"task {config.task.name}, {weights}, {config.total_steps:,} steps"
