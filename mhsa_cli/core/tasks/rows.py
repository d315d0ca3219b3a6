"""Rows: inputs with their targets from a file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Generator, Tensor

from mhsa_cli.config.row_file import Row, RowFileError, read_row_file
from mhsa_cli.core.tasks.base import IGNORE, Batch, Task
from mhsa_cli.errors import UsageError

SEPARATOR, PADDING = "|", "_"


class Rows(Task):
    """The rows of a file. A part of the different ones is held out, so that no row is in both parts.

    A target follows its input after a separator, and its tokens alone are scored; or the two are aligned. Shorter rows
    end in padding. ``` inputs   3 + 4 | targets  · · · 7 ``` Raises: UsageError if the file cannot be used.
    """

    name = "rows"
    summary = "rows of your own, from a file"
    holds_back = True

    def __init__(self, *, rows: str, seq_len: int, eval_fraction: float) -> None:
        try:
            file = read_row_file(rows)
        except RowFileError as error:
            raise UsageError(error.message, error.hint) from error
        if file.seq_len > seq_len:
            message = f"task.seq_len is {seq_len}; the longest row of {rows} has {file.seq_len} tokens"
            raise UsageError(message, f"task.seq_len={file.seq_len}")
        self.seq_len = seq_len
        self.tokens = [*file.tokens, *(_unlike(file.tokens, mark) for mark in (PADDING, SEPARATOR))]
        self.vocab_size, self.separator = len(self.tokens), len(self.tokens) - 1
        number = {token: i for i, token in enumerate(file.tokens)}
        different = list(dict.fromkeys(file.rows))
        order = torch.randperm(len(different), generator=torch.Generator().manual_seed(0)).tolist()
        held = {different[i] for i in order[: max(1, round(len(different) * eval_fraction))]}
        kept = [row for row in file.rows if row not in held]
        self._parts = [self._batch(part, number) for part in (kept, [row for row in different if row in held])]

    @property
    def n_symbols(self) -> int:
        return self.vocab_size - 2

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


def _unlike(tokens: Sequence[str], mark: str) -> str:
    """Lengthen a mark until it is no token of the file."""
    while mark in tokens:
        mark += mark[0]
    return mark


def _drawn(part: Batch, generator: Generator, rows: int) -> Batch:
    chosen: Tensor = torch.randint(len(part.inputs), (rows,), generator=generator)
    return Batch(part.inputs[chosen], part.targets[chosen])
