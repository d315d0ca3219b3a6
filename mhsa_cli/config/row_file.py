"""A file of rows, each an input with its target: lines `input -> target`, JSON lines or CSV."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mhsa_cli.text import escape, plural

LARGEST = 64 * 2**20  # bytes
ARROW = "->"
MARKS = ("_", "|")  # padding and separator: the ids after those of the file's tokens
FORMS = 'lines `input -> target`, JSON lines {"input": ..., "target": ...}, or CSV of two columns'


class RowFileError(Exception):
    """A file of rows that cannot be read: what was found where, and the way out."""

    def __init__(self, message: str, hint: str | None = FORMS) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class Row(NamedTuple):
    """The tokens of an input and of its target. Aligned: the target has one for each of the input, None unscored."""

    inputs: tuple[str, ...]
    targets: tuple[str | None, ...]
    aligned: bool

    @property
    def length(self) -> int:
        """How many tokens a model reads: a target that is not aligned follows the input, after a separator."""
        return len(self.inputs) if self.aligned else len(self.inputs) + len(self.targets)


class RowFile(NamedTuple):
    """The rows of a file, and its tokens: numbers by size, then words."""

    rows: tuple[Row, ...]
    tokens: tuple[str, ...]
    seq_len: int


def read_row_file(path: str) -> RowFile:
    """Read a file of rows. Raises: RowFileError."""
    file = Path(path)
    try:
        data = file.read_bytes() if file.is_file() and file.stat().st_size <= LARGEST else None
    except (OSError, ValueError) as error:
        raise RowFileError(f"{escape(path)} cannot be read: {error}", None) from error
    if data is None:
        what = f"larger than {LARGEST // 2**20} MiB" if file.is_file() else "not a file"
        hint = None if file.is_file() else "the path is relative to the working directory"
        raise RowFileError(f"{escape(path)} is {what}", hint)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RowFileError(f"{escape(path)} is not UTF-8 text (byte {error.start})", "save it as UTF-8") from error
    lines = re.split(r"\r\n|\r|\n", text)  # not at other marks, which a JSON text may hold
    first = next((line.strip() for line in lines if line.strip()), "")
    read = _from_json if _is_object(first) else _from_arrows if ARROW in first else _from_csv
    rows = []
    for line, row in read(path, lines):
        if not row.inputs or all(target is None for target in row.targets):
            part = "input" if not row.inputs else "target"
            raise RowFileError(f"{escape(path)}, line {line}: there is no {part}")
        rows.append(row)
    if len(set(rows)) < 2:
        raise RowFileError(f"{escape(path)} has {plural(len(set(rows)), 'row')} that differ, wanted 2 or more")
    if len({row.aligned for row in rows}) > 1:
        raise RowFileError(f"{escape(path)} has rows with `inputs` and rows with `input`", "write all in one form")
    found = {token for row in rows for token in (*row.inputs, *row.targets) if token is not None}
    return RowFile(tuple(rows), tuple(sorted(found, key=_order)), max(row.length for row in rows))


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _order(token: str) -> tuple[bool, int, str]:
    digits = token.lstrip("0") if token.isdecimal() else ""
    return not token.isdecimal(), len(digits), digits or token


def _from_arrows(path: str, lines: Sequence[str]) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        given, arrow, target = line.partition(ARROW)
        if not arrow or ARROW in target:
            wanted = f"{escape(path)}, line {number}: found {line.count(ARROW)} of `{ARROW}`, wanted one"
            raise RowFileError(wanted)
        yield number, Row(tuple(given.split()), tuple(target.split()), aligned=False)


def _from_csv(path: str, lines: Sequence[str]) -> Iterator[tuple[int, Row]]:
    reader = csv.reader(f"{line}\n" for line in lines)
    for cells in _cells(path, reader):
        if not cells or (reader.line_num == 1 and [cell.strip().lower() for cell in cells] == ["input", "target"]):
            continue
        if len(cells) != 2:
            raise RowFileError(
                f"{escape(path)}, line {reader.line_num}: found {plural(len(cells), 'column')}, wanted 2"
            )
        yield reader.line_num, Row(tuple(cells[0].split()), tuple(cells[1].split()), aligned=False)


def _cells(path: str, reader: Any) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise RowFileError(f"{escape(path)}, line {reader.line_num}: no CSV: {error}") from error


def _from_json(path: str, lines: Sequence[str]) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{escape(path)}, line {number}"
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RowFileError(f"{where} is no JSON: {error}") from error
        keys = set(found) if isinstance(found, dict) else set()
        if {"inputs", "targets"} <= keys:
            inputs, targets = _tokens(where, found["inputs"]), _tokens(where, found["targets"], none=True)
            if len(inputs) != len(targets):
                message = f"{where}: {plural(len(inputs), 'input')} and {plural(len(targets), 'target')}"
                raise RowFileError(message, "write as many, null where nothing is asked; or `input` and `target`")
            yield number, Row(inputs, targets, aligned=True)  # type: ignore[arg-type]
        elif {"input", "target"} <= keys:
            row = Row(_tokens(where, found["input"]), _tokens(where, found["target"]), aligned=False)  # type: ignore[arg-type]
            yield number, row
        else:
            raise RowFileError(f"{where}: wanted the keys `input` and `target`")


def _tokens(where: str, value: Any, none: bool = False) -> tuple[str | None, ...]:
    if isinstance(value, str):
        return tuple(value.split())
    usable = isinstance(value, list) and all(
        (isinstance(item, int | str) and not isinstance(item, bool)) or (none and item is None) for item in value
    )
    if not usable:
        raise RowFileError(f"{where}: wanted a text, or a list of numbers and texts")
    return tuple(None if item is None else str(item) for item in value)
