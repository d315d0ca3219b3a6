"""The files that `mhsa check` writes: a table, and a report for each student."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from mhsa_cli.check.source.load import parse_block
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.grade.blocks import Row
from mhsa_cli.runs.atomic import write_file_atomic
from mhsa_cli.runs.disk import storage_errors
from mhsa_cli.runs.output_files import check_new

LONGEST = 100  # bytes of a name, so that a number and an ending fit


def report_names(rows: Sequence[Row]) -> dict[str, str]:
    """Name a file for each owner who hands in a block, after the sub-folder or file: safe anywhere, all different."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for owner in dict.fromkeys(row.owner for row in rows if not row.optional):
        path, name = parse_block(owner)
        stem = path.stem if path.suffix.lower() in (".py", ".ipynb", ".md") else path.name
        safe = re.sub(r"[^\w.-]+", "_", unicodedata.normalize("NFC", f"{stem}-{name}" if name else stem)).strip("._-")
        base = safe.encode()[:LONGEST].decode("utf-8", "ignore") or "block"
        number, chosen = 1, base
        while chosen.casefold() in taken:  # some file systems do not tell `Ann` from `ann`
            number += 1
            chosen = f"{base}-{number}"
        taken.add(chosen.casefold())
        names[owner] = f"{chosen}.md"
    return names


def check_free(table: Path | None, folder: Path | None, names: Sequence[str]) -> None:
    """Check before grading that all files can be written and none is overwritten. Raises: UsageError, StorageError."""
    if table is not None:
        check_new(table, "--csv FILE")
        _check_folder(table.parent, "--csv")
    if folder is not None:
        if folder.exists():
            _check_folder(folder, "--out")
        else:
            check_new(folder, "--out DIR")
            _check_folder(folder.parent, "--out")
        for name in names:
            check_new(folder / name, "--out DIR")


def _check_folder(folder: Path, option: str) -> None:
    if not folder.is_dir():
        raise UsageError(f"{option}: {folder} is no folder", f"create it first: mkdir -p {folder}")


def write_reports(folder: Path, reports: Mapping[str, str]) -> list[Path]:
    """Write a new file for each report into a folder, which is made if there is none. Raises: StorageError."""
    with storage_errors("create", folder):
        folder.mkdir(exist_ok=True)
    for name, text in reports.items():
        write_file_atomic(folder / name, text.encode("utf-8", "backslashreplace"), new=True)
    return [folder / name for name in reports]


def write_table(path: Path, text: str) -> Path:
    """Write a new file. Raises: StorageError."""
    write_file_atomic(path, text.encode("utf-8", "backslashreplace"), new=True)
    return path
