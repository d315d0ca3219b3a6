"""The folder for runs, its file system, and what lies there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mhsa_cli.errors import StorageError
from mhsa_cli.records.doctor import Check
from mhsa_cli.runs.disk import storage_error
from mhsa_cli.runs.listing import RUN, list_sweeps, run_folders
from mhsa_cli.runs.names import find_root
from mhsa_cli.runs.new_folder import free_space
from mhsa_cli.runs.trial_write import try_folder
from mhsa_cli.text import byte_size, plural

LOW, LEAST = 2**30, 20 * 2**20  # bytes


def checks(root: Path) -> Iterator[Check]:
    """Examine what a new run needs of the disk; then count runs."""
    try:
        place = find_root(root)
        new = place != root
        path = str(root.absolute())
        value = f"{path}, made by the first run" if new else path
        yield Check("runs-folder", "disk", value, {"path": path, "exists": not new})
        yield _space(place)
        yield _writing(place)
        runs = sum((folder / RUN).is_file() for folder in run_folders(root))
        sweeps = len(list_sweeps(root))
        facts = {"runs": runs, "sweeps": sweeps}
        yield Check("runs", "disk", f"{plural(runs, 'run')}, {plural(sweeps, 'sweep')}", facts)
    except (OSError, StorageError) as refused:  # an OSError where the working folder was deleted
        error = refused if isinstance(refused, StorageError) else storage_error("use", root, refused)
        yield Check("runs-folder", "disk", error.message, {"code": error.code}, "refused", error.hint)


def _space(place: Path) -> Check:
    free = free_space(place)
    fault = "no-space" if free < LEAST else "low-space" if free < LOW else None
    return Check("space", "disk", f"{byte_size(free)} free", {"free": free}, fault)


def _writing(place: Path) -> Check:
    try:
        locks = try_folder(place)
    except StorageError as error:
        return Check("writing", "disk", error.message, {"code": error.code}, "refused", error.hint)
    value = f"files are replaced whole, {'locks hold' if locks else 'but locks do not hold'}"
    return Check("writing", "disk", value, {"locks": locks}, None if locks else "no-locks")
