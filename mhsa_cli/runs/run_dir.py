"""The run folder: one owner while it is written, any number of readers, never overwritten, movable."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mhsa_cli import __version__
from mhsa_cli.errors import IS, DamageError, RunError, StorageError
from mhsa_cli.records.formats import FORMAT, STATE
from mhsa_cli.runs import checkpoints, hashes, listing
from mhsa_cli.runs.atomic import write_file_atomic
from mhsa_cli.runs.checkpoints import Checkpoint, Loaded, is_damage, list_checkpoints
from mhsa_cli.runs.commit import MANIFEST, sweep_orphans
from mhsa_cli.runs.disk import read_file
from mhsa_cli.runs.heads import parse_heads
from mhsa_cli.runs.json_file import FILES, dump_json, dump_sealed, parse_document
from mhsa_cli.runs.listing import CONFIG, HEADS, LOCK, METRICS, RUN, SCORES, load_info
from mhsa_cli.runs.metrics import MetricsFile, Records
from mhsa_cli.runs.new_folder import OwnedFolder

_TEXT_LIMIT = 1 << 20
_HEADS_LIMIT = 1 << 30  # bytes; the largest file that is read whole


class RunDir(OwnedFolder):
    """One run folder. `create` and `open(..., write=True)` own it until `close`; `open` alone only reads.

    A reader reads run.json and config.yaml once and keeps them.

    Example: `with RunDir.create(Path("runs"), stem="repeat-h4") as run: run.write_config(text)`
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._curves = {name: MetricsFile(path / name) for name in (METRICS, SCORES)}
        self._listed = True  # whether run.json may list the files
        self._info: dict[str, Any] | None = None  # run.json as a reader read it
        self._texts: dict[bool, str] = {}  # config.yaml, by whether it was compared with run.json

    # -- finding and owning -------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, root: Path, name: str | None = None, stem: str = "run", command: Sequence[str] = (), **info: Any
    ) -> RunDir:
        """Create and own a new run: `root/name`, or the first free of `stem`, `stem-2`, `stem-3` ...

        Raises: UsageError for an invalid or taken name, BusyError if its owner is active, StorageError.
        """

        def begin(run: RunDir) -> None:
            # Not the time alone: clocks are set back, and two runs may start in the same tick.
            newest = listing.newest_first(listing.run_folders(root), 1)
            order = max([time.time_ns() // 1000, *(item.order + 1 for item in newest)])
            run._begin(order, command, **info)

        return cls._make(root, name, stem, begin)

    @classmethod
    def start(cls, path: Path, order: int, command: Sequence[str] = ()) -> RunDir:
        """Own an empty folder as a new run. Raises: BusyError, StorageError."""
        run = cls(path)
        run._lock.acquire()
        run._begin(order, command)
        return run

    def _begin(self, order: int, command: Sequence[str], **info: Any) -> None:
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        first = {"format": FORMAT, "mhsa": __version__, "status": "running", "started": started}
        self._write_info({**first, "order": order, "command": list(command), **info})
        self._stamp(order)

    def _stamp(self, order: int) -> None:
        """Make the run's number the time of its lock file, by which `newest_first` finds it without reading all."""
        with contextlib.suppress(OSError, OverflowError):
            os.utime(self.path / LOCK, ns=(order * 1000, order * 1000))

    @classmethod
    def open(cls, root: Path, name_or_path: str | os.PathLike[str], *, write: bool = False) -> RunDir:
        """Open a run by its name in `root`, "newest" or its path; `write=True` also owns it, to resume it.

        Raises: RunError if there is no such run or it is unreadable, BusyError, StorageError.
        """
        run = cls(listing.find_run(root, name_or_path))
        if not write:
            run._load()
        else:
            order = load_info(run.path).get("order")  # before its lock file is created
            run._lock.acquire()
            if order is not None:
                run._stamp(order)
            try:
                refuse_newer(run.path)
            except RunError:
                run.close()
                raise
            sweep_orphans(run.path)
            sweep_orphans(run.path / checkpoints.FOLDER)
        return run

    def close(self) -> None:
        """Release the run: other processes may write to it."""
        for file in self._curves.values():
            file.close()
        super().close()

    # -- config, run.json, heads.json ---------------------------------------------------------------------------------

    def write_config(self, text: str) -> None:
        """Write config.yaml. Raises: StorageError."""
        self._unlist()
        write_file_atomic(self.path / CONFIG, text.encode("utf-8", "surrogateescape"))

    def read_config_text(self, *, compare: bool = True) -> str:
        """Read config.yaml. Raises: ChangedError if it differs from the one in run.json, RunError, StorageError."""
        if compare in self._texts:
            return self._texts[compare]
        path = self.path / CONFIG
        if compare:
            data = hashes.read_listed(self.path, CONFIG, self.listed(), _TEXT_LIMIT)
        else:
            data = read_file(path, _TEXT_LIMIT)
        try:
            text = data.decode("utf-8")
            if not self._lock.is_held:
                self._texts |= {False: text, compare: text}
            return text
        except UnicodeDecodeError as error:
            raise DamageError((path, IS, f"damaged: byte {error.start} is not UTF-8"), code="not-utf8") from error

    def update(self, **info: Any) -> None:
        """Change keys of run.json, for example `update(status="finished", seconds=3.1, final={...})`.

        Any status but "running" ends the run: its files are listed with their hashes. Raises: RunError, StorageError.
        """
        self._lock.check()
        self._write_info({**self._load(), **info})

    def _write_info(self, info: Mapping[str, Any]) -> None:
        files = None
        if info.get("status") != "running":
            self._sync()
            files = hashes.list_files(self.path)
        content = {key: value for key, value in info.items() if key != FILES}
        self._lock.check()
        write_file_atomic(self.path / RUN, dump_sealed({**content, "format": FORMAT, FILES: files}))
        self._listed = files is not None

    def _unlist(self) -> None:
        """Remove the list of files from run.json before the first of them changes."""
        self._lock.check()
        if self._listed:
            self.update(status="running")

    def _load(self) -> dict[str, Any]:
        if self._lock.is_held:
            return load_info(self.path)
        if self._info is None:
            self._info = load_info(self.path)
        return self._info

    def listed(self) -> Mapping[str, Any]:
        """Return the files that run.json lists, with their hashes. Raises: RunError, StorageError."""
        return hashes.listed_in(self._load())

    def read_run_json(self) -> dict[str, Any]:
        """Read run.json; a "running" run without an owner is "interrupted". Raises: RunError, StorageError."""
        return listing.with_status(self.path, self._load())

    def write_heads(self, heads: Mapping[str, Any]) -> None:
        """Write heads.json. Raises: StorageError."""
        self._unlist()
        content = dump_json({"format": FORMAT, **heads}) + "\n"
        write_file_atomic(self.path / HEADS, content.encode("ascii"))

    def read_heads(self) -> dict[str, Any]:
        """Read heads.json, NaN restored. Raises: RunError (also if the run has none yet), StorageError."""
        path = self.path / HEADS
        return parse_heads(hashes.read_listed(self.path, HEADS, self.listed(), _HEADS_LIMIT), self._load(), path)

    # -- metrics.jsonl and heads.jsonl --------------------------------------------------------------------------------

    def append(self, name: str, records: Sequence[Mapping[str, Any]]) -> None:
        """Append records to METRICS or SCORES. Raises: StorageError."""
        self._unlist()
        self._curves[name].append(records)

    def truncate_after(self, step: int) -> int:
        """Drop records and head scores after `step`; return the number of records. Raises: RunError, StorageError."""
        for name in self._curves:
            if os.path.lexists(self.path / name):
                hashes.open_listed(self.path, name, self.listed()).close()
        self._unlist()
        return {name: file.truncate_after(step) for name, file in self._curves.items()}[METRICS]

    def records(self, name: str) -> Records:
        """Read METRICS or SCORES line by line, without a torn last line. Iteration raises RunError, StorageError."""

        def lines() -> Iterator[bytes]:
            if os.path.lexists(self.path / name) or name in self.listed():
                with hashes.open_listed(self.path, name, self.listed()) as file:
                    yield from file.lines()

        return Records(self.path / name, lines)

    def _sync(self) -> None:
        for file in self._curves.values():
            file.sync()

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def commit_checkpoint(self, step: int, files: Mapping[str, bytes], keep: int = 2) -> Path:
        """Save a checkpoint, then keep only the newest `keep`. Raises: StorageError; the older ones stay."""
        self._lock.check()
        self._sync()  # a checkpoint must never be ahead of the metrics
        return checkpoints.commit_checkpoint(self.path, step, files, keep)

    def checkpoints(self) -> Sequence[Checkpoint]:
        """List the checkpoints, lowest step first. Raises: RunError, StorageError."""
        return checkpoints.list_checkpoints(self.path)

    def load_checkpoint(self, step: int | None = None, *, for_training: bool = True) -> Loaded:
        """Read the newest whole checkpoint, or that of `step`; without the optimizer if not `for_training`.

        Its `notes` list newer ones that are damaged or missing. Raises: RunError with every reason if none is whole.
        """
        found = checkpoints.load_checkpoint(self.path, step, for_training=for_training)
        info = self.read_run_json()
        ended = info.get("status") in ("finished", "stopped") and isinstance(info.get("step"), int)
        if step is None and ended and found.step != info["step"] and not found.notes:
            return found._replace(notes=(f"the checkpoint of step {info['step']}, the run's last, is missing",))
        return found


def refuse_newer(run: Path) -> None:
    """Refuse a run folder with a part of a newer format; damage is left to the readers.

    Raises: NewerFormatError; StorageError for a part that cannot be read here and may be of a newer format.
    """
    try:
        saved = list_checkpoints(run)
    except (RunError, StorageError):
        saved = []
    parts = [run / RUN, run / HEADS, *(item.path / name for item in saved for name in (MANIFEST, STATE))]
    for part in filter(os.path.lexists, parts):
        try:
            parse_document(read_file(part, _HEADS_LIMIT), part)
        except (RunError, StorageError) as error:
            if not is_damage(error):
                raise
