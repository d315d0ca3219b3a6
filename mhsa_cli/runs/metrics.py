"""metrics.jsonl: one strict JSON record per line, appended while training."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from mhsa_cli.errors import DamageError, StorageError
from mhsa_cli.records.training import EpochRecord, EvalRecord, StepRecord
from mhsa_cli.runs.atomic import write_all, write_file_atomic
from mhsa_cli.runs.codec import COUNT, TEXT, ContentError, from_plain, plain, shown
from mhsa_cli.runs.disk import LIMIT, OpenFile, open_regular, retried, storage_errors
from mhsa_cli.runs.json_file import dump_json, parse_json, restore_nonfinite

MetricRecord = StepRecord | EvalRecord | EpochRecord

KINDS: dict[str, type[StepRecord] | type[EvalRecord] | type[EpochRecord]] = {
    "step": StepRecord,
    "eval": EvalRecord,
    "epoch": EpochRecord,
}
_NAMES = {cls: kind for kind, cls in KINDS.items()}
_BLOCK = 10_000  # lines
_DELETE = "delete that line to go on without it"


def record_to_dict(record: MetricRecord) -> dict[str, Any]:
    """Turn a record into plain data: `{"kind": "step", "step": 1, "loss": ..., ...}`."""
    return {"kind": _NAMES[type(record)], **plain(record)}


def record_from_dict(content: Mapping[str, Any]) -> MetricRecord:
    """Turn plain data back into its record; unknown keys are ignored. Raises: DamageError."""
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        message = f"not a metrics record: kind is {shown(kind)}, expected {', '.join(KINDS)}"
        raise DamageError(message, code="record")
    cls: Callable[..., MetricRecord] = KINDS[kind]
    try:
        return from_plain(cls, content)
    except ContentError as error:
        raise DamageError(f"not a {kind} record: {error}", code="record") from None


class Records:
    """The records of a .jsonl file, NaN restored, read line by line on each iteration.

    `lines` opens the file from its start; `number` and `line` are those of the current record. A last line that a crash
    cut short is skipped and counted in `torn`. Iteration raises DamageError naming the damaged line.
    """

    def __init__(self, path: Path, lines: Callable[[], Iterable[bytes]]) -> None:
        self.path, self._lines = path, lines
        self.number = self.torn = 0
        self.line = b""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.torn = 0
        for number, line in enumerate(self._lines(), 1):
            if line.isspace():
                continue
            self.number, self.line = number, line
            try:
                content = restore_nonfinite(parse_json(line.removesuffix(b"\n"), self.path, number))
            except DamageError as error:
                if line.endswith(b"\n"):  # only the very last line, without its newline, can be torn
                    error.hint = _DELETE
                    raise
                self.torn += 1
                continue
            if not isinstance(content.get("kind", ""), str):
                raise self.damage(f"kind is {shown(content['kind'])}, expected {TEXT.name}")
            if "step" in content and not COUNT.fits(content["step"]):
                raise self.damage(f"step is {shown(content['step'])}, expected {COUNT.name}")
            yield content

    def damage(self, reason: str) -> DamageError:
        """Return the error about the current record."""
        return DamageError((self.path, ":", f"{self.number}: {reason}"), _DELETE, "record")


def records_of(lines: Records) -> Iterator[MetricRecord]:
    """Turn lines of metrics into records; unknown kinds are skipped. Raises: DamageError."""
    for content in lines:
        if content.get("kind") in KINDS:
            try:
                record = record_from_dict(content)
            except DamageError as error:
                raise lines.damage(error.message) from error
            yield record


class MetricsFile:
    """The writer of metrics.jsonl: what it appends stays whole lines, also when the disk is full."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._is_whole = False  # a crash may have cut the last line short

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Append records, one line each, unsynced. Raises: StorageError."""
        if not records:
            return
        data = "".join(dump_json(record) + "\n" for record in records).encode("ascii")
        if self._fd is None:
            if not self._is_whole:
                self.truncate_after()
            self._fd = open_regular(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        fd = self._fd
        with storage_errors("write", self.path):
            end = os.fstat(fd).st_size
            try:
                write_all(fd, data)
            except BaseException:
                self._is_whole = False
                os.ftruncate(fd, end)  # remove a partial line
                raise
            if os.fstat(fd).st_nlink == 0:
                raise StorageError(("cannot write ", self.path, ": it was deleted during the run"), code="deleted")

    def records(self) -> Records:
        """Read every record; a missing file counts as empty. Raises: DamageError naming the damaged line."""
        return Records(self.path, self._lines)

    def _lines(self) -> Iterator[bytes]:
        if os.path.lexists(self.path):
            with OpenFile(self.path, LIMIT) as file:
                yield from file.lines()

    def truncate_after(self, step: float = math.inf) -> int:
        """Drop records of later steps and a torn last line; return their number. Raises: DamageError, StorageError."""
        self.close()
        records, dropped, size = self.records(), 0, 0
        for content in records:
            later = content.get("step", step) > step
            size += 0 if later else len(records.line)
            dropped += later
        has_end = records.line.endswith(b"\n") or not records.line
        if os.path.lexists(self.path) and not (has_end and size == self.path.stat().st_size):
            write_file_atomic(self.path, self._kept(step))
        self._is_whole = True
        return dropped + records.torn

    def _kept(self, step: float) -> Iterator[bytes]:
        records = self.records()
        lines = (records.line.removesuffix(b"\n") + b"\n" for content in records if content.get("step", step) <= step)
        while block := b"".join(islice(lines, _BLOCK)):
            yield block

    def sync(self) -> None:
        """Sync what was appended. Raises: StorageError."""
        if self._fd is not None:
            with storage_errors("write", self.path):
                retried(os.fsync, self._fd)

    def close(self) -> None:
        """Close the file; the next append reopens it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
