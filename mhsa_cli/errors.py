"""The errors shown to users, each with its exit code."""

from __future__ import annotations

import os
from pathlib import Path

from mhsa_cli.text import escape

ANSWERED_NO = 7  # exit code of a negative answer: `check` found a fault, `verify --resume-check` a difference

COMPLETION = "_MHSA_COMPLETE"  # variable of a shell that asks how a line may go on: no message is shown
UPDATE = "update mhsa-cli to read it"  # the way out where a file was made by a newer one
IS = " is "  # between a file and its state in a message
Message = str | tuple[str | Path, ...]


class MhsaError(Exception):
    """An error: `message` says where and what was found, `hint` what to do, `code` is its kind.

    A message may be given in parts, texts and paths, so that paths can be shown relative to a folder. Exit codes: 1
    bug, 2 usage, config or a broken library, 3 non-finite training, 4 bad run or checkpoint, 5 disk, permission or
    memory refused, 6 run busy.
    """

    exit_code = 1
    code = "internal"

    def __init__(self, message: Message, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.parts = (message,) if isinstance(message, str) else message
        self.hint = hint
        self.code = code or self.code

    def __reduce__(self) -> tuple[type[MhsaError], tuple[Message, str | None, str]]:
        return type(self), (self.parts, self.hint, self.code)

    @property
    def message(self) -> str:
        """The text without the hint."""
        return "".join(part if isinstance(part, str) else escape(part) for part in self.parts)

    @property
    def path(self) -> Path | None:
        """The first path in the message; None if it has none."""
        return next((part for part in self.parts if isinstance(part, Path)), None)

    def seen_from(self, folder: Path, of: str = "") -> str:
        """Return the message with paths relative to `folder`, without the file name if it is about the file `of`."""
        parts = self.parts
        if of and parts[1:2] == (IS,) and Path(parts[0]).name == of:
            parts = parts[2:]
        prefix = f"{folder}{os.sep}"
        return "".join(part if isinstance(part, str) else escape(str(part).removeprefix(prefix)) for part in parts)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class MhsaWarning(UserWarning):
    """A note or a warning, for programs that import the package."""


class UsageError(MhsaError):
    """The command line or a config asks for something impossible."""

    exit_code = 2
    code = "usage"


class TorchError(UsageError):
    """torch is not installed, or its installation is broken."""

    code = "torch"


def unwanted(where: str, found: object, wanted: str, hint: str | None = None) -> UsageError:
    """Make the error of an option or argument whose value is not accepted."""
    return UsageError(f"{where}: found `{escape(str(found))}`, wanted {wanted}", hint)


class NonFiniteError(MhsaError):
    """A loss or gradient was NaN or infinite; the weights are of the last finite step."""

    exit_code = 3
    code = "nonfinite"


class RunError(MhsaError):
    """A run folder or checkpoint is missing, damaged or of another format."""

    exit_code = 4
    code = "run"


class DamageError(RunError):
    """A file is missing, or differs from what was written."""

    code = "damaged"


class OtherVersionError(RunError):
    """A file is whole, but this version cannot read it: it must not be changed."""

    code = "other-version"


class NewerFormatError(OtherVersionError):
    """A file has a newer format number."""

    code = "newer-format"


class StorageError(MhsaError):
    """The disk refused: full, read-only, no permission, or the wrong kind of file."""

    exit_code = 5
    code = "storage"


class BusyError(MhsaError):
    """Another process owns the run."""

    exit_code = 6
    code = "busy"
