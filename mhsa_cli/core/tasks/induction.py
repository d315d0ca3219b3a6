"""Induction: a block of random symbols repeated, of another length in every row."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from mhsa_cli.core.tasks.base import IGNORE, Batch, Task, keys_that_hold, next_token_rows


class Induction(Task):
    """Continue a repeated block of P distinct symbols, P drawn per row from min_period..max_period.

    A query is scored if its symbol occurred before; the answer is the symbol after that. No fixed distance solves it; a
    previous-token head and an induction head in a later layer do. ``` inputs   4 7 2 4 7 2 4 targets  · · · 7 2 4 7 ```
    min_period and max_period default to a quarter and a half of seq_len. Source: Elhage et al. 2021; Olsson et al.
    2022.
    """

    name = "induction"
    summary = "repeated random symbols of unknown period; one layer is not enough"
    uniform_answers = True

    def __init__(
        self, *, vocab_size: int, seq_len: int, min_period: int | None = None, max_period: int | None = None
    ) -> None:
        self.vocab_size, self.seq_len = vocab_size, seq_len
        self.min_period = max(1, seq_len // 4) if min_period is None else min_period
        self.max_period = max(1, seq_len // 2) if max_period is None else max_period
        self.gaps = range(self.min_period, self.max_period + 1)

    def sample(self, generator: Generator, rows: int) -> Batch:
        block = distinct(rows, self.max_period, self.vocab_size, generator)
        period = torch.randint(self.min_period, self.max_period + 1, (rows, 1), generator=generator)
        t = torch.arange(self.seq_len + 1)
        batch = next_token_rows(block.gather(1, t % period))
        # At t = period - 1 the row does not yet show that the block ends.
        return Batch(batch.inputs, batch.targets.masked_fill(t[:-1] < period, IGNORE))

    def source(self, inputs: Tensor) -> Tensor:
        """Return the positions of the symbol that followed the last earlier occurrence of each query's symbol."""
        T = inputs.size(1)
        earlier = (inputs.unsqueeze(2) == inputs.unsqueeze(1)).tril(-1)
        follower = (earlier * torch.arange(1, T + 1, device=inputs.device)).amax(-1)  # (B, T), 0 in the first block
        return keys_that_hold(inputs.gather(1, follower), inputs, follower > 0)

    def corrupt(self, batch: Batch, generator: Generator) -> Batch:
        """Score one query of each row; before it, its symbol is replaced by one that the row does not have.

        So the token before the answer no longer shows that the answer follows this symbol, and nothing else changes.
        """
        scored = batch.targets != IGNORE
        query = torch.rand(scored.shape, generator=generator).masked_fill(~scored, -1.0).argmax(1, keepdim=True)
        absent = torch.ones(len(scored), self.vocab_size).scatter(1, batch.inputs, 0.0)
        free = absent.any(1, keepdim=True)  # a block may have every symbol
        symbol = torch.multinomial(absent + (~free).float(), 1, generator=generator)
        t = torch.arange(scored.size(1))
        earlier = (batch.inputs == batch.inputs.gather(1, query)) & (t < query)
        chosen = scored & free & (t == query)
        return Batch(torch.where(earlier & free, symbol, batch.inputs), batch.targets.masked_fill(~chosen, IGNORE))


def distinct(n: int, k: int, vocab_size: int, generator: Generator) -> Tensor:
    """Draw n rows of k distinct ids in random order, (n, k), at a cost independent of vocab_size.

    Source: Floyd's sample without replacement (Bentley and Floyd 1987), then shuffled.
    """
    ids = torch.empty(n, k, dtype=torch.long)
    for i in range(k):
        last = vocab_size - k + i
        drawn = torch.randint(last + 1, (n, 1), generator=generator)
        taken = (ids[:, :i] == drawn).any(1)
        ids[:, i] = torch.where(taken, last, drawn.squeeze(1))  # no earlier draw is `last`
    return ids.gather(1, torch.rand(n, k, generator=generator).argsort(1))
