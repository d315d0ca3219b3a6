"""Sizes and SHA-256 digests of a finished run's files: listed in run.json, compared at every read."""

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
from mhsa_cli.runs.listing import CONFIG, HEADS, INIT, METRICS, RUN, SCORES, TEXT, load_info
from mhsa_cli.text import quoted

LISTED = (CONFIG, METRICS, HEADS, SCORES, TEXT, INIT)
_ATTEMPTS = 5


class ChangedError(DamageError):
    """A file differs from the one listed in run.json."""

    code = "changed"


def list_files(run: Path) -> dict[str, dict[str, Any]]:
    """List the files of a run with size and digest. Raises: DamageError, StorageError."""
    listed = {}
    for name in LISTED:
        if os.path.lexists(run / name):
            with OpenFile(run / name, LIMIT) as file:
                listed[name] = digest(file.blocks())
    return listed


Listed = Mapping[str, Any]


def listed_in(info: Mapping[str, Any]) -> Listed:
    """Return the files that a run.json lists: none while the run is active or interrupted, or if it is older."""
    files = info.get(FILES)
    return files if isinstance(files, dict) else {}


def open_listed(run: Path, name: str, listed: Listed, limit: int = LIMIT) -> OpenFile:
    """Open a file of a run for reading; one that run.json lists is compared first, block by block.

    `listed` is the list at the time the run was opened. Raises: ChangedError, DamageError, StorageError.
    """
    for _ in range(_ATTEMPTS):
        expected = listed.get(name)
        try:
            with ExitStack() as opened:
                file = opened.enter_context(OpenFile(run / name, limit))
                if expected is None or digest(file.blocks()) == expected:
                    opened.pop_all()
                    return file
                problem: DamageError = _changed(run, name, file, expected)
        except DamageError as error:
            problem = error
            error.hint = error.hint or way_out(run, name)
        listed = listed_in(load_info(run))
        if listed.get(name) == expected:  # otherwise the run was just resumed: read again
            raise problem
    raise RunError((run / name, " changes faster than it can be read"), "try again")


def read_listed(run: Path, name: str, listed: Listed, limit: int = LIMIT) -> bytes:
    """Read a file of a run, compared as in `open_listed`. Raises: ChangedError, DamageError, StorageError."""
    with open_listed(run, name, listed, limit) as file:
        return file.read()


def _changed(run: Path, name: str, file: OpenFile, expected: Any) -> DamageError:
    try:
        check_line_ends(file.path, file.lines, lambda pieces: digest(pieces) == expected)
    except LineEndsError as error:
        return error
    size = expected.get("size") if isinstance(expected, dict) else None
    how = "its hash differs from" if file.size == size else f"it has {file.size} bytes, {size} in"
    return ChangedError((file.path, IS, f"damaged or was edited: {how} the list in {RUN}"), way_out(run, name))


def way_out(run: Path, name: str) -> str:
    """Return the hint about a changed file of a run."""
    if name == CONFIG:
        return verify_hint(run)
    if name == HEADS:
        return f"{ANEW}\n  {verify_hint(run)}"
    return f"{verify_hint(run)}\n  to repeat the run: mhsa train --config {quoted(run / CONFIG)}"
