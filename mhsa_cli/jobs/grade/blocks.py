"""The blocks to grade: FILE:NAME, a file, or every file of a folder at any depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mhsa_cli.check.source.load import parse_block
from mhsa_cli.check.source.read_file import MAX_BYTES, read_script
from mhsa_cli.errors import UsageError

SKIPPED = ("__pycache__", "node_modules", "site-packages")


def with_entry(block: str, entry: str | None) -> str:
    """Add the name to be graded to a file given without one."""
    return block if entry is None or parse_block(block)[1] is not None else f"{block}:{entry}"


def check_readable(block: str) -> None:
    """Read the file of a block, so that a mistyped name is reported before a process starts. Raises: UsageError."""
    read_script(parse_block(block)[0])


def expand(blocks: Sequence[str], entry: str | None) -> list[str]:
    """List all blocks to be graded, with every file of a folder. Raises: UsageError."""
    expanded = []
    for block in blocks:
        if not Path(block).is_dir():
            expanded.append(with_entry(block, entry))
            continue
        try:
            files = files_in(Path(block))
        except OSError as error:
            raise UsageError(f"{block} cannot be read: {error.strerror}", "chmod u+rX opens the folder") from error
        if not files:
            what = f"{block} holds no .py, .ipynb or .md file, nor does any folder in it"
            raise UsageError(what, "name the folder that holds the blocks")
        expanded += [str(file) if entry is None else f"{file}:{entry}" for file in files]
    return list(dict.fromkeys(expanded))


def files_in(folder: Path) -> list[Path]:
    """List the files that can be graded in a folder and below it: the files of each folder before its subfolders.

    Hidden names, environments and packages are skipped, and links to folders not followed. Broken links, folders that
    cannot be read and links to folders elsewhere are listed, so that each becomes a row with its error.

    Raises: OSError if the folder itself cannot be read.
    """
    return list(_files(folder.resolve(), sorted(folder.iterdir())))


def _files(top: Path, items: list[Path]) -> Iterator[Path]:
    folders = []
    for item in items:
        if item.name.startswith(".") or item.name in SKIPPED:
            continue
        if item.is_dir() and not item.is_symlink():
            folders.append(item)
        elif item.is_dir():
            if not item.resolve().is_relative_to(top):
                yield item
        elif item.suffix.lower() in MAX_BYTES or (not item.suffix and not item.exists()):  # a broken link
            yield item
    for folder in folders:
        try:
            within = sorted(folder.iterdir())
        except OSError:
            yield folder
            continue
        if not any(item.name == "pyvenv.cfg" for item in within):
            yield from _files(top, within)
