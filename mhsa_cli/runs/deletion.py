"""Delete runs and sweeps: renamed out of sight first, then removed, so that a kill leaves no half of one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from mhsa_cli.errors import IS, BusyError, RunError, StorageError, UsageError
from mhsa_cli.runs.atomic import remove, sync_folder
from mhsa_cli.runs.commit import REPLACED
from mhsa_cli.runs.disk import retried, storage_errors
from mhsa_cli.runs.listing import LOCK, RUN, SWEEP, is_sweep, list_runs, list_sweeps, named, newest_run, trial_folders
from mhsa_cli.runs.lock import busy, is_locked, kept_free
from mhsa_cli.runs.names import LONGEST, NEWEST
from mhsa_cli.runs.sweep_dir import ERRORS, GRID, TABLE
from mhsa_cli.runs.verify import OWN
from mhsa_cli.text import escape, quoted, shortened

_LEFTOVER = re.compile(r"\.deleted-[0-9]{1,18}-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Deletable:
    """A run or sweep in the folder for runs that no process owns: its size in bytes, and the trials of a sweep."""

    path: Path
    bytes: int
    trials: int | None = None


def find_deletable(root: Path, name: str) -> Deletable:
    """Find a run or sweep of `root` to delete, by name or path. Raises: BusyError, RunError, StorageError, UsageError.

    Refused is what lies elsewhere, what is no run or sweep of ours, a trial of a sweep, a link, and what has an owner.
    """
    path = _find(root, name)
    if path.is_symlink():
        raise RunError(
            (path, IS, "a symbolic link, which is not followed"), f"delete it alone: rm {quoted(path)}", "link"
        )
    if not path.is_dir() or not (is_sweep(path) or any(os.path.lexists(path / part) for part in (RUN, LOCK))):
        why = f"not a run or sweep: it has no {RUN} and no {SWEEP}"
        raise RunError((path, IS, why), "if it may go, delete it yourself", "no-run")
    trials = len(trial_folders(path)) if is_sweep(path) else None
    _refuse_live(path)
    _refuse_strangers(path)
    return Deletable(path, _bytes_in(path), trials)


def _find(root: Path, name: str) -> Path:
    if not name or "\0" in name:
        raise UsageError("the name of the run is empty or contains a NUL", "list the runs: mhsa runs")
    if name == NEWEST:
        return newest_run(root)
    places = [Path(name)] if name.startswith(".") else [root / name, Path(name)]  # SWEEP/TRIAL is a name, too
    given = next((path for path in places if os.path.lexists(path)), None)
    if given is None:
        names = [item.name for item in list_runs(root)] + [sweep.name for sweep, _ in list_sweeps(root)]
        hint = named(name, names, "runs") if names else None
        raise RunError((f"there is no run or sweep `{shortened(name, 4 * LONGEST)}` in ", root), hint, "no-run")
    path = Path(os.path.abspath(given))  # noqa: PTH100 - resolve() would follow a link
    if is_sweep(path.parent):
        hint = f"delete the whole sweep: mhsa runs rm {quoted(path.parent.name)}"
        raise RunError((given, IS, "a trial: the report of its sweep counts it"), hint, "trial")
    if not root.is_dir() or not path.parent.samefile(root):
        hint = f"name its folder for runs: mhsa runs rm {quoted(path.name)} --runs {quoted(given.parent)}"
        raise RunError((given, " is not in ", root), hint, "elsewhere")
    return root / path.name


def _refuse_live(path: Path) -> None:
    """Refuse what a process owns, or a sweep of which it owns a trial. Raises: BusyError."""
    for folder in (path, *(trial_folders(path) if is_sweep(path) else ())):
        if is_locked(folder / LOCK):
            raise _live(busy(folder / LOCK))


def _refuse_strangers(path: Path) -> None:
    """Refuse a folder with files of somebody else, at its top or that of a trial. Raises: RunError."""
    trials = trial_folders(path) if is_sweep(path) else []
    of_sweep = {SWEEP, TABLE, GRID, ERRORS, *(trial.name for trial in trials)} if is_sweep(path) else set()
    for folder, own in ((path, of_sweep | OWN), *((trial, OWN) for trial in trials)):
        with storage_errors("list", folder):
            found = sorted(entry.name for entry in folder.iterdir())
        others = [n for n in found if n not in own and not n.startswith(".") and not n.endswith(REPLACED)]
        if others:
            message = (folder, f" also has what is not of mhsa: {', '.join(map(escape, others[:3]))}")
            raise RunError(message, "move it out first, or delete the folder yourself", "strangers")


def _live(error: BusyError) -> BusyError:
    error.hint = "wait for it to end, or stop it"
    return error


def _bytes_in(folder: Path) -> int:
    with storage_errors("read", folder):
        return sum((Path(at) / name).lstat().st_size for at, _, names in os.walk(folder) for name in names)


def delete(found: Deletable) -> None:
    """Delete a run or sweep, at once or not at all to any reader. Raises: BusyError, StorageError."""
    root = found.path.parent
    trash = root / f".deleted-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        with kept_free(found.path / LOCK):
            _refuse_live(found.path)
            with storage_errors("delete", found.path):
                retried(os.rename, found.path, trash)
                sync_folder(root)
            remove(trash)
    except BusyError as error:
        raise _live(error) from None
    if os.path.lexists(trash):
        why = (found.path, " was deleted, but some of its files are left in ", trash)
        raise StorageError(why, f"delete them yourself: rm -r {quoted(trash)}", "left-over")


def remove_leftovers(root: Path) -> None:
    """Remove what killed deletions left in `root`; failures are ignored."""
    with storage_errors("list the runs in", root):
        left = [entry for entry in root.iterdir() if _LEFTOVER.fullmatch(entry.name)]
    for entry in left:
        remove(entry)
