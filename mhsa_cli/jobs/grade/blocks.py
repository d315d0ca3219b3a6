"""The blocks to grade: FILE:NAME, a file, or everything in a folder, with a row for whatever cannot be graded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mhsa_cli.check.source.load import parse_block
from mhsa_cli.check.source.read_file import MAX_BYTES, read_script
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.records.check import NOTHING, OUTSIDE, Grade, GradeOptions, Note

SKIPPED = ("__pycache__", "__MACOSX", "node_modules", "site-packages")
LISTED = 3  # names of other files in a note


@dataclass(frozen=True, slots=True)
class Row:
    """A block to be graded, and whose it is: the sub-folder or file of a folder that was named.

    `refused` says why it is not graded; `optional`, that it is no submission, so that the exit code ignores it.
    """

    block: str
    owner: str
    refused: Note | None = None
    optional: bool = False


def check_options(options: GradeOptions) -> None:
    """Check what the user states about a block. Raises: UsageError."""
    if options.order is not None and sorted(options.order) != ["k", "q", "v"]:
        raise unwanted("--order", options.order, "the letters q, k and v, each once", "for example: --order kqv")
    if options.rope not in (None, "none", "interleaved", "half"):
        raise unwanted("--rope", options.rope, "none, interleaved or half")


def with_entry(block: str, entry: str | None) -> str:
    """Add the name to be graded to a file given without one."""
    return block if entry is None or parse_block(block)[1] is not None else f"{block}:{entry}"


def check_readable(block: str) -> None:
    """Read the file of a block, so that a mistyped name is reported before a process starts. Raises: UsageError."""
    read_script(parse_block(block)[0])


def expand(blocks: Sequence[str], entry: str | None, besides: Iterable[Path] = ()) -> list[Row]:
    """List all blocks to be graded, with everything in a folder but what is written there. Raises: UsageError."""
    written = {os.path.realpath(path) for path in besides}
    rows: dict[str, Row] = {}
    for block in blocks:
        found = [Row(with_entry(block, entry), block)] if not Path(block).is_dir() else _folder(block, entry, written)
        for row in found:
            rows.setdefault(row.block, row)
    return list(rows.values())


def is_passed(rows: Sequence[Row], grades: Sequence[Grade]) -> bool:
    """Whether all blocks are right, and nobody handed in nothing.

    A file without attention, or a folder of other files, is no failure beside a graded block of the same owner.
    """
    graded = {row.owner for row, grade in zip(rows, grades, strict=True) if not _is_nothing(grade)}
    return all(
        grade.passed or (_is_nothing(grade) and (row.optional or row.owner in graded))
        for row, grade in zip(rows, grades, strict=True)
    )


def _is_nothing(grade: Grade) -> bool:
    """Whether there was nothing to grade in a file, or in a folder that is not empty."""
    return grade.failure == NOTHING and grade.tried[0].facts.get("files") != 0


def _folder(block: str, entry: str | None, written: set[str]) -> list[Row]:
    top = Path(block)
    try:
        rows = list(_rows(os.path.realpath(top), None, sorted(top.iterdir()), entry, written))
    except OSError as error:
        raise UsageError(f"{block} cannot be read: {error.strerror}", "chmod u+rX opens the folder") from error
    if all(row.optional for row in rows):
        what = f"{block} holds no .py, .ipynb or .md file, nor does any folder in it"
        raise UsageError(what, "name the folder that holds the blocks")
    return rows


def _rows(
    within: str, owner: Path | None, items: Iterable[Path], entry: str | None, written: set[str]
) -> Iterator[Row]:
    """Yield a row for each file that can be graded in a folder and below it: files first, then sub-folders.

    A link is followed to files `within` a folder only. Broken links, links that leave, folders that cannot be read
    and folders without Python are rows, too. Hidden names, environments and packages are skipped.
    """
    folders = []
    for item in items:
        whose = str(owner or item)
        if item.name.startswith(".") or item.name in SKIPPED or os.path.realpath(item) in written:
            continue
        if item.is_symlink() and item.exists() and not _is_below(os.path.realpath(item), within):
            yield Row(str(item), whose, Note(OUTSIDE, "a link that leaves its folder is not followed"))
        elif os.path.isdir(item) and not item.is_symlink():  # noqa: PTH112, Path.is_dir raises where it may not look
            folders.append(item)
        elif os.path.isdir(item):  # noqa: PTH112
            if owner is None:
                yield Row(str(item), whose, Note(OUTSIDE, "a link to another folder is not followed"))
        elif item.suffix.lower() in MAX_BYTES or (item.is_symlink() and not item.exists()):
            block = str(item) if entry is None else f"{item}:{entry}"
            yield Row(block, whose, optional=item.name == "__init__.py")
        elif owner is None:
            yield Row(str(item), whose, Note(NOTHING, "no .py, .ipynb or .md file"), optional=True)
    for folder in folders:
        yield from _sub_folder(folder, within, owner, entry, written)


def _sub_folder(folder: Path, within: str, owner: Path | None, entry: str | None, written: set[str]) -> Iterator[Row]:
    try:
        items = sorted(folder.iterdir())
    except OSError:
        yield Row(str(folder), str(owner or folder))
        return
    if any(item.name == "pyvenv.cfg" for item in items):
        return
    rows = list(_rows(within if owner else os.path.realpath(folder), owner or folder, items, entry, written))
    if rows and not all(row.refused is not None and row.refused.kind == NOTHING for row in rows):
        yield from rows
        return
    files = [path.name for path in folder.rglob("*") if not path.is_dir() and not path.name.startswith(".")]
    more = f" and {len(files) - LISTED} more" if len(files) > LISTED else ""
    holds = f", only {', '.join(sorted(files)[:LISTED])}{more}" if files else ": it is empty"
    text = f"no .py, .ipynb or .md file in it{holds}"
    yield Row(str(folder), str(owner or folder), Note(NOTHING, text, {"files": len(files)}))


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
