"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    str | None, typer.Option("--config", "-c", metavar="FILE", help="A YAML config; left out, the defaults.")
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change, such as n_heads=8.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="The same as KEY=VALUE; once for each key.")
]
RunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]", help="A run's name, or the path of its folder; `newest`, or left out: the one started last."
    ),
]
RunsOption = Annotated[
    Path | None,
    typer.Option("--runs", metavar="DIR", help="Where runs are kept; left out, $MHSA_RUNS or ./runs."),
]
HeadsOption = Annotated[
    str | None,
    typer.Option("--head", "--heads", metavar="L0.H3[,..]", help="These heads only; L0 is all of layer 0, 3 every H3."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE.svg|.html|.png", help="Also write the picture to a file."),
]
AttentionOption = Annotated[
    str | None,
    typer.Option("--attention", metavar="FILE.py:CLASS", help="Import your own block, which the run was trained with."),
]
AttentionsOption = Annotated[
    list[str] | None,
    typer.Option("--attention", metavar="FILE.py:CLASS", help="Import your own block for this; may be repeated."),
]


def all_overrides(
    command: str, arguments: list[str] | None, options: list[str] | None, runs: Path | None = None
) -> list[str]:
    """Join both spellings of settings, arguments and `--set`. Raises: UsageError for a word that means something else.

    What else is wrong with them, the config says.
    """
    if any("=" not in argument or argument == "=" for argument in arguments or ()):
        from mhsa_cli.commands.suggestions import check_settings
        from mhsa_cli.runs.names import runs_root

        check_settings(command, arguments or (), runs_root(runs))
    return [*(arguments or ()), *(options or ())]
