"""Run folders as bytes, to be sent between machines without a shared file system."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from mhsa_cli.runs.atomic import in_flight, remove, sync_folder, temporary_name
from mhsa_cli.runs.commit import discard, sweep_orphans
from mhsa_cli.runs.disk import LIMIT, read_file, retried, storage_errors
from mhsa_cli.runs.listing import LOCK

Parcel = Mapping[str, bytes]


def pack_run(run: Path) -> Parcel:
    """Read every file of a run without an owner, by its path in the folder. Raises: RunError, StorageError."""
    files = {}
    for folder, folders, names in os.walk(run):
        folders[:] = [name for name in folders if not name.startswith(".tmp-")]
        for name in names:
            if name != LOCK and not name.startswith(".tmp-"):
                path = Path(folder, name)
                files[path.relative_to(run).as_posix()] = read_file(path, LIMIT)
    return files


def unpack_runs(parent: Path, parcels: Mapping[str, Parcel]) -> None:
    """Write runs as folders of `parent`, which the caller owns, each all or nothing; existing folders are replaced.

    One sync for all: syncing file by file takes many times as long. Raises: StorageError.
    """
    for name in (name for run, parcel in parcels.items() for name in (run, *parcel)):
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{name!r} is outside the run folder")
    sweep_orphans(parent)
    temporary = {run: parent / temporary_name() for run in parcels}
    in_flight.update(path.name for path in temporary.values())
    try:
        with storage_errors("write runs into", parent):
            for run, parcel in parcels.items():
                for name, data in parcel.items():
                    path = temporary[run] / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
            if hasattr(os, "sync"):
                os.sync()
            for run, path in temporary.items():
                discard(parent / run)
                retried(os.rename, path, parent / run)
            sync_folder(parent)
    finally:
        for path in temporary.values():
            remove(path)
            in_flight.discard(path.name)
