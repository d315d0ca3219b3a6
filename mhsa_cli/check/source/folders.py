"""What there is to grade in a folder, at any depth: nothing that may be a block is passed over in silence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mhsa_cli.check.source.read_file import LIMIT

NOT_THEIRS = ("__pycache__", "node_modules", "site-packages")  # nobody hands these in to be graded


def files_in(folder: Path) -> list[Path]:
    """List what can be graded in a folder and all below it: the files of each folder before the folders in it.

    Left out are hidden things, environments and packages. A link to a folder is not followed: one that leads elsewhere
    is in the list, as are links to nowhere and folders that cannot be read, so that each becomes a row that says so.

    Raises: OSError if the folder itself cannot be read.
    """
    return list(_within(folder, folder.resolve(), sorted(folder.iterdir())))


def _within(folder: Path, top: Path, items: list[Path]) -> Iterator[Path]:
    folders = []
    for item in items:
        if item.name.startswith(".") or item.name in NOT_THEIRS:
            continue
        if item.is_dir() and not item.is_symlink():
            folders.append(item)
        elif item.is_dir():
            if not item.resolve().is_relative_to(top):
                yield item
        elif item.suffix.lower() in LIMIT or (not item.suffix and not item.exists()):  # a link to nowhere
            yield item
    for inner in folders:
        try:
            within = sorted(inner.iterdir())
        except OSError:
            yield inner
            continue
        if not any(item.name == "pyvenv.cfg" for item in within):
            yield from _within(inner, top, within)
