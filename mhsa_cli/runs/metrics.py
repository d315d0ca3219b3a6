"""The curve of a run as text: one strict JSON record a line, appended while training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from mhsa_cli.errors import RunError, StorageError
from mhsa_cli.records import EpochRecord, EvalRecord, StepRecord
from mhsa_cli.runs.disk import open_regular, read_file, retried, show, storage_error, write_all, write_file_atomic
from mhsa_cli.runs.jsonfile import dump_json, parse_json, restore_nonfinite

MetricRecord = StepRecord | EvalRecord | EpochRecord

KINDS: dict[str, type[StepRecord] | type[EvalRecord] | type[EpochRecord]] = {
    "step": StepRecord,
    "eval": EvalRecord,
    "epoch": EpochRecord,
}
_FIELDS = {cls: (kind, [field.name for field in fields(cls)]) for kind, cls in KINDS.items()}
_LIMIT = 1 << 31  # bytes; far beyond any run of this program


def record_to_dict(record: MetricRecord) -> dict[str, Any]:
    """Turn a record into plain data: `{"kind": "step", "step": 1, "loss": ..., ...}`."""
    kind, names = _FIELDS[type(record)]
    return {"kind": kind} | {name: getattr(record, name) for name in names}


def record_from_dict(content: Mapping[str, Any]) -> MetricRecord:
    """Turn plain data back into its record; keys it does not know are left out. Raises: RunError."""
    cls = KINDS.get(str(content.get("kind")))
    if cls is None:
        raise RunError(f"not a metrics record: kind is {show(repr(content.get('kind')))}, expected {', '.join(KINDS)}")
    values: dict[str, Any] = {}
    for field in fields(cls):
        value = content.get(field.name)
        if isinstance(value, bool) or not isinstance(value, int if field.type == "int" else int | float):
            raise RunError(f"not a {content['kind']} record: {field.name} is {show(repr(value))}, expected a number")
        values[field.name] = value if field.type == "int" else float(value)
    return cls(**values)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read every record; a last line that a crash cut short is left out, a missing file is an empty one.

    Raises: RunError with the line of a damaged record.
    """
    return parse_metrics(read_file(path, _LIMIT), path) if os.path.lexists(path) else []


def parse_metrics(data: bytes, path: Path) -> list[dict[str, Any]]:
    """Read the records of a file's content, as `read_metrics` does."""
    return [restore_nonfinite(content) for _, content, _ in numbered_lines(data, path)]


def numbered_lines(data: bytes, path: Path) -> Iterator[tuple[int, dict[str, Any], bytes]]:
    """Yield each record with its line's number and bytes. Raises: RunError."""
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield number, parse_json(line, path, number), line
        except RunError as error:
            if number < len(lines):  # only the very last line, without its newline, can be torn
                raise RunError(error.message, "delete that line to go on without it") from error


def count_torn_records(data: bytes, path: Path) -> int:
    """Count the records that a crash cut short: the last line or none. Raises: RunError if another one is damaged."""
    return _count_lines(data) - sum(1 for _ in numbered_lines(data, path))


def _count_lines(data: bytes) -> int:
    return sum(1 for line in data.split(b"\n") if line.strip())


class MetricsFile:
    """The writer's side of metrics.jsonl: what it has appended is complete lines, also after a full disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Append records, one line each, handed to the system before this returns. Raises: StorageError."""
        if not records:
            return
        data = "".join(dump_json(record) + "\n" for record in records).encode("ascii")
        fd = self._open()
        try:
            end = os.fstat(fd).st_size
            try:
                write_all(fd, data)
            except BaseException:
                os.ftruncate(fd, end)  # a part of a line would spoil the next one
                raise
            if os.fstat(fd).st_nlink == 0:
                raise StorageError(f"cannot write {show(self.path)}: it was deleted during the run")
        except OSError as error:
            raise storage_error("write", self.path, error) from error

    def _open(self) -> int:
        if self._fd is None:
            self.truncate(lambda _: True)
            self._fd = open_regular(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        return self._fd

    def truncate_after(self, step: int) -> int:
        """Drop the records of later steps and a torn last line, all at once; returns how many that were.

        Raises: RunError, StorageError.
        """
        return self.truncate(lambda content: not isinstance(content.get("step"), int) or content["step"] <= step)

    def truncate(self, wanted: Callable[[Mapping[str, Any]], bool]) -> int:
        """Keep only the records that `wanted` accepts, and whole lines; returns how many were dropped."""
        self.close()
        if not os.path.lexists(self.path):
            return 0
        data = read_file(self.path, _LIMIT)
        lines = [line for _, content, line in numbered_lines(data, self.path) if wanted(content)]
        kept = b"".join(line + b"\n" for line in lines)
        if kept != data:
            write_file_atomic(self.path, kept)
        return _count_lines(data) - len(lines)

    def sync(self) -> None:
        """Bring what was appended to the disk. Raises: StorageError."""
        if self._fd is not None:
            try:
                retried(os.fsync, self._fd)
            except OSError as error:
                raise storage_error("write", self.path, error) from error

    def close(self) -> None:
        """Close the file; the next append opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def records_of(contents: Iterable[Mapping[str, Any]]) -> list[MetricRecord]:
    """Turn lines of metrics into records, leaving out kinds this program does not know."""
    return [record_from_dict(content) for content in contents if content.get("kind") in KINDS]
