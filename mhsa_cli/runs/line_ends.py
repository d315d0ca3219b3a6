"""Line ends changed by a tool: git's autocrlf rewrites the files of runs on checkout, and their hashes differ."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from mhsa_cli.errors import IS, DamageError

ATTRIBUTES = ".gitattributes"
NO_TEXT = "# The files of runs are compared with their hashes: git must not change line ends.\n* -text\n"
WAY_OUT = (
    "git config core.autocrlf false, or a .gitattributes with `* -text` where the runs are;\n"
    "  then delete the folder and check it out again"
)


class LineEndsError(DamageError):
    """A file differs from what was written in its line ends only."""

    code = "line-ends"


def check_line_ends(
    path: Path, lines: Callable[[], Iterable[bytes]], is_right: Callable[[Iterator[bytes]], bool]
) -> None:
    """Raise LineEndsError if a damaged file, read by `lines`, is right with all its line ends LF, or all CRLF."""
    if any(is_right(_ending(lines(), end)) for end in (b"\n", b"\r\n")):
        reason = "not as it was written: its line ends were changed, as git does on checkout where core.autocrlf is set"
        raise LineEndsError((path, IS, reason), WAY_OUT)


def _ending(lines: Iterable[bytes], end: bytes) -> Iterator[bytes]:
    for line in lines:
        yield line[:-1].removesuffix(b"\r") + end if line.endswith(b"\n") else line


@contextlib.contextmanager
def gitattributes(root: Path) -> Iterator[None]:
    """Add a .gitattributes that keeps line ends if `root` was empty before the body; failures are ignored."""
    is_empty = False
    with contextlib.suppress(OSError):
        is_empty = not any(root.iterdir())
    yield
    if is_empty:
        with contextlib.suppress(OSError), (root / ATTRIBUTES).open("x", newline="\n") as file:
            file.write(NO_TEXT)
