"""The files of a run as plain data, to travel between machines that share no disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from mhsa_cli.runs.commit import sweep_orphans
from mhsa_cli.runs.disk import (
    in_flight,
    read_file,
    remove,
    retried,
    storage_error,
    sync_folder,
    temporary_name,
    write_new_file,
)
from mhsa_cli.runs.listing import LOCK

Parcel = Mapping[str, bytes]
_LIMIT = 1 << 33  # bytes of one file; far beyond any run of this program


def pack_run(run: Path) -> Parcel:
    """Read every file of a run that nobody writes to, by its path inside; no files if there is no such folder.

    Raises: RunError for what is no regular file, StorageError.
    """
    files = {}
    for folder, folders, names in os.walk(run):
        folders[:] = [name for name in folders if not name.startswith(".tmp-")]
        for name in names:
            if name != LOCK and not name.startswith(".tmp-"):
                path = Path(folder, name)
                files[path.relative_to(run).as_posix()] = read_file(path, _LIMIT)
    return files


def unpack_run(run: Path, parcel: Parcel) -> None:
    """Write a run's files as the folder `run`, all or nothing; what stood there is replaced. Raises: StorageError."""
    for name in parcel:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{name!r} leads out of the run folder")
    sweep_orphans(run.parent)
    temporary = run.with_name(temporary_name(run.name))
    in_flight.add(temporary.name)
    try:
        for name, data in parcel.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_new_file(path, data)
        for folder, _, _ in os.walk(temporary):
            sync_folder(Path(folder))
        remove(run)
        retried(os.rename, temporary, run)
        sync_folder(run.parent)
    except OSError as error:
        raise storage_error("write", run, error) from error
    finally:
        remove(temporary)
        in_flight.discard(temporary.name)
