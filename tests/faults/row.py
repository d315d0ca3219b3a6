"""A kind of fault: its cases, what must hold in each, and a mutant, a deliberate break that the cases must notice."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.faults.client import ForkServer, Prepare


@dataclass
class Place:
    """Where a case happens: an empty folder, the fork server, and the mutant that commands must carry, if any."""

    path: Path
    server: ForkServer
    mutant: tuple[Prepare, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row of the table of faults.

    `cases(count, seed)` yields that many cases, the same ones for the same seed; `check` raises AssertionError where
    the promise is broken. `mutant` names a function that breaks the program in the process it is called in.
    """

    fault: str
    promise: str
    quick: int
    long: int
    cases: Callable[[int, int], Iterator[Any]]
    check: Callable[[Any, Place], None]
    mutant: str


@dataclass
class Outcome:
    """What came of a row."""

    count: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    notes: set[str] = field(default_factory=set)


@contextmanager
def broken_by(mutant: str) -> Iterator[tuple[Prepare, ...]]:
    """Break this process, and give what must be prepared in others so that they are broken alike."""
    with pytest.MonkeyPatch.context() as patch:
        module, _, name = mutant.partition(":")
        import importlib

        getattr(importlib.import_module(module), name)(patch)
        yield ((mutant,),)


def run_row(
    row: Row, count: int, server: ForkServer, seed: int = 0, *, mutant: tuple[Prepare, ...] = (), first: bool = False
) -> Outcome:
    """Check `count` cases of a row, each in a folder of its own; with `first`, up to the first failure."""
    outcome, began = Outcome(), time.monotonic()
    for case in row.cases(count, seed):
        folder, here = Path(tempfile.mkdtemp(prefix="fault-")), Path.cwd()
        try:
            row.check(case, Place(folder, server, mutant))
        except pytest.skip.Exception as skipped:
            outcome.notes.add(str(skipped))
        except Exception as error:
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            said = str(error)  # its end tells most
            outcome.failures.append(f"{case}: {kind}{said if len(said) < 900 else f'... {said[-900:]}'}")
        finally:
            os.chdir(here)
            shutil.rmtree(folder, ignore_errors=True)
        outcome.count += 1
        if first and outcome.failures:
            break
    outcome.seconds = time.monotonic() - began
    return outcome
