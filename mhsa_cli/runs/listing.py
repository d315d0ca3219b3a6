"""Finding runs and saying how they stand, without owning them and without stumbling over damaged ones."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mhsa_cli.errors import IS, DamageError, RunError, StorageError, UsageError
from mhsa_cli.runs.codec import is_count
from mhsa_cli.runs.disk import WAYS_OUT, folder_is_gone, read_file, refused_with, storage_error, verify_hint
from mhsa_cli.runs.json_file import FILES, OWN_HASH, check_sealed, parse_document, restore_nonfinite
from mhsa_cli.runs.lock import is_locked
from mhsa_cli.runs.names import LONGEST, NEWEST, runs_root
from mhsa_cli.runs.older_keys import rename_run
from mhsa_cli.runs.run_facts import RUN_FACTS, check_facts
from mhsa_cli.text import escape, quoted, shortened

CONFIG, RUN, LOCK = "config.yaml", "run.json", ".lock"
METRICS, HEADS, SCORES, TEXT = "metrics.jsonl", "heads.json", "heads.jsonl", "text.txt"
SWEEP = "sweep.json"
WEIGHTS = "weights_sha256"  # in run.json of the run's last step, in heads.json of what its maps were measured on
TRAIN_ONE = "train one: mhsa train task.name=copy"
_LIMIT = 1 << 20
_TRIAL = re.compile(r"seed=[0-9]+$")


def trial_folders(folder: Path) -> list[Path]:
    """List the trials of a sweep: the run folders inside whose names end in their seed; none of a folder without."""
    try:
        found = [path for path in folder.iterdir() if _TRIAL.search(path.name)]
    except OSError:
        return []
    return sorted(path for path in found if any(os.path.lexists(path / name) for name in (RUN, CONFIG)))


def is_sweep(folder: Path) -> bool:
    """Tell whether a folder is a sweep: by its sweep.json, or by its trials where that was lost."""
    return os.path.lexists(folder / SWEEP) or (not os.path.lexists(folder / RUN) and bool(trial_folders(folder)))


# Why a folder cannot be read as a run: what is there is no run, the system refuses it, or only a newer mhsa can.
Problem = Literal["damaged", "unreadable", "newer"]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of `mhsa runs`. `status` is running, finished, stopped, failed, interrupted or, of a problem, why."""

    path: Path
    status: str
    started: str | None = None
    seconds: float | None = None
    order: int = -1
    info: Mapping[str, Any] = field(default_factory=dict)
    problem: Problem | None = None

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name


def load_sealed(path: Path, limit: int = _LIMIT) -> dict[str, Any]:
    """Read a run's or sweep's JSON file that carries its own hash, NaN restored. Raises: RunError, StorageError."""
    try:
        raw = read_file(path, limit)
        content = parse_document(raw, path)
        check_sealed(raw, content, path)
    except RunError as error:
        error.hint = error.hint or verify_hint(path.parent)
        raise
    content.pop(OWN_HASH, None)
    return restore_nonfinite(content)


def load_info(run: Path) -> dict[str, Any]:
    """Read a run's run.json as it was written, its list of files included. Raises: RunError, StorageError."""
    info = rename_run(load_sealed(run / RUN))
    if not isinstance(info.get("status"), str):
        raise DamageError((run / RUN, IS, "damaged: it lacks the run's status"), code="no-status")
    check_facts(info, RUN_FACTS, run / RUN, verify_hint(run))
    return info


def read_info(run: Path) -> dict[str, Any]:
    """Read a run's run.json; "running" without an owner becomes "interrupted". Raises: RunError, StorageError."""
    return standing(run, load_info(run))


def standing(run: Path, info: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a run's run.json said, its list of files left out; "running" without an owner is "interrupted"."""
    told = dict(info)
    if told["status"] == "running" and not is_locked(run / LOCK):
        # Between the two looks the owner may have finished: only what run.json says now counts.
        told = load_info(run)
        if told["status"] == "running":
            told["status"] = "interrupted"
    told.pop(FILES, None)
    return told


def final_figures(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the results in a run's run.json; none if they are of an earlier step than it broke off at."""
    final = info.get("final")
    own = isinstance(final, dict) and final.get("step", info.get("step")) == info.get("step")
    return final if isinstance(final, dict) and own else {}


def dropped_records(info: Mapping[str, Any]) -> int:
    """Count the records of metrics that resumes left out, as run.json has it; what is no number counts as 0."""
    count = info.get("dropped_records")
    return count if is_count(count) else 0


def summarise(run: Path) -> RunSummary:
    """Summarise one folder; whatever is wrong with it becomes its status."""
    try:
        info = read_info(run)
    except StorageError as error:
        code = refused_with(error)
        why = error.message if code is None else os.strerror(code).lower()
        return RunSummary(run, f"unreadable: {why}", problem="unreadable")
    except DamageError as error:
        missing = not os.path.lexists(run / RUN)
        why = f"no {RUN}, not a run folder" if missing else error.message
        return RunSummary(run, f"damaged: {why}", problem="damaged")
    except RunError:
        return RunSummary(run, "made by a newer mhsa", problem="newer")
    started, seconds, order = (info.get(key) for key in ("started", "seconds", "order"))
    if started is None or order is None:
        return RunSummary(run, f"damaged: {RUN} lacks its status, order or started", info=info, problem="damaged")
    return RunSummary(run, escape(info["status"]), started, None if seconds is None else float(seconds), order, info)


def list_runs(root: Path) -> list[RunSummary]:
    """Summarise every folder in `root`, newest first, those of a problem last. Raises: StorageError."""
    # By the order number given at the start: neither copying a folder nor setting a clock back changes it.
    found = [entry for entry in _folders(root) if not is_sweep(entry)]  # a sweep holds runs, it is none
    return sorted(map(summarise, found), key=lambda item: (item.order, item.name), reverse=True)


def list_sweeps(root: Path) -> list[tuple[Path, int]]:
    """List the sweeps in `root` by name, each with the number of its trials. Raises: StorageError."""
    return [(entry, len(trial_folders(entry))) for entry in sorted(_folders(root)) if is_sweep(entry)]


def _folders(root: Path) -> list[Path]:
    try:
        return [entry for entry in root.iterdir() if not entry.name.startswith(".") and entry.is_dir()]
    except OSError as error:
        if isinstance(error, FileNotFoundError) and (root.is_absolute() or not folder_is_gone()):
            return []
        raise storage_error("list the runs in", root, error) from error


def newest_run(root: Path) -> Path:
    """Find the run started last. Raises: RunError if there is none."""
    runs = list_runs(root)
    good = [item for item in runs if item.problem is None]
    if good:
        return good[0].path
    if runs:
        said = "\n  ".join([f"no readable run in {escape(root)}", *(f"{escape(i.path)}: {i.status}" for i in runs[:5])])
        refused = all(item.problem == "unreadable" for item in runs)
        raise StorageError(said, WAYS_OUT[errno.EACCES]) if refused else RunError(said, TRAIN_ONE, "no-run")
    sweeps = list_sweeps(root)
    more = f"\n  a sweep's trials are runs too: {list_inside(sweeps[0][0])}" if sweeps else ""
    raise RunError(("no run in ", root, " yet"), TRAIN_ONE + more, "no-run")


def find_run(root: Path, name_or_path: str | os.PathLike[str]) -> Path:
    """Find a run folder by its name in `root`, else as a path; `newest` is the one started last.

    Raises: RunError, StorageError, UsageError.
    """
    text = os.fspath(name_or_path)
    if not text or "\0" in text:
        raise UsageError("the name of the run is empty or contains a NUL", "list the runs: mhsa runs")
    if text == NEWEST:
        return newest_run(root)
    is_name = Path(text).name == text and text not in (".", "..")
    wrong = None
    above = (root / text).parent
    closed = above.is_dir() and not os.access(above, os.X_OK)  # then the system lets nobody look into it
    inside = not is_name and not Path(text).is_absolute() and (is_sweep(above) or closed)
    for path in [root / text, Path(text)] if is_name or inside else [Path(text)]:  # SWEEP/TRIAL names a run as well
        try:
            (path / RUN).lstat()
            return path
        except (FileNotFoundError, NotADirectoryError):
            if wrong is None and os.path.lexists(path):
                reason = f"not a run folder: it {f'has no {RUN}' if path.is_dir() else 'is no folder'}"
                wrong = RunError((path, IS, reason), "list the runs: mhsa runs", "no-run")
                wrong = _is_a_sweep(path) if is_sweep(path) else wrong
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise storage_error("open", path, error) from error
    raise wrong or _no_such_run(root, text, is_name)


def _is_a_sweep(path: Path) -> RunError:
    names = [f"{path.name or path.resolve().name}/{trial.name}" for trial in trial_folders(path)]
    trials = "it has no trial yet"
    if names:
        more = f", ... ({len(names)} in all)" if len(names) > 3 else ""
        trials = f"its trials are runs: {', '.join(map(escape, names[:3]))}{more}"
    return RunError((path, IS, f"a sweep; {trials}"), f"list them: {list_inside(path)}", "sweep")


def list_inside(sweep: Path) -> str:
    """Write the command that lists a sweep's trials."""
    return f"mhsa runs --runs {quoted(sweep)}"


def _no_such_run(root: Path, text: str, is_name: bool) -> RunError:
    shown = shortened(text, 4 * LONGEST)
    if not is_name:
        return RunError(f"there is no run folder {shown}", "list the runs: mhsa runs", "no-run")
    try:
        names = [item.name for item in list_runs(root) if item.problem is None]
    except StorageError as error:
        raise StorageError(f"there is no run '{shown}': {error.message}", error.hint) from error
    if not names:
        return RunError((f"there is no run '{shown}' in ", root, ", nor any other"), TRAIN_ONE, "no-run")
    from difflib import get_close_matches

    near = get_close_matches(text, names, n=3) or names[:3]
    hint = "there is: " + ", ".join(map(escape, near))
    return RunError((f"there is no run '{shown}' in ", root), hint, "no-run")


def run_argument(path: Path) -> str:
    """Write a run as the next command must name it, quoted: its name, or its path if it is kept somewhere else."""
    root = runs_root()
    if path == root / path.name:
        return quoted(path.name)
    inside = path.parent.parent == root and is_sweep(path.parent)  # a trial of a sweep
    return quoted(f"{path.parent.name}/{path.name}" if inside else path)
