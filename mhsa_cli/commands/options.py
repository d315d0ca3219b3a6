"""The options that several commands share, and short forms of options and arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mhsa_cli.errors import UsageError
from mhsa_cli.runs.names import runs_root
from mhsa_cli.text import escape


def option(name: str, value: str, help: str, **more: Any) -> Any:
    """Make an option: its spellings, as `--output, -o`, what stands for its value, and its line of help."""
    return typer.Option(*name.split(", "), metavar=value, help=help, **more)


def flag(name: str, help: str) -> Any:
    """Make an option without a value, such as `--quick` or `--log/--linear`."""
    return typer.Option(name, help=help)


def argument(name: str, help: str) -> Any:
    """Make an argument: what stands for it, and its line of help."""
    return typer.Argument(metavar=name, help=help)


def check_picture(given: Path | None) -> Path | None:
    """Check before any work that the wanted file's ending names a picture. Raises: UsageError."""
    if given is None:
        return None
    from mhsa_cli.renderers.files.formats import RENDERERS
    from mhsa_cli.renderers.files.png import need_pillow

    ending = given.suffix.lower().removeprefix(".")
    if ending not in RENDERERS:
        possible = ", ".join(f".{name}" for name in RENDERERS)
        better = escape(given.with_suffix(".svg")) if given.name else "picture.svg"
        raise UsageError(f"'{escape(given)}': pictures are written as {possible}", f"name it {better}")
    if ending == "png":
        need_pillow()
    return given


ConfigOption = Annotated[str | None, option("--config, -c", "FILE", "A YAML config; left out, the defaults.")]
Overrides = Annotated[list[str] | None, argument("[KEY=VALUE]...", "Settings to change, such as n_heads=8.")]
SetOption = Annotated[list[str] | None, option("--set", "KEY=VALUE", "The same as KEY=VALUE; once for each key.")]
RunArgument = Annotated[
    str | None,
    argument("[RUN]", "A run's name, or the path of its folder; `newest`, or left out: the one started last."),
]
RunsOption = Annotated[Path | None, option("--runs", "DIR", "Where runs are kept; left out, $MHSA_RUNS or ./runs.")]
HeadsOption = Annotated[
    str | None, option("--head, --heads", "L0.H3[,..]", "These heads only; L0 is all of layer 0, 3 every H3.")
]
JsonOption = Annotated[bool, flag("--json", "Print one JSON document on stdout and nothing else.")]
OutputOption = Annotated[
    Path | None,
    option("--output, -o", "FILE.svg|.html|.png", "Also write the picture to a file.", callback=check_picture),
]
AttentionOption = Annotated[
    str | None, option("--attention", "FILE.py:CLASS", "Import your own block, which the run was trained with.")
]
AttentionsOption = Annotated[
    list[str] | None, option("--attention", "FILE.py:CLASS", "Import your own block for this; may be repeated.")
]


def all_overrides(
    command: str, arguments: list[str] | None, options: list[str] | None, runs: Path | None = None
) -> list[str]:
    """Join both spellings of settings, arguments and `--set`. Raises: UsageError for a word that means something else.

    What else is wrong with them, the config says.
    """
    if any("=" not in argument or argument == "=" for argument in arguments or ()):
        from mhsa_cli.commands.suggestions import check_settings  # pydantic comes with it

        check_settings(command, arguments or (), runs_root(runs))
    return [*(arguments or ()), *(options or ())]
