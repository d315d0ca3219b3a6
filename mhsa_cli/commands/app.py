"""Every command, one file each. Importing this must not import torch: commands do so when they run."""

from __future__ import annotations

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

app = typer.Typer(
    name="mhsa",
    help="Train tiny attention models in seconds, in a terminal, and see what each head really does.",
    epilog="Start with: mhsa train task.name=copy",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command("train")(train.train)
app.command("inspect-heads")(inspect_heads.inspect_heads)
app.command("bench")(bench.bench)
app.command("check")(check.check)
app.command("compare")(compare.compare)
app.command("curve")(curve.curve)
app.command("explain")(explain.explain)
app.command("export")(export.export)
app.command("generate")(generate.generate)
app.command("runs")(runs.runs)
app.command("sweep")(sweep.sweep)
app.command("tasks")(tasks.tasks)
app.command("timeline")(timeline.timeline)
app.command("trace")(trace.trace)
app.command("verify")(verify.verify)
app.add_typer(config.app, name="config")


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
