"""Files that a command makes outside its run: under a new name only, and there completely or not at all."""

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
    """Make sure that `path` is free and lies in no run folder, before any work. Raises: UsageError, StorageError.

    `named` shows how it is given on the command line.
    """
    if not path.name:
        raise UsageError(f"'{escape(path)}' is no name for what is written", f"name a new file or folder: {named}")
    if os.path.lexists(path):
        raise UsageError((path, " already exists"), f"nothing is overwritten: choose another name, {named}", "taken")
    with storage_errors("write", path):  # it may count from a folder that is gone
        above = Path(os.path.realpath(path)).parents
    for folder in above:
        if (folder / RUN).is_file():
            said = (path, " would lie in the run folder ", folder)
            raise UsageError(said, f"put it somewhere else: {named}", "in-a-run")


def write_new(path: Path, files: Mapping[str, bytes | Iterable[bytes]]) -> list[Path]:
    """Write `files` as a new folder, or the one file named "" as `path` itself; return what was written.

    Raises: StorageError if the disk refuses; nothing is left then.
    """
    if list(files) == [""]:
        write_file_atomic(path, files[""], new=True)
        return [path]
    with storage_errors("write", path), temporary_beside(path) as temporary:
        write_new_folder(temporary, files)
        retried(os.rename, temporary, path)
        sync_folder(path.parent)
    return [path / name for name in sorted(files)]
