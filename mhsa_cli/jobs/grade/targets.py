"""What there is to grade: FILE:NAME, a file, or every file of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mhsa_cli.check.source.folders import files_in
from mhsa_cli.check.source.load import split
from mhsa_cli.check.source.read_file import read_script
from mhsa_cli.errors import UsageError


def with_entry(target: str, entry: str | None) -> str:
    """Add the name to be graded, where the target has none."""
    return target if entry is None or split(target)[1] is not None else f"{target}:{entry}"


def check_readable(target: str) -> None:
    """Read a target's file: a typing error is told at once, without a process. Raises: UsageError."""
    read_script(split(target)[0])


def expand(targets: Sequence[str], entry: str | None) -> list[str]:
    """List what is to be graded: every file of a folder, and what was named. Raises: UsageError."""
    names = []
    for target in targets:
        if not Path(target).is_dir():
            names.append(with_entry(target, entry))
            continue
        try:
            files = files_in(Path(target))
        except OSError as error:
            raise UsageError(f"{target} cannot be read: {error.strerror}", "give yourself the permission") from error
        if not files:
            raise UsageError(
                f"{target} holds no .py, .ipynb or .md file, nor does any folder in it",
                "name the folder of the submissions",
            )
        names += [str(file) if entry is None else f"{file}:{entry}" for file in files]
    return list(dict.fromkeys(names))
