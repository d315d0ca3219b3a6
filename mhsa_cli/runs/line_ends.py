"""Line ends that a tool changed: git's autocrlf makes other files of a run's on checkout, with other hashes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from mhsa_cli.errors import IS, DamageError

ATTRIBUTES = ".gitattributes"
AS_THEY_ARE = "# The files of runs are compared with their hashes: git must not change line ends.\n* -text\n"
WAY_OUT = (
    "git config core.autocrlf false, or a .gitattributes with `* -text` where the runs are;\n"
    "  then delete the folder and check it out anew"
)


class LineEndsError(DamageError):
    """A file is what was written but for its line ends."""

    code = "line-ends"


def check_line_ends(
    path: Path, lines: Callable[[], Iterable[bytes]], is_right: Callable[[Iterator[bytes]], bool]
) -> None:
    """Say so if a file that is wrong is right with all its line ends LF, or all CRLF. Raises: LineEndsError.

    `lines` reads it from its start, line by line; `is_right` is given it in pieces.
    """
    if any(is_right(_ending(lines(), end)) for end in (b"\n", b"\r\n")):
        said = "not as it was written: its line ends were changed, as git does on checkout where core.autocrlf is set"
        raise LineEndsError((path, IS, said), WAY_OUT)


def _ending(lines: Iterable[bytes], end: bytes) -> Iterator[bytes]:
    for line in lines:
        yield line[:-1].removesuffix(b"\r") + end if line.endswith(b"\n") else line


@contextlib.contextmanager
def git_told(root: Path) -> Iterator[None]:
    """Make a first run in a folder for runs, and let git keep the line ends there; no run fails for want of that."""
    is_empty = False
    with contextlib.suppress(OSError):
        is_empty = not any(root.iterdir())
    yield
    if is_empty:
        with contextlib.suppress(OSError), (root / ATTRIBUTES).open("x", newline="\n") as file:
            file.write(AS_THEY_ARE)
