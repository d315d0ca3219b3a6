"""The folder that a command is called in, where somebody deleted it: what needs none works, all else says so."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

from mhsa_cli.errors import StorageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.runs.disk import folder_is_gone


def need_folder() -> None:
    """Refuse what torch is needed for: its libraries end a process that has no folder. Raises: StorageError."""
    if folder_is_gone():
        raise StorageError("torch cannot start without a folder to work in")


class _Refuse(MetaPathFinder):
    """Refuses torch before it ends the process."""

    def find_spec(self, name: str, *_: object) -> None:
        """Find nothing. Raises: StorageError for torch."""
        if name == "torch":
            need_folder()


def refuse_torch_without_folder() -> None:
    """Let the import of torch be refused if the folder is gone already; loaded before that, torch works on."""
    if folder_is_gone():
        sys.meta_path.insert(0, _Refuse())


def tell_if_gone() -> None:
    """Say, behind an error, that the folder is gone: every path that counts from it is then missing."""
    if folder_is_gone():
        tell("  the folder that you are in was deleted: cd to one that is there")
