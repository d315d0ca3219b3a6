"""Every command, one file each. Importing this must not import torch: commands do so when they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from mhsa_cli import __version__
from mhsa_cli.commands import (
    bench,
    check,
    compare,
    config,
    curve,
    explain,
    export,
    generate,
    inspect_heads,
    runs,
    sweep,
    tasks,
    timeline,
    trace,
    train,
    verify,
)
from mhsa_cli.commands.command_line import Command, Group, Help

app = typer.Typer(
    name="mhsa",
    help="Train tiny attention models in seconds, in a terminal, and see what each head really does.",
    epilog="Start with: mhsa train task.name=copy",
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
COMMANDS: dict[str, tuple[Callable[..., None], Help]] = {
    "train": (train.train, train.HELP),
    "inspect-heads": (inspect_heads.inspect_heads, inspect_heads.HELP),
    "bench": (bench.bench, bench.HELP),
    "check": (check.check, check.HELP),
    "compare": (compare.compare, compare.HELP),
    "curve": (curve.curve, curve.HELP),
    "explain": (explain.explain, explain.HELP),
    "export": (export.export, export.HELP),
    "generate": (generate.generate, generate.HELP),
    "runs": (runs.runs, runs.HELP),
    "sweep": (sweep.sweep, sweep.HELP),
    "tasks": (tasks.tasks, tasks.HELP),
    "timeline": (timeline.timeline, timeline.HELP),
    "trace": (trace.trace, trace.HELP),
    "verify": (verify.verify, verify.HELP),
}


def _register_commands() -> None:
    for name, (function, told) in COMMANDS.items():
        example = f"Example: {told.example}" if told.example else None
        app.command(name, cls=Command, help=told.text, epilog=example)(function)
    app.add_typer(config.app, name="config")


_register_commands()


def _version(wanted: bool) -> None:
    if wanted:
        print(f"mhsa {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass
