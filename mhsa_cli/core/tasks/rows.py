"""Rows: inputs with their targets from a file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Generator, Tensor

from mhsa_cli.config.row_file import MARKS, Row, RowFile, RowFileError, read_row_file
from mhsa_cli.core.tasks.base import IGNORE, Batch, Task
from mhsa_cli.errors import UsageError
from mhsa_cli.text import escape


class Rows(Task):
    """The rows of a file. A part of the different ones is held out, so that no row is in both parts.

    A target follows its input after a separator, and its tokens alone are scored; or the two are aligned. Shorter rows
    end in padding. ``` inputs   3 + 4 | targets  · · · 7 ``` With `vocab_size` tokens are ids, in aligned rows of one
    length: nothing is added to what a model reads. Raises: UsageError if the file cannot be used.
    """

    name = "rows"
    summary = "rows of your own, from a file"
    holds_back = True

    def __init__(self, *, rows: str, seq_len: int, eval_fraction: float, vocab_size: int | None = None) -> None:
        try:
            file = read_row_file(rows)
        except RowFileError as error:
            raise UsageError(error.message, error.hint) from error
        if file.seq_len > seq_len:
            message = f"task.seq_len is {seq_len}; the longest row of {rows} has {file.seq_len} tokens"
            raise UsageError(message, f"task.seq_len={file.seq_len}")
        self.seq_len = seq_len
        if vocab_size is None:
            self.tokens = [*file.tokens, *(_unlike(file.tokens, mark) for mark in MARKS)]
            self.separator, self._marks = len(self.tokens) - 1, len(MARKS)
        else:
            _check_ids(file, rows, seq_len, vocab_size)
            self.tokens, self._marks = [str(i) for i in range(vocab_size)], 0
        self.vocab_size = len(self.tokens)
        number = {token: i for i, token in enumerate(file.tokens if vocab_size is None else self.tokens)}
        different = list(dict.fromkeys(file.rows))
        order = torch.randperm(len(different), generator=torch.Generator().manual_seed(0)).tolist()
        held = {different[i] for i in order[: max(1, round(len(different) * eval_fraction))]}
        kept = [row for row in file.rows if row not in held]
        self._parts = [self._batch(part, number) for part in (kept, [row for row in different if row in held])]

    @property
    def n_symbols(self) -> int:
        return self.vocab_size - self._marks

    @classmethod
    def small(cls) -> Rows:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "sums.txt"
            file.write_text("".join(f"{a} + {b} -> {a + b}\n" for a in range(5) for b in range(5)), encoding="utf-8")
            return cls(rows=str(file), seq_len=4, eval_fraction=0.5)

    def _batch(self, rows: Sequence[Row], number: dict[str, int]) -> Batch:
        """Write rows as ids, one token longer than their inputs unless they are aligned."""
        inputs = torch.full((len(rows), self.seq_len), self.vocab_size - 2)
        targets = torch.full((len(rows), self.seq_len), IGNORE)
        for b, row in enumerate(rows):
            ids = [number[token] for token in row.inputs]
            answers = [IGNORE if token is None else number[token] for token in row.targets]
            first = 0 if row.aligned else len(ids)
            if not row.aligned:
                ids = [*ids, self.vocab_size - 1, *answers[:-1]]
            inputs[b, : len(ids)] = torch.tensor(ids)
            targets[b, first : first + len(answers)] = torch.tensor(answers)
        return Batch(inputs, targets)

    def sample(self, generator: Generator, rows: int) -> Batch:
        return _drawn(self._parts[0], generator, rows)

    def held_out(self, generator: Generator, rows: int) -> Batch:
        return _drawn(self._parts[1], generator, rows)

    def symbols(self, ids: Sequence[int]) -> list[str]:
        return [self.tokens[i] for i in ids]


def _check_ids(file: RowFile, rows: str, seq_len: int, vocab_size: int) -> None:
    """Refuse a file whose tokens are not ids, or whose rows a model could not read as they are. Raises: UsageError."""
    ids = {str(i) for i in range(vocab_size)}
    if (odd := next((token for token in file.tokens if token not in ids), None)) is not None:
        message = f"task.vocab_size is {vocab_size}; {escape(rows)} has the token `{escape(odd)}`"
        raise UsageError(message, f"tokens are ids then: 0 to {vocab_size - 1}")
    if not all(row.aligned and row.length == seq_len for row in file.rows):
        message = f"with task.vocab_size every row of {escape(rows)} is as a model reads it, {seq_len} tokens long"
        raise UsageError(message, 'lines {"inputs": [...], "targets": [...]}, null where nothing is asked')


def _unlike(tokens: Sequence[str], mark: str) -> str:
    """Lengthen a mark until it is no token of the file."""
    while mark in tokens:
        mark += mark[0]
    return mark


def _drawn(part: Batch, generator: Generator, rows: int) -> Batch:
    chosen: Tensor = torch.randint(len(part.inputs), (rows,), generator=generator)
    return Batch(part.inputs[chosen], part.targets[chosen])
