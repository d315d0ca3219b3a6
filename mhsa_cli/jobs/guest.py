"""Run a job inside a program that somebody else wrote: it prints nothing, and leaves the program as it was."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from mhsa_cli.errors import MhsaError, MhsaWarning
from mhsa_cli.jobs.messages import foreseen, telling


def warn(text: str) -> None:
    """Make a message a warning."""
    warnings.warn(text, MhsaWarning, stacklevel=2)


@contextmanager
def as_guest(*, trains: bool = False) -> Iterator[None]:
    """Run a job whose messages become warnings, and errors of the system a StorageError.

    With `trains` torch has its number of threads again afterwards.
    """
    kept: AbstractContextManager[None] = nullcontext()
    if trains:
        from mhsa_cli.core.devices import same_threads

        kept = same_threads()
    with telling(warn), kept:
        try:
            yield
        except MhsaError:
            raise
        except Exception as error:
            if (refused := foreseen(error)) is None:
                raise
            raise refused from error
