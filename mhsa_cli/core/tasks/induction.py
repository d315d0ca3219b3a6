"""Induction: a block of random symbols repeated, of hidden length."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from mhsa_cli.core.tasks.base import IGNORE, Batch, Task, keys_that_hold, next_token_rows


class Induction(Task):
    """Continue a repeated block of P symbols, P drawn per row or per training batch from min_period..max_period.

    A query is scored from the second block on; the answer is the symbol that followed one block before. No fixed
    distance solves it; a previous-token head and an induction head in a later layer do.
    ``` inputs   4 7 2 4 7 2 4 targets  · · · 7 2 4 7 ```
    min_period and max_period default to a quarter and a half of seq_len. Without `distinct`, symbols of a block are
    drawn one by one and may be equal. With `loss_on` "all" training predicts the first block, too; evaluation never
    does, and draws a period for each row. Source: Elhage et al. 2021; Olsson et al. 2022.
    """

    name = "induction"
    summary = "repeated random symbols of unknown period; one layer is not enough"
    uniform_answers = True

    def __init__(
        self,
        *,
        vocab_size: int,
        seq_len: int,
        distinct: bool = True,
        min_period: int | None = None,
        max_period: int | None = None,
        period_per: str = "row",
        loss_on: str = "answers",
    ) -> None:
        self.vocab_size, self.seq_len, self.distinct, self.loss_on = vocab_size, seq_len, distinct, loss_on
        self.min_period = max(1, seq_len // 4) if min_period is None else min_period
        self.max_period = max(1, seq_len // 2) if max_period is None else max_period
        self.per_batch = period_per == "batch"
        self.gaps = range(self.min_period, self.max_period + 1)

    def sample(self, generator: Generator, rows: int) -> Batch:
        return self._drawn(generator, rows, 1 if self.per_batch else rows, self.loss_on)

    def held_out(self, generator: Generator, rows: int) -> Batch:
        return self._drawn(generator, rows, rows, "answers")

    def _drawn(self, generator: Generator, rows: int, periods: int, loss_on: str) -> Batch:
        if self.distinct:
            block = distinct(rows, self.max_period, self.vocab_size, generator)
        else:
            block = torch.randint(self.vocab_size, (rows, self.max_period), generator=generator)
        period = torch.randint(self.min_period, self.max_period + 1, (periods, 1), generator=generator)
        t = torch.arange(self.seq_len + 1)
        batch = next_token_rows(block.gather(1, (t % period).expand(rows, -1)))
        if loss_on == "all":
            return batch
        # At t = period - 1 the row does not yet show that the block ends.
        return Batch(batch.inputs, batch.targets.masked_fill(t[:-1] < period, IGNORE))

    def source(self, inputs: Tensor) -> Tensor:
        """Return the positions of the symbol that followed each query's symbol before, and of all equal ones.

        Of distinct symbols the last earlier occurrence counts; of others the one a period back, where the period is the
        shortest that the row has throughout, from min_period on. A row without a period has no source then.
        """
        T = inputs.size(1)
        t = torch.arange(T, device=inputs.device)
        if self.distinct:
            earlier = (inputs.unsqueeze(2) == inputs.unsqueeze(1)).tril(-1)
            follower = (earlier * (t + 1)).amax(-1)  # (B, T), 0 in the first block
            return keys_that_hold(inputs.gather(1, follower), inputs, follower > 0)
        period = torch.full((len(inputs), 1), T, device=inputs.device)
        for p in range(T - 1, self.min_period - 1, -1):
            period[(inputs[:, p:] == inputs[:, :-p]).all(1)] = p
        return keys_that_hold(inputs.gather(1, (t + 1 - period).clamp(min=0)), inputs, t >= period)

    def corrupt(self, batch: Batch, generator: Generator) -> Batch:
        """Score one query of each row; before it, its symbol is replaced by one that the row does not have.

        So the token before the answer no longer shows that the answer follows this symbol, and nothing else changes.
        A query whose answer is its own symbol is never chosen if symbols of a block may be equal.
        """
        scored = batch.targets != IGNORE
        if not self.distinct:
            scored &= batch.targets != batch.inputs
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
