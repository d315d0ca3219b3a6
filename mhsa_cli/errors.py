"""The errors a user may meet. Each knows its exit code; nothing below this module imports torch."""

from __future__ import annotations

ANSWERED_NO = 7  # the exit code of a question whose answer is no: `check` found a fault, `verify --resume-check` a bit


class MhsaError(Exception):
    """An error with a way out: `message` says where and what was found, `hint` what to do.

    `exit_code` is what the process returns: 1 our bug, 2 usage or config, 3 non-finite training, 4 bad run or
    checkpoint, 5 disk, permission or memory refused, 6 run busy. A command that asks ends with ANSWERED_NO where the
    answer is no.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type[MhsaError], tuple[str, str | None]]:
        """Travel between processes with the hint."""
        return type(self), (self.message, self.hint)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class UsageError(MhsaError):
    """The command line or a config asks for something that cannot be done."""

    exit_code = 2


class NonFiniteError(MhsaError):
    """A loss or gradient was NaN or infinite; the weights are those of the last finite step."""

    exit_code = 3


class RunError(MhsaError):
    """A run folder or checkpoint is missing, damaged or of another format."""

    exit_code = 4


class OtherVersionError(RunError):
    """A file is whole, and says what this version does not know: it must not be changed here."""


class NewerFormatError(OtherVersionError):
    """A file has a format number that only a newer mhsa reads."""


class StorageError(MhsaError):
    """The disk refused: full, read-only, no permission, or the wrong kind of file."""

    exit_code = 5


class BusyError(MhsaError):
    """Another process owns the run."""

    exit_code = 6
