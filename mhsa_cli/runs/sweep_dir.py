"""The folder of a sweep: its plan, its trials as ordinary run folders, and its report."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mhsa_cli.errors import IS, DamageError, RunError, StorageError, UsageError
from mhsa_cli.records.formats import FORMAT
from mhsa_cli.records.labels import Label, set_words
from mhsa_cli.records.sweep import Median, OwnStats, PairStats, SweepReport
from mhsa_cli.runs.atomic import remove, write_file_atomic
from mhsa_cli.runs.codec import plain
from mhsa_cli.runs.commit import sweep_orphans
from mhsa_cli.runs.disk import read_file, retried, storage_errors, verify_hint
from mhsa_cli.runs.hashes import read_listed
from mhsa_cli.runs.heads import OWN
from mhsa_cli.runs.json_file import dump_sealed, is_sealed
from mhsa_cli.runs.listing import LOCK, RUN, SWEEP, is_sweep, list_sweeps, load_sealed, named, read_info, run_argument
from mhsa_cli.runs.lock import RunLock
from mhsa_cli.runs.names import LONGEST, check_name
from mhsa_cli.runs.new_folder import OwnedFolder
from mhsa_cli.runs.older_keys import rename_plan
from mhsa_cli.runs.run_dir import RunDir, refuse_newer
from mhsa_cli.runs.run_facts import SWEEP_FACTS, check_facts
from mhsa_cli.text import shortened

TABLE, GRID, ERRORS = "sweep.csv", "sweep.yaml", "errors.txt"
LIMIT = 1 << 28
Words = Callable[[SweepReport, PairStats], str]
DONE = ("finished", "failed")  # a failed trial is a result: it would fail again


class SweepDir(OwnedFolder):
    """One sweep's folder, owned until `close`; trials are run folders in it, named by cell and seed.

    Example: `with SweepDir.create(Path("runs"), "heads", plan) as sweep: ...`
    """

    @classmethod
    def create(
        cls, root: Path, name: str | None, stem: str, plan: Mapping[str, Any], config: str | None = None
    ) -> SweepDir:
        """Create and own a new sweep; `config` is the YAML of its grid.

        Raises: UsageError for an invalid or taken name, StorageError.
        """

        def begin(sweep: SweepDir) -> None:
            sweep.write({**plan, "started": time.time()})
            if config is not None:
                write_file_atomic(sweep.path / GRID, config.encode())

        return cls._make(root, name, stem, begin)

    @classmethod
    def open(cls, root: Path, name: str, *, write: bool = False) -> SweepDir:
        """Open a sweep by its name in `root` or its path. Raises: RunError, BusyError."""
        for path in (root / name, Path(name)):
            if (path / SWEEP).is_file():
                sweep = cls(path)
                if write:
                    sweep._lock.acquire()
                    sweep_orphans(path)
                return sweep
            if is_sweep(path):
                raise DamageError((path, f" has no {SWEEP}, its plan"), verify_hint(path), "no-plan")
            if (path / RUN).is_file():
                hint = f"continue it: mhsa train --resume {run_argument(path)}"
                raise RunError((path, IS, "a run, not a sweep"), hint, "no-sweep")
        names: list[str] = []
        with contextlib.suppress(StorageError):  # the folder cannot be listed
            names = [sweep.name for sweep, _ in list_sweeps(root)]
        hint = named(name, names, "sweeps") if names else "start one: mhsa sweep n_heads=1,2,4 --seeds 8"
        raise RunError((f"there is no sweep `{shortened(name, 4 * LONGEST)}` in ", root), hint, "no-sweep")

    def read(self) -> dict[str, Any]:
        """Read sweep.json: the plan and, if the sweep ended, the report. Raises: RunError, StorageError."""
        plan = rename_plan(load_sealed(self.path / SWEEP, LIMIT))
        check_facts(plan, SWEEP_FACTS, self.path / SWEEP, verify_hint(self.path))
        return plan

    def is_sealed(self) -> bool:
        """Return whether sweep.json has a hash of its own. Raises: RunError, StorageError."""
        return is_sealed(read_file(self.path / SWEEP, LIMIT))

    def write(self, content: Mapping[str, Any]) -> None:
        """Write sweep.json. Raises: StorageError."""
        write_file_atomic(self.path / SWEEP, dump_sealed({**content, "format": FORMAT}))

    def write_report(self, plan: Mapping[str, Any], report: SweepReport, words: Words) -> None:
        """Write the report into sweep.json, and sweep.csv with a row for each trial. Raises: StorageError."""
        self.write({**plan, "report": report_document(report, words)})
        write_file_atomic(self.path / TABLE, report_table(report))

    def is_done(self, trial: str) -> bool:
        """Return whether a trial has its result; one that ran out of memory is tried again.

        One that failed in `mhsa train --resume` is resumed, too. Raises: OtherVersionError, StorageError.
        """
        info = self.info(trial)
        entry = info.get("sweep")
        if not isinstance(entry, dict):
            return info.get("status") == "finished"
        return info.get("status") in DONE and not entry.get("again")

    def steps(self, trial: str) -> list[int]:
        """List the steps of a trial's checkpoints, unverified, lowest first. Raises: StorageError."""
        try:
            return [item.step for item in RunDir(self.path / trial).checkpoints()]
        except RunError:
            return []

    def is_damaged(self, trial: str) -> bool:
        """Return whether a file of a finished trial changed, or its newest checkpoint is damaged."""
        run = RunDir(self.path / trial)
        try:
            for name in run.listed():
                read_listed(run.path, name, run.listed())
            if run.checkpoints():
                return bool(run.load_checkpoint().notes)
        except DamageError:
            return True
        except (RunError, StorageError):
            return False
        return False

    def info(self, trial: str) -> dict[str, Any]:
        """Read a trial's run.json; empty if missing or damaged. Raises: OtherVersionError, StorageError."""
        try:
            return read_info(self.path / trial)
        except DamageError:
            return {}

    def note_error(self, trace: str) -> Path:
        """Append a traceback to the sweep's errors.txt. Raises: StorageError."""
        path = self.path / ERRORS
        with storage_errors("write", path), path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(trace + "\n")
        return path

    def begin(self, trial: str, order: int, command: Sequence[str]) -> RunDir:
        """Create a trial's run folder, over an unfinished one. Raises: BusyError, OtherVersionError, StorageError."""
        path = self.path / trial
        if self.is_done(trial):
            raise UsageError((path, IS, "finished already"), code="taken")
        if (path / LOCK).exists():
            lock = RunLock(path / LOCK)
            lock.acquire()
            lock.release()
        refuse_newer(path)
        remove(path)
        with storage_errors("create", path):
            retried(path.mkdir)
        return RunDir.start(path, order, command)


def trial_table(report: SweepReport) -> tuple[list[str], list[list[Any]]]:
    """Return the columns of sweep.csv, and a row for each trial."""
    keys = list(report.groups[0].overrides) if report.groups else []
    figures = ["eval_loss", "eval_accuracy", "steps_to_goal", "watched", "seconds"]
    columns = ["run", *keys, "seed", "status", "cause", *figures, *_label_names(())]
    rows = [
        [
            *(t.run, *(report.groups[t.cell].overrides[key] for key in keys), t.seed, t.status, t.cause),
            *(t.final_loss, t.final_accuracy, t.steps_to_goal, t.watched, t.seconds),
            *("; ".join(names) for names in _label_names(t.labels).values()),
        ]
        for t in report.trials
    ]
    return columns, rows


def report_document(report: SweepReport, words: Words) -> dict[str, Any]:
    """Turn a report into the document that `mhsa sweep --json` prints; `words` puts a pair's result into words."""
    groups = [
        {
            "overrides": dict(group.overrides),
            "models": group.models,
            "success": {"k": group.k, "n": group.n, "wilson95": list(group.wilson95)},
            "steps_to_goal": {**_median(group.steps_to_goal), "watched": group.watched},
            "final_loss": _median(group.final_loss),
            "labels": [
                {"heads": set_words(labels), "label_ids": [label.id for label in labels], "models": count}
                for labels, count in group.label_sets
            ],
            "formed": [{**plain(one), "step": _median(one.step)} for one in group.formed],
            "pending": group.pending,
            **({OWN: [_own(one) for one in group.own_scores]} if group.own_scores else {}),
        }
        for group in report.groups
    ]
    pairs = [
        {**plain(pair), "difference": pair.difference and _median(pair.difference), "words": words(report, pair)}
        for pair in report.pairs
    ]
    runs = [{**_without_empty(plain(trial)), **_label_names(trial.labels)} for trial in report.trials]
    failed = sum(trial.status == "failed" for trial in report.trials)
    return {"goal": report.goal, "failed": failed, "groups": groups, "pairs": pairs, "runs": runs}


def report_table(report: SweepReport) -> bytes:
    """Write a report as CSV, a row for each trial."""
    columns, rows = trial_table(report)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue().encode("utf-8", "backslashreplace")


def _without_empty(trial: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in trial.items() if key != OWN or value}


def _own(one: OwnStats) -> dict[str, Any]:
    return {**plain(one), "smallest": _median(one.smallest), "largest": _median(one.largest)}


def _median(found: Median) -> dict[str, float | None]:
    """Turn a median into plain data; JSON has no infinities: null is what is not bounded."""
    numbers = {"estimate": found.estimate, "low": found.low, "high": found.high}
    return {
        **{key: None if value is None or math.isinf(value) else value for key, value in numbers.items()},
        "n": found.n,
    }


def _label_names(labels: Sequence[Label]) -> dict[str, list[str]]:
    return {"labels": [label.text for label in labels], "label_ids": [label.id for label in labels]}


def trial_name(overrides: Mapping[str, str], seed: int, cell: int) -> str:
    """Name a trial by its overrides and seed, or by the number of its cell if that is no valid folder name."""
    parts = [f"{key.rpartition('.')[2]}={text}" for key, text in overrides.items()]
    name = "_".join([*parts, f"seed={seed}"])
    try:
        return check_name(name) if name.isascii() else f"cell-{cell}_seed={seed}"
    except UsageError:
        return f"cell-{cell}_seed={seed}"
