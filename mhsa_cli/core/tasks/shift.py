"""Shift: counting upwards from a random start."""

from __future__ import annotations

import torch
from torch import Generator

from mhsa_cli.core.tasks.base import Batch, Task, next_token_rows


class Shift(Task):
    """Each id is the successor of the one before, modulo vocab_size: learning the identity, or wrongly shifted targets,
    would show.

    ```
    inputs   7 8 9 0
    targets  8 9 0 1
    ```
    """

    name = "shift"
    summary = "counting upwards; a wrongly shifted target shows at once"
    uniform_answers = True

    def __init__(self, *, vocab_size: int, seq_len: int) -> None:
        self.vocab_size, self.seq_len = vocab_size, seq_len
        self.gaps = (vocab_size,)

    def sample(self, generator: Generator, rows: int) -> Batch:
        start = torch.randint(self.vocab_size, (rows, 1), generator=generator)
        return next_token_rows((start + torch.arange(self.seq_len + 1)) % self.vocab_size)
