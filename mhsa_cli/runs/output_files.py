"""Files that a command writes outside runs: never over an existing one, and all or nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from mhsa_cli.errors import UsageError
from mhsa_cli.runs.atomic import sync_folder, temporary_beside, write_file_atomic, write_new_folder
from mhsa_cli.runs.disk import retried, storage_errors
from mhsa_cli.runs.listing import RUN
from mhsa_cli.text import escape


def check_new(path: Path, named: str = "-o NAME") -> None:
    """Check that `path`, given as `named`, is free and not in a run folder. Raises: UsageError, StorageError."""
    if not path.name:
        raise UsageError(f"`{escape(path)}` is not a name for a new file or folder", f"choose one: {named}")
    if os.path.lexists(path):
        raise UsageError((path, " already exists"), f"nothing is overwritten: choose another name, {named}", "taken")
    with storage_errors("write", path):  # the working directory may be deleted
        above = Path(os.path.realpath(path)).parents
    for folder in above:
        if (folder / RUN).is_file():
            message = (path, " would be in the run folder ", folder)
            raise UsageError(message, f"choose a place outside: {named}", "in-a-run")


def write_new(path: Path, files: Mapping[str, bytes | Iterable[bytes]]) -> list[Path]:
    """Write `files` as a new folder, or the only one, named "", as `path`; return the paths. Raises: StorageError."""
    if list(files) == [""]:
        write_file_atomic(path, files[""], new=True)
        return [path]
    with storage_errors("write", path), temporary_beside(path) as temporary:
        write_new_folder(temporary, files)
        retried(os.rename, temporary, path)
        sync_folder(path.parent)
    return [path / name for name in sorted(files)]
