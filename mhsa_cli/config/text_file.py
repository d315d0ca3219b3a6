"""A file of text: its characters are the tokens of the task `text`."""

from __future__ import annotations

from pathlib import Path

from mhsa_cli.errors import UsageError

MAX_BYTES = 64 * 1024 * 1024


def read_text(path: str) -> str:
    """Read a UTF-8 text file. Raises: UsageError if it is missing, too large or not UTF-8 text."""
    file = Path(path)
    if not file.is_file():
        raise UsageError(
            f"task.path: {path} is not a file", "give a plain text file; paths are relative to the current folder"
        )
    try:
        data = file.read_bytes() if file.stat().st_size <= MAX_BYTES else None
    except OSError as error:
        raise UsageError(f"task.path: {path}: {error.strerror}") from error
    if data is None:
        raise UsageError(f"task.path: {path} is larger than {MAX_BYTES // 2**20} MiB", "use a part of it")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"task.path: {path} is not UTF-8 text (byte {error.start})", "save it as UTF-8") from error
    if "\0" in text:
        raise UsageError(f"task.path: {path} is binary (a zero byte at character {text.index(chr(0))})")
    return text
