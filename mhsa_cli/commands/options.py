"""The options that every command with a config shares."""

from __future__ import annotations

from typing import Annotated

import typer

ConfigOption = Annotated[
    str | None, typer.Option("--config", "-c", metavar="FILE", help="A YAML config; left out, the defaults.")
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change, such as n_heads=8.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="The same as KEY=VALUE; may be repeated.")
]


def all_overrides(arguments: list[str] | None, options: list[str] | None) -> list[str]:
    """Join both spellings: those of `--set` come last, so they count."""
    return [*(arguments or ()), *(options or ())]
