"""Find runs and read their run.json, without owning them; damaged ones are listed as such."""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import re
from collections.abc import Mapping, Sequence
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
INIT = "init.safetensors"  # a copy of the file of initial weights
INITIAL = "init"  # in run.json: that file and its sha256
SWEEP = "sweep.json"
A_SWEEP = "sweep"  # code of the error that a sweep is no run
ENDED_BY = "ended_by"  # in run.json: the setting of `train` that ended a finished run before its last step
WEIGHTS = "weights_sha256"  # in run.json: of the last step; in heads.json: of the model that was measured
TRAIN_ONE = "train one: mhsa train task.name=copy"
_LIMIT = 1 << 20
_COARSE = 2_000_000  # microseconds: the coarsest times of a file system
_TRIAL = re.compile(r"seed=[0-9]+$")


def trial_folders(folder: Path) -> list[Path]:
    """List the trials of a sweep: the run folders in it whose names end in a seed."""
    try:
        found = [path for path in folder.iterdir() if _TRIAL.search(path.name)]
    except OSError:
        return []
    return sorted(path for path in found if any(os.path.lexists(path / name) for name in (RUN, CONFIG)))


def is_sweep(folder: Path) -> bool:
    """Return whether a folder is a sweep, by its sweep.json, or by its trials if that was lost."""
    return os.path.lexists(folder / SWEEP) or (not os.path.lexists(folder / RUN) and bool(trial_folders(folder)))


# Why a folder cannot be read as a run; "newer": only a newer mhsa can read it.
Problem = Literal["damaged", "unreadable", "newer"]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of `mhsa runs`. `status` is running, finished, stopped, failed, interrupted, or the problem in words."""

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
    """Read a JSON file with a hash of its own, NaN restored. Raises: RunError, StorageError."""
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
    """Read a run's run.json as it was written. Raises: RunError, StorageError."""
    info = rename_run(load_sealed(run / RUN))
    if not isinstance(info.get("status"), str):
        raise DamageError((run / RUN, IS, "damaged: it lacks the run's status"), code="no-status")
    check_facts(info, RUN_FACTS, run / RUN, verify_hint(run))
    return info


def read_info(run: Path) -> dict[str, Any]:
    """Read a run's run.json; "running" without an owner becomes "interrupted". Raises: RunError, StorageError."""
    return with_status(run, load_info(run))


def with_status(run: Path, info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run.json without its list of files; "running" without an owner becomes "interrupted"."""
    current = dict(info)
    if current["status"] == "running" and not is_locked(run / LOCK):
        current = load_info(run)  # the owner may have finished since run.json was read
        if current["status"] == "running":
            current["status"] = "interrupted"
    current.pop(FILES, None)
    return current


def final_figures(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the final figures in a run.json; none if they are of an earlier step than its last."""
    final = info.get("final")
    return final if isinstance(final, dict) and final.get("step", info.get("step")) == info.get("step") else {}


def origin_of(info: Mapping[str, Any]) -> str | None:
    """Return the file that a run's model comes from without a step of training, by its run.json; None for any other."""
    file = (info.get(INITIAL) or {}).get("file")
    return file if info.get("total_steps") == 0 else None


def dropped_records(info: Mapping[str, Any]) -> int:
    """Return how many records of metrics resumes dropped, by run.json."""
    count = info.get("dropped_records")
    return count if is_count(count) else 0


def summarise(run: Path) -> RunSummary:
    """Summarise one folder; an error becomes its status."""
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
    """Summarise every run in `root`, newest first, unreadable ones last. Raises: StorageError."""
    return newest_first(run_folders(root))


def run_folders(root: Path) -> list[Path]:
    """List the folders in `root` that are no sweeps, without reading a file. Raises: StorageError."""
    return [entry for entry in _folders(root) if not is_sweep(entry)]


def newest_first(folders: Sequence[Path], count: int | None = None) -> list[RunSummary]:
    """Summarise runs, newest first, unreadable ones last; with `count` only so many, and only their files are read.

    Their order is that of the numbers given at the start, which copying a folder or setting back a clock does not
    change. A lock file's time is the number of its run, or later where it was copied or is of an older version. With
    `count`, one that is earlier, of an older version with its clock set back, may come too late.
    """
    found: list[RunSummary] = []
    newest: list[int] = []  # a heap of the `count` largest numbers
    wanted = len(folders) if count is None else count
    for latest, folder in sorted(((_latest(folder), folder) for folder in folders), reverse=True):
        if len(newest) == wanted and latest < newest[0]:
            break
        found.append(run := summarise(folder))
        if run.order > latest:  # these times are not those of the runs: all numbers must be read
            wanted = len(folders)
        if run.problem is None:
            (heapq.heappush if len(newest) < wanted else heapq.heappushpop)(newest, run.order)
    return sorted(found, key=lambda item: (item.order, item.name), reverse=True)[:count]


def _latest(folder: Path) -> int:
    """Return the largest number that a run may have, by the times of its files, microseconds."""
    for name in (LOCK, RUN):
        with contextlib.suppress(OSError):
            return (folder / name).stat().st_mtime_ns // 1000 + _COARSE
    return 0  # no run


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
    """Return the run started last. Raises: RunError if there is none."""
    runs = newest_first(run_folders(root), 1)
    if not runs or runs[0].problem is not None:
        runs = list_runs(root)
    good = [item for item in runs if item.problem is None]
    if good:
        return good[0].path
    if runs:
        reasons = [f"{escape(item.path)}: {item.status}" for item in runs[:5]]
        message = "\n  ".join([f"no readable run in {escape(root)}", *reasons])
        refused = all(item.problem == "unreadable" for item in runs)
        raise StorageError(message, WAYS_OUT[errno.EACCES]) if refused else RunError(message, TRAIN_ONE, "no-run")
    sweeps = list_sweeps(root)
    more = f"\n  a sweep's trials are runs too: {list_inside(sweeps[0][0])}" if sweeps else ""
    raise RunError(("no run in ", root, " yet"), TRAIN_ONE + more, "no-run")


def find_run(root: Path, name_or_path: str | os.PathLike[str]) -> Path:
    """Find a run by its name in `root`, its path, or `newest`. Raises: RunError, StorageError, UsageError."""
    text = os.fspath(name_or_path)
    if not text or "\0" in text:
        raise UsageError("the name of the run is empty or contains a NUL", "list the runs: mhsa runs")
    if text == NEWEST:
        return newest_run(root)
    is_name = Path(text).name == text and text not in (".", "..")
    wrong = None
    above = (root / text).parent
    closed = above.is_dir() and not os.access(above, os.X_OK)  # no permission to look into it
    inside = not is_name and not Path(text).is_absolute() and (is_sweep(above) or closed)
    for path in [root / text, Path(text)] if is_name or inside else [Path(text)]:  # SWEEP/TRIAL is a name, too
        try:
            (path / RUN).lstat()
            return path
        except (FileNotFoundError, NotADirectoryError):
            if wrong is None and os.path.lexists(path):
                reason = f"not a run folder: it {f'has no {RUN}' if path.is_dir() else 'is not a folder'}"
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
    return RunError(
        (path, IS, f"a sweep; {trials}"),
        f"list them: {list_inside(path)}\n  its report: mhsa sweep show {run_argument(path)}",
        A_SWEEP,
    )


def list_inside(sweep: Path) -> str:
    """Return the command that lists a sweep's trials."""
    return f"mhsa runs --runs {quoted(sweep)}"


def _no_such_run(root: Path, text: str, is_name: bool) -> RunError:
    shown = shortened(text, 4 * LONGEST)
    if not is_name:
        return RunError(f"there is no run folder {shown}", "list the runs: mhsa runs", "no-run")
    try:
        names = sorted(folder.name for folder in run_folders(root) if os.path.lexists(folder / RUN))
    except StorageError as error:
        raise StorageError(f"there is no run `{shown}`: {error.message}", error.hint) from error
    if not names:
        return RunError((f"there is no run `{shown}` in ", root, ", nor any other"), TRAIN_ONE, "no-run")
    return RunError((f"there is no run `{shown}` in ", root), named(text, names, "runs"), "no-run")


def named(text: str, names: Sequence[str], kind: str) -> str:
    """Return the hint about a mistyped name: the nearest names, or the first of all, and how to list them."""
    from difflib import get_close_matches

    near = get_close_matches(text, names, n=3)
    rest = len(names) - 3
    more = f" and {rest} more" if rest > 0 and not near else ""
    start = "did you mean: " if near else f"{kind}: "
    return f"{start}{', '.join(map(escape, near or names[:3]))}{more}; list {kind}: mhsa runs"


def run_argument(path: Path) -> str:
    """Return a run's name for a command line, quoted; its path if it is not in the runs folder."""
    root = runs_root()
    if path == root / path.name:
        return quoted(path.name)
    inside = path.parent.parent == root and is_sweep(path.parent)  # a trial of a sweep
    return quoted(f"{path.parent.name}/{path.name}" if inside else path)
