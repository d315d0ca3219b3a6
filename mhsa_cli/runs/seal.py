"""What a run that ended holds: size and SHA-256 of each file, listed in its run.json, and compared at every reading."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mhsa_cli.errors import RunError
from mhsa_cli.runs.disk import read_file, show, verify_hint
from mhsa_cli.runs.jsonfile import FILES
from mhsa_cli.runs.listing import CONFIG, HEADS, METRICS, RUN, SCORES, TEXT, load_info

LISTED = (CONFIG, METRICS, HEADS, SCORES, TEXT)
LIMIT = 1 << 31  # bytes of one file; far beyond any run of this program
_ATTEMPTS = 5


class ChangedError(RunError):
    """A file is not the one that its run ended with."""


def digest(data: bytes) -> dict[str, Any]:
    """Describe a file's content as run.json lists it."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def list_files(run: Path) -> dict[str, dict[str, Any]]:
    """Describe the files of a run as they are on the disk now. Raises: RunError, StorageError."""
    return {name: digest(read_file(run / name, LIMIT)) for name in LISTED if os.path.lexists(run / name)}


def listed_files(run: Path) -> Mapping[str, Any]:
    """Read what run.json lists; nothing while the run is at work, was broken off or comes from an older version."""
    found = load_info(run).get(FILES)
    return found if isinstance(found, dict) else {}


def read_listed(run: Path, name: str, limit: int = LIMIT) -> bytes:
    """Read a file of a run and, if run.json lists it, compare. Raises: ChangedError, RunError, StorageError."""
    for _ in range(_ATTEMPTS):
        wanted = listed_files(run).get(name)
        data, problem = b"", None
        try:
            data = read_file(run / name, limit)
        except RunError as error:
            problem = error
        if problem is None and (wanted is None or digest(data) == wanted):
            return data
        if listed_files(run).get(name) == wanted:  # else the run just went on: look again
            if problem is not None:
                raise RunError(problem.message, problem.hint or way_out(run, name)) from problem
            raise _changed(run, name, data, wanted)
    raise RunError(f"{show(run / name)} changes faster than it can be read", "try again")


def _changed(run: Path, name: str, data: bytes, wanted: Any) -> ChangedError:
    size = wanted.get("size") if isinstance(wanted, dict) else None
    how = "its hash differs from" if len(data) == size else f"it has {len(data)} bytes, {size} in"
    return ChangedError(f"{show(run / name)} is damaged or was edited: {how} the list in {RUN}", way_out(run, name))


def way_out(run: Path, name: str) -> str:
    """Say what to do about a file that is not the one its run ended with."""
    quoted = show(shlex.quote(str(run)))
    if name == CONFIG:
        return verify_hint(run)
    if name == HEADS:
        return (
            f"delete {HEADS}, and mhsa inspect-heads computes it anew from the checkpoint; or use --tokens\n"
            f"  what is whole: mhsa verify {quoted}"
        )
    again = show(shlex.quote(str(run / CONFIG)))
    return f"{verify_hint(run)}\n  to repeat the run: mhsa train --config {again}"
