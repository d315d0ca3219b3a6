"""The errors a user may meet. Each knows its exit code; nothing below this module imports torch."""

from __future__ import annotations

import os
from pathlib import Path

from mhsa_cli.text import escape

ANSWERED_NO = 7  # the exit code of a question whose answer is no: `check` found a fault, `verify --resume-check` a bit

IS = " is "  # the part of a message between a file and what it is
Message = str | tuple[str | Path, ...]


class MhsaError(Exception):
    """An error with a way out: `message` says where and what was found, `hint` what to do, `code` names its kind.

    A message may be given in parts, texts and paths: then a path can be shown as it is seen from another folder.
    `exit_code` is what the process returns: 1 our bug, 2 usage or config, 3 non-finite training, 4 bad run or
    checkpoint, 5 disk, permission or memory refused, 6 run busy. A command that asks ends with ANSWERED_NO where the
    answer is no.
    """

    exit_code = 1
    code = "internal"

    def __init__(self, message: Message, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.parts = (message,) if isinstance(message, str) else message
        self.hint = hint
        self.code = code or self.code

    def __reduce__(self) -> tuple[type[MhsaError], tuple[Message, str | None, str]]:
        """Travel between processes with the hint and the code."""
        return type(self), (self.parts, self.hint, self.code)

    @property
    def message(self) -> str:
        """What was found, and where."""
        return "".join(part if isinstance(part, str) else escape(part) for part in self.parts)

    @property
    def path(self) -> Path | None:
        """The file or folder that it is about; None where the message names none."""
        return next((part for part in self.parts if isinstance(part, Path)), None)

    def seen_from(self, folder: Path, of: str = "") -> str:
        """Say what was found, the paths in `folder` without it; of its file `of` that is something, what it is."""
        parts = self.parts
        if of and parts[1:2] == (IS,) and Path(parts[0]).name == of:
            parts = parts[2:]
        near = f"{folder}{os.sep}"
        return "".join(part if isinstance(part, str) else escape(str(part).removeprefix(near)) for part in parts)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class UsageError(MhsaError):
    """The command line or a config asks for something that cannot be done."""

    exit_code = 2
    code = "usage"


def unwanted(where: str, found: object, wanted: str, hint: str | None = None) -> UsageError:
    """Make the error of an option or argument whose value is not accepted."""
    return UsageError(f"{where}: found `{escape(str(found))}`, wanted {wanted}", hint)


class NonFiniteError(MhsaError):
    """A loss or gradient was NaN or infinite; the weights are those of the last finite step."""

    exit_code = 3
    code = "nonfinite"


class RunError(MhsaError):
    """A run folder or checkpoint is missing, damaged or of another format."""

    exit_code = 4
    code = "run"


class DamageError(RunError):
    """A file is missing, or not what was written."""

    code = "damaged"


class OtherVersionError(RunError):
    """A file is whole, and says what this version does not know: it must not be changed here."""

    code = "other-version"


class NewerFormatError(OtherVersionError):
    """A file has a format number that only a newer mhsa reads."""

    code = "newer-format"


class StorageError(MhsaError):
    """The disk refused: full, read-only, no permission, or the wrong kind of file."""

    exit_code = 5
    code = "storage"


class BusyError(MhsaError):
    """Another process owns the run."""

    exit_code = 6
    code = "busy"
