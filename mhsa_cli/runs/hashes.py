"""What a run that ended holds: size and SHA-256 of each file, listed in its run.json, and compared at every reading."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mhsa_cli.errors import IS, DamageError, RunError
from mhsa_cli.runs.disk import LIMIT, OpenFile, digest, verify_hint
from mhsa_cli.runs.heads import ANEW
from mhsa_cli.runs.json_file import FILES
from mhsa_cli.runs.line_ends import LineEndsError, check_line_ends
from mhsa_cli.runs.listing import CONFIG, HEADS, METRICS, RUN, SCORES, TEXT, load_info
from mhsa_cli.text import quoted

LISTED = (CONFIG, METRICS, HEADS, SCORES, TEXT)
_ATTEMPTS = 5


class ChangedError(DamageError):
    """A file is not the one that its run ended with."""

    code = "changed"


def list_files(run: Path) -> dict[str, dict[str, Any]]:
    """Describe the files of a run as they are on the disk now. Raises: DamageError, StorageError."""
    found = {}
    for name in LISTED:
        if os.path.lexists(run / name):
            with OpenFile(run / name, LIMIT) as file:
                found[name] = digest(file.blocks())
    return found


Listed = Mapping[str, Any]


def listed_in(info: Mapping[str, Any]) -> Listed:
    """Give what a run.json lists; nothing while the run is at work, was broken off or comes from an older version."""
    found = info.get(FILES)
    return found if isinstance(found, dict) else {}


def open_listed(run: Path, name: str, listed: Listed, limit: int = LIMIT) -> OpenFile:
    """Open a file of a run for reading; if run.json lists it, it is compared first, block by block.

    `listed` is what run.json listed when the run was opened. Raises: ChangedError, DamageError, StorageError.
    """
    for _ in range(_ATTEMPTS):
        wanted = listed.get(name)
        try:
            with ExitStack() as opened:
                file = opened.enter_context(OpenFile(run / name, limit))
                if wanted is None or digest(file.blocks()) == wanted:
                    opened.pop_all()
                    return file
                problem: DamageError = _changed(run, name, file, wanted)
        except DamageError as error:
            problem = error
            error.hint = error.hint or way_out(run, name)
        listed = listed_in(load_info(run))
        if listed.get(name) == wanted:  # else the run just went on: look again
            raise problem
    raise RunError((run / name, " changes faster than it can be read"), "try again")


def read_listed(run: Path, name: str, listed: Listed, limit: int = LIMIT) -> bytes:
    """Read a whole file of a run, compared as `open_listed` does. Raises: ChangedError, DamageError, StorageError."""
    with open_listed(run, name, listed, limit) as file:
        return file.read()


def _changed(run: Path, name: str, file: OpenFile, wanted: Any) -> DamageError:
    """Say how a file differs from the one that is listed."""
    try:
        check_line_ends(file.path, file.lines, lambda pieces: digest(pieces) == wanted)
    except LineEndsError as error:
        return error
    size = wanted.get("size") if isinstance(wanted, dict) else None
    how = "its hash differs from" if file.size == size else f"it has {file.size} bytes, {size} in"
    said = f"damaged or was edited: {how} the list in {RUN}"
    return ChangedError((file.path, IS, said), way_out(run, name))


def way_out(run: Path, name: str) -> str:
    """Say what to do about a file that is not the one its run ended with."""
    if name == CONFIG:
        return verify_hint(run)
    if name == HEADS:
        return f"{ANEW}\n  what is whole: mhsa verify {quoted(run)}"
    return f"{verify_hint(run)}\n  to repeat the run: mhsa train --config {quoted(run / CONFIG)}"
