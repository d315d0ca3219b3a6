"""Examine what mhsa needs: machine, torch, libraries, terminal, disk. An error in one part does not end the others."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mhsa_cli.errors import MhsaError, StorageError, UsageError
from mhsa_cli.jobs.doctor import folder, imports, libraries, machine, screen
from mhsa_cli.records.doctor import Check, Examination, Section, Terminal
from mhsa_cli.text import escape, shortened

LONGEST = 300  # characters of a value
ENVIRONMENT = "environment"  # code of the error


def examine(root: Path, terminal: Terminal) -> Examination:
    """Check the environment, torch, the libraries, the terminal, and the disk of the folder for runs."""
    environ = dict(os.environ)  # as it was: loading our own code sets MKL_CBWR
    found = imports.import_all(libraries.MODULES)
    parts: list[tuple[Section, Callable[[], Iterator[Check]]]] = [
        ("environment", machine.checks),
        ("torch", lambda: imports.checks(found, environ)),
        ("libraries", lambda: libraries.checks(found)),
        ("terminal", lambda: screen.checks(terminal, environ)),
        ("disk", lambda: folder.checks(root)),
    ]
    homes = _homes()
    return Examination([_without_home(check, homes) for section, part in parts for check in _guarded(section, part)])


def _guarded(section: Section, part: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    try:
        yield from part()
    except (Exception, SystemExit) as error:  # a library may end Python where it is imported
        why = error.message if isinstance(error, MhsaError) else f"{type(error).__name__}: {error}"
        yield Check(section, section, why, {"error": type(error).__name__}, "unknown")


def failure(examination: Examination) -> MhsaError | None:
    """Return the error that fits the first problem: of the disk, or of the environment; None if there is none."""
    if not (problems := examination.problems):
        return None
    ids = ", ".join(check.id for check in problems)
    if problems[0].section == "disk":
        return StorageError(f"runs cannot be kept here: {ids}")
    return UsageError(f"mhsa cannot be used like this: {ids}", code=ENVIRONMENT)


def _homes() -> list[str]:
    """List the home folder's names, the longest first; a folder that stands for no user is none."""
    try:
        home = Path.home()
        names = {str(home), str(home.resolve())}
    except (RuntimeError, OSError):
        return []
    return sorted((name for name in names if len(Path(name).parts) > 1), key=len, reverse=True)


def _without_home(check: Check, homes: list[str]) -> Check:
    """Shorten the home folder to ~ wherever it stands, and escape what a terminal cannot print."""

    def shown(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: shown(item) for key, item in value.items()}
        if isinstance(value, list):
            return [shown(item) for item in value]
        return _cleaned(value, homes) if isinstance(value, str) else value

    return replace(
        check,
        value=shortened(" ".join(_cleaned(check.value, homes).split()), LONGEST),
        facts=shown(check.facts),
        way_out=check.way_out and _cleaned(check.way_out, homes),
    )


def _cleaned(text: str, homes: list[str]) -> str:
    for home in homes:
        text = re.sub(rf"(?<![\w./-]){re.escape(home)}(?![\w.-])", "~", text)
    return "\n".join(map(escape, text.split("\n")))
