"""Line ends that a tool changed on the way: git's autocrlf makes other files of a run's, with other hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

CHANGED = "its line ends were changed, as git does on checkout where core.autocrlf is set"
WAY_OUT = (
    "git config core.autocrlf false, or a .gitattributes with `* -text` in the folder of the runs;\n"
    "  then delete this folder and check it out anew"
)


def other_line_ends(lines: Callable[[], Iterable[bytes]], is_right: Callable[[Iterator[bytes]], bool]) -> bool:
    """Tell whether a file is right with all its line ends LF, or all CRLF, as they were before a tool changed them.

    `lines` reads it from its start, line by line; `is_right` is given it in pieces.
    """
    return any(is_right(_ending(lines(), end)) for end in (b"\n", b"\r\n"))


def _ending(lines: Iterable[bytes], end: bytes) -> Iterator[bytes]:
    for line in lines:
        yield line[:-1].removesuffix(b"\r") + end if line.endswith(b"\n") else line
