"""Base of the tasks whose answer is made of a random prefix, after a separator or in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from mhsa_cli.core.tasks.base import IGNORE, Batch, Task, keys_that_hold


class Recall(Task):
    """A row is a prefix of L random symbols, a separator, and an answer of L symbols; only the answer is scored.

    L is seq_len / 2, or drawn per row from min_length..seq_len/2; a shorter row ends in padding. Ids: symbols first,
    then padding (only if lengths vary), and the separator last. Without a separator all tokens are the prefix, and the
    answer stands in place of it: for a model that sees the whole row. With `loss_on` "all" training predicts the prefix
    and the separator, too, but no padding. A task overrides `answer_index`.
    """

    in_place: str  # a summary of the task without a separator

    def __init__(
        self,
        *,
        vocab_size: int,
        seq_len: int,
        min_length: int | None = None,
        separator: bool = True,
        loss_on: str = "answers",
    ) -> None:
        self.vocab_size, self.seq_len, self.loss_on = vocab_size, seq_len, loss_on
        self.max_length = seq_len // 2 if separator else seq_len
        self.min_length = self.max_length if min_length is None else min_length
        self.separator = vocab_size - 1 if separator else None
        self.summary = self.summary if separator else self.in_place
        self.padding = vocab_size - 2 if min_length is not None else None

    @property
    def n_symbols(self) -> int:
        return self.vocab_size - (self.separator is not None) - (self.padding is not None)

    def answer_index(self, ids: Tensor, length: Tensor) -> Tensor:
        """Return the position in the prefix of each answer's symbol: column i holds that of answer i.

        Shapes: ids (B, N), length (B, 1), the result (B, N). The first `length` columns of a row of `ids` are the
        prefix, the others are arbitrary; of the result, too, only the first `length` columns are used.
        """
        raise NotImplementedError

    def sample(self, generator: Generator, rows: int) -> Batch:
        return self._drawn(generator, rows, self.loss_on)

    def held_out(self, generator: Generator, rows: int) -> Batch:
        return self._drawn(generator, rows, "answers")

    def _drawn(self, generator: Generator, rows: int, loss_on: str) -> Batch:
        prefix = torch.randint(self.n_symbols, (rows, self.max_length), generator=generator)
        if self.separator is None:
            return Batch(prefix, self._in_place(prefix))
        if self.padding is None:
            length = torch.full((rows, 1), self.max_length)
        else:
            length = torch.randint(self.min_length, self.max_length + 1, (rows, 1), generator=generator)
        t = torch.arange(self.seq_len + 1).expand(rows, -1)  # the row has one token more than inputs or targets
        i = t - length - 1  # which answer stands at t; negative in the prefix and on the separator
        answered = (i >= 0) & (i < length)
        index = torch.where(answered, self._index(prefix, length, i), t).clamp(0, self.max_length - 1)
        ids = prefix.gather(1, index).masked_fill(t == length, self.separator)
        if self.padding is not None:
            ids = ids.masked_fill(i >= length, self.padding)
        targets = ids.masked_fill(i >= length if loss_on == "all" else ~answered, IGNORE)
        return Batch(ids[:, :-1].contiguous(), targets[:, 1:].contiguous())

    def source(self, inputs: Tensor) -> Tensor:
        """Return the prefix position that each query's answer repeats, and all others with the same symbol."""
        if self.separator is None:
            return keys_that_hold(self._in_place(inputs), inputs, torch.ones_like(inputs, dtype=torch.bool))
        length = (inputs == self.separator).int().argmax(-1, keepdim=True)  # (B, 1)
        i = torch.arange(inputs.size(1), device=inputs.device).expand_as(inputs) - length
        answers = inputs.gather(1, self._index(inputs, length, i).clamp(0, inputs.size(1) - 1))
        return keys_that_hold(answers, inputs, (i >= 0) & (i < length))

    def _in_place(self, ids: Tensor) -> Tensor:
        """Compute the answers of rows that are all prefix, (B, T)."""
        length = torch.full_like(ids[:, :1], ids.size(1))
        return ids.gather(1, self.answer_index(ids, length).expand_as(ids))

    def _index(self, ids: Tensor, length: Tensor, i: Tensor) -> Tensor:
        """Look up the prefix position of answer number i (B, T)."""
        return self.answer_index(ids, length).gather(1, i.clamp(0, ids.size(1) - 1))

    def symbols(self, ids: Sequence[int]) -> list[str]:
        names = {self.separator: "|", self.padding: "_"}
        return [names.get(i, str(i)) for i in ids]
