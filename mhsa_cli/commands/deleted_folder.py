"""A working folder that was deleted: commands that need none still work, all others report it."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

from mhsa_cli.errors import StorageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.runs.disk import folder_is_gone


def need_folder() -> None:
    """Refuse work that needs torch, whose libraries end a process without a working folder. Raises: StorageError."""
    if folder_is_gone():
        raise StorageError("torch cannot start without a working folder")


class _Refuse(MetaPathFinder):
    """Refuses the import of torch, which would end the process."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "torch":
            need_folder()


def refuse_torch_without_folder() -> None:
    """Refuse the import of torch if the folder is deleted; torch that is loaded already keeps working."""
    if folder_is_gone():
        sys.meta_path.insert(0, _Refuse())


def tell_if_gone() -> None:
    """Add to an error that the folder was deleted: all relative paths are then missing."""
    if folder_is_gone():
        tell("  the working folder was deleted: cd to one that exists")
