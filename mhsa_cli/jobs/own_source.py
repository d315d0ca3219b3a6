"""The user's own files: whether one is that of a run, and how a sweep sends one to any machine."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mhsa_cli.config.own_file import split
from mhsa_cli.config.own_task import located
from mhsa_cli.errors import RunError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.text import escape


def check_unchanged(file: Path | str, found: str, recorded: object, trained: str, allow_changed: bool | None) -> None:
    """Compare the sha256 of a file with a run's; `trained` says which run it made, as `copy-h4 was trained on`.

    With `allow_changed` None a changed file gives a note; with False it is refused. Raises: RunError.
    """
    if recorded == found:
        return
    digests = f"found sha256 {found[:12]}, wanted {escape(str(recorded))[:12]}"
    message = f"{escape(str(file))} is not the file {trained}: {digests}"
    if allow_changed is False:
        raise RunError(message, "restore the file, or resume with the changed one: --allow-inexact")
    tell(f"note: {message}; results may differ")


class OwnSource(NamedTuple):
    """Code of the user's own as a sweep sends it: the name to import, and the bytes of its file."""

    name: str
    text: bytes


def own_source(name: str) -> OwnSource:
    """Read the file of a task or a score, to be sent with the trials of a sweep."""
    return OwnSource(name, Path(split(located(name))[0]).read_bytes())


@contextlib.contextmanager
def local_file(own: OwnSource) -> Iterator[str]:
    """Give FILE.py:Name of code that a sweep sends to any machine: the file itself, or a copy of what was sent."""
    file, name = split(located(own.name))
    if Path(file).is_file() and Path(file).read_bytes() == own.text:
        yield own.name
        return
    with tempfile.TemporaryDirectory(prefix="mhsa-own-") as folder:
        copy = Path(folder) / Path(file).name
        copy.write_bytes(own.text)
        yield f"{copy}:{name}"
