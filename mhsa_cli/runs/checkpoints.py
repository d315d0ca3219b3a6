"""The checkpoints of a run: committed whole, rotated by step, and verified byte by byte when read."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from mhsa_cli.errors import DamageError, RunError, StorageError
from mhsa_cli.records.formats import MOMENTS
from mhsa_cli.runs.commit import REPLACED, check_real_folder, commit_directory, discard, read_directory, sweep_orphans
from mhsa_cli.runs.disk import refused_with, retried, storage_errors

FOLDER = "checkpoints"
_NAME = re.compile(r"step-([0-9]{8}|[1-9][0-9]{8,17})(\.replaced)?")
_ATTEMPTS = 5
_SKIPPED = "damaged checkpoint skipped"


class Checkpoint(NamedTuple):
    """A checkpoint folder, not yet verified."""

    step: int
    path: Path


class Loaded(NamedTuple):
    """A verified checkpoint; `notes` lists the damage of newer ones that were skipped."""

    step: int
    files: dict[str, bytes]
    notes: tuple[str, ...]


def list_checkpoints(run: Path) -> list[Checkpoint]:
    """List a run's checkpoints by step, lowest first. Raises: RunError, StorageError."""
    folder = run / FOLDER
    if not check_real_folder(folder):
        return []
    with storage_errors("read", folder):
        names = [entry.name for entry in folder.iterdir()]
    found = [Checkpoint(int(match[1]), folder / match[0]) for match in map(_NAME.fullmatch, names) if match]
    # Of one step, the folder being replaced comes first, as the older.
    return sorted(found, key=lambda item: (item.step, not item.path.name.endswith(REPLACED)))


def commit_checkpoint(run: Path, step: int, files: Mapping[str, bytes], keep: int) -> Path:
    """Save a checkpoint, then delete those beyond the newest `keep` and those of higher steps.

    Higher steps are left where a run was resumed from an earlier checkpoint. Raises: StorageError if the disk refuses;
    the older checkpoints stay.
    """
    if step < 0 or keep < 1:
        raise ValueError(f"step {step} and keep {keep}: expected step >= 0 and keep >= 1")
    before = list_checkpoints(run)
    folder = run / FOLDER
    with storage_errors("save", folder, _still_valid(before)), contextlib.suppress(FileExistsError):
        retried(os.mkdir, folder)
    path = commit_directory(folder, f"step-{step:08d}", files, _still_valid(before))
    older = [item for item in before if item.step < step]
    for item in [*older[: _first_kept(older, keep - 1)], *(item for item in before if item.step > step)]:
        discard(item.path)
    sweep_orphans(folder)  # includes what an earlier save could not delete
    return path


def prune(run: Path, keep: int) -> None:
    """Delete the checkpoints beyond the newest `keep` whole ones, which a kill between save and rotation leaves."""
    found = list_checkpoints(run)
    for item in found[: _first_kept(found, keep)]:
        discard(item.path)


def _first_kept(older: list[Checkpoint], count: int) -> int:
    """Find the index of the oldest to keep: damaged checkpoints do not count among the newest `count`."""
    at = len(older)
    if count >= at:
        return 0
    whole: set[int] = set()
    while len(whole) < count and at > 0:
        at -= 1
        with contextlib.suppress(RunError, StorageError):
            read_checkpoint(older[at])
            whole.add(older[at].step)
    return at


def read_checkpoint(item: Checkpoint, without: Collection[str] = ()) -> dict[str, bytes]:
    """Read one checkpoint, every byte verified. Raises: RunError, StorageError."""
    check_real_folder(item.path)
    return read_directory(item.path, item.path.name.removesuffix(REPLACED), without)


def _still_valid(before: list[Checkpoint]) -> str:
    if not before:
        return "no checkpoint was saved before this one"
    return f"nothing was replaced: the older checkpoint of step {before[-1].step} is still valid"


def load_checkpoint(run: Path, step: int | None = None, *, for_training: bool = True) -> Loaded:
    """Read the newest whole checkpoint, or the one of `step`; the optimizer's state only for training.

    Raises: RunError if none is whole, with the damage of each; NewerFormatError or StorageError if the newest may be
    whole but cannot be read here.
    """
    for _ in range(_ATTEMPTS):
        found = list_checkpoints(run)
        problems: list[str] = []
        loaded = None
        for item in reversed([item for item in found if step in (None, item.step)]):
            try:
                files = read_checkpoint(item, () if for_training else (MOMENTS,))
                loaded = Loaded(item.step, files, tuple(f"{_SKIPPED}: {problem}" for problem in problems))
                break
            except (RunError, StorageError) as error:
                if not is_damage(error):
                    raise
                problems.append(f"{item.path.name}: {error.message}")
        if loaded is not None and not problems:
            return loaded
        if list_checkpoints(run) == found:  # otherwise a running training replaced what we were reading
            if loaded is None:
                raise _none_valid(run, step, found, problems)
            return loaded
    raise RunError((run, ": its checkpoints change faster than they can be read"), "try again")


def is_damage(error: RunError | StorageError) -> bool:
    """Return whether the error means lost data: damage, or an I/O error of the disk; other refusals may pass."""
    return isinstance(error, DamageError) or (isinstance(error, StorageError) and refused_with(error) == errno.EIO)


def _none_valid(run: Path, step: int | None, found: list[Checkpoint], problems: list[str]) -> RunError:
    if problems:
        which = "no checkpoint is valid" if step is None else f"the checkpoint of step {step} is not valid"
        return DamageError((run, "\n  ".join([f": {which}", *problems])), code="no-checkpoint")
    if found:
        steps = ", ".join(str(at) for at in sorted({item.step for item in found}))
        return RunError((run, f" has no checkpoint of step {step}"), f"it has: {steps}", "no-checkpoint")
    hint = "none was saved, or all were deleted: train it again under another --name"
    return RunError((run, " has no checkpoint"), hint, "no-checkpoint")
