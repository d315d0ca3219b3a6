"""Repeat: one random id in every position."""

from __future__ import annotations

import torch
from torch import Generator

from mhsa_cli.core.tasks.base import Batch, Task, next_token_rows


class Repeat(Task):
    """Every key carries the same token, so the answer does not depend on what a head attends to.

    ```
    inputs   9 9 9 9
    targets  9 9 9 9
    ```
    """

    name = "repeat"
    summary = "one id in every position; any attention finds the answer"
    uniform_answers = True
    note = (
        "On repeat every key carries the same token: the answer does not depend on what a head attends to. "
        "A task on which the pattern matters: mhsa train task.name=copy"
    )

    def __init__(self, *, vocab_size: int, seq_len: int) -> None:
        self.vocab_size, self.seq_len = vocab_size, seq_len
        self.gaps = (1,)

    def sample(self, generator: Generator, rows: int) -> Batch:
        ids = torch.randint(self.vocab_size, (rows, 1), generator=generator)
        return next_token_rows(ids.expand(rows, self.seq_len + 1))
