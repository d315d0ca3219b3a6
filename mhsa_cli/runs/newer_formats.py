"""Parts of a run that only a newer mhsa reads: looked for before anything of the run is changed or deleted."""

from __future__ import annotations

import os
from pathlib import Path

from mhsa_cli.errors import RunError, StorageError
from mhsa_cli.runs.checkpoints import STATE, is_damage, list_checkpoints
from mhsa_cli.runs.commit import MANIFEST
from mhsa_cli.runs.disk import read_file
from mhsa_cli.runs.json_file import parse_document
from mhsa_cli.runs.listing import HEADS, RUN

LIMIT = 1 << 30  # bytes; heads.json is the largest of them


def refuse_newer(run: Path) -> None:
    """Make sure that no part of a run folder is of a newer format; what is damaged is the readers' business.

    Raises: NewerFormatError, StorageError for a part that may be one, and cannot be read here.
    """
    try:
        saved = list_checkpoints(run)
    except (RunError, StorageError):
        saved = []
    parts = [run / RUN, run / HEADS, *(item.path / name for item in saved for name in (MANIFEST, STATE))]
    for part in filter(os.path.lexists, parts):
        try:
            parse_document(read_file(part, LIMIT), part)
        except (RunError, StorageError) as error:
            if not is_damage(error):
                raise
