"""The interface of a task: rows of ids with their targets, and the chance level."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Generator, Tensor

from mhsa_cli.config.schema import TrainConfig
from mhsa_cli.core.ranges import check_indices

IGNORE = -100  # the target where there is no answer: not scored
BLOCK = 32  # steps whose batches are drawn together
COUNTED = 2**19  # answers counted for the chance level


class Batch(NamedTuple):
    """Input ids and target ids, both (B, T) int64; targets are IGNORE where there is no answer."""

    inputs: Tensor
    targets: Tensor


class Task:
    """A toy task. `vocab_size` counts all ids, separators and padding included.

    `chance_loss` (nats) and `chance_accuracy` are what ignoring the input scores when the position of a query is known.
    With `uniform_answers` every symbol is as likely at each of them, and both are exact; else they are counted.
    `note` is a caution printed below this task's attention maps. With `holds_back` evaluation rows are other
    data than those of training. `gaps` are the distances at which its rows favour repeats. `separator` is the id of
    one, if any. `baselines` are losses (nats) of simpler ways to answer, by their names. With `per_batch` the rows of
    one call of `sample` have something in common, and training draws each batch by a call of its own.
    """

    name: str
    summary: str
    note: str = ""
    vocab_size: int
    seq_len: int
    uniform_answers: ClassVar[bool] = False
    holds_back: bool = False
    per_batch: bool = False
    gaps: Sequence[int] = ()
    separator: int | None = None
    space: str = " "  # between tokens in generated text
    goal_accuracy: float = 0.99  # of a run that has learned the task

    @property
    def baselines(self) -> Mapping[str, float]:
        """Losses (nats) of simpler ways to answer than by attention, by their names; none here."""
        return {}

    @property
    def n_symbols(self) -> int:
        """The number of ordinary symbols: ids 0..n_symbols-1; separators and padding come after them."""
        return self.vocab_size

    @cached_property
    def chance_loss(self) -> float:
        """The loss of ignoring the input, nats."""
        return self._chance[0]

    @cached_property
    def chance_accuracy(self) -> float:
        """The accuracy of ignoring the input."""
        return self._chance[1]

    @cached_property
    def _chance(self) -> tuple[float, float]:
        return (math.log(self.n_symbols), 1 / self.n_symbols) if self.uniform_answers else counted_chance(self)

    def __init__(self, **settings: Any) -> None:
        """Take the settings of the task's schema in `config.tasks`, except its name; each task lists its own."""

    @classmethod
    def small(cls) -> Task:
        """Build one whose rows fit on a line."""
        return cls(vocab_size=10, seq_len=8)

    def sample(self, generator: Generator, rows: int) -> Batch:
        """Draw rows from `generator` alone: ids and targets, both (rows, T) int64."""
        raise NotImplementedError

    def held_out(self, generator: Generator, rows: int) -> Batch:
        """Draw rows to evaluate on. Tasks over given data hold some back; here they are drawn as for training."""
        return self.sample(generator, rows)

    def source(self, inputs: Tensor) -> Tensor | None:
        """Return all keys that hold each query's answer, (B, T, T) boolean; none where a query has no answer.

        A causal model sees those up to the query only.

        None: the task has no such keys. `inputs` (B, T) may be any ids, not only rows of this task.
        """
        return None

    def corrupt(self, batch: Batch, generator: Generator) -> Batch:
        """Return rows to patch from, in the batch's shape, and the batch's targets that patching is scored on.

        Row b of the inputs is what row b of the batch is patched from: its answers should differ, its scored places
        should not. The targets are the batch's own, IGNORE at further places or in whole rows that have no partner.
        Here: another row of the batch with the same scored places, drawn from `generator`.
        """
        _, places = (batch.targets != IGNORE).unique(dim=0, return_inverse=True)
        _, content = batch.inputs.unique(dim=0, return_inverse=True)
        fits = (places.unsqueeze(1) == places) & (content.unsqueeze(1) != content)  # (B, B)
        partner = torch.rand(fits.shape, generator=generator).masked_fill(~fits, -1.0).argmax(1)
        found = fits.any(1, keepdim=True)
        inputs = torch.where(found, batch.inputs[partner], batch.inputs)
        return Batch(inputs, batch.targets.masked_fill(~found, IGNORE))

    def symbols(self, ids: Sequence[int]) -> list[str]:
        """Write ids for display."""
        return [str(i) for i in ids]

    def write(self, i: int) -> str:
        """Write one id as in generated text."""
        return self.symbols([i])[0]

    def draw(self, n: int, generator: Generator, *, held_out: bool = False) -> Batch:
        """Draw n rows and check on the CPU that every id is in the vocabulary. Raises: ValueError naming the first."""
        batch = self.held_out(generator, n) if held_out else self.sample(generator, n)
        check_indices("id", batch.inputs, self.vocab_size)
        check_targets(batch.targets, self.vocab_size)
        return batch


def check_targets(targets: Tensor, vocab_size: int) -> None:
    """Refuse targets that are neither in the vocabulary nor IGNORE. Raises: ValueError naming the first."""
    check_indices("target", targets.masked_fill(targets == IGNORE, 0), vocab_size)


def counted_chance(task: Task, answers: int = COUNTED) -> tuple[float, float]:
    """Predict by the frequency of each answer at each position of training rows: loss (nats) and accuracy.

    Both are measured on evaluation rows. Counts start at one, so that no answer has probability zero.
    """
    V, n = task.vocab_size, max(1, answers // task.seq_len)
    train, evaluated = (_answer_counts(task, n, index) for index in range(2))
    best, total = train.argmax(-1, keepdim=True), evaluated.sum()
    log_p = (train + 1).log() - (train.sum(-1, keepdim=True) + V).log()
    return float(-(evaluated * log_p).sum() / total), float(evaluated.gather(-1, best).sum() / total)


def _answer_counts(task: Task, n: int, index: int) -> Tensor:
    """Count over n rows, held out with index 1, how often each answer occurs at each position: (T, V), float64."""
    targets = task.draw(n, stream_generator(0, "chance", index), held_out=index == 1).targets
    place = torch.arange(targets.size(1)) * task.vocab_size
    cells = (targets + place)[targets != IGNORE]
    counts = torch.bincount(cells, minlength=targets.size(1) * task.vocab_size)
    return counts.view(-1, task.vocab_size).double()


def stream_generator(seed: int, stream: str, index: int) -> Generator:
    """Seed a CPU generator from (seed, stream, index) alone, so that any draw can be repeated."""
    digest = hashlib.blake2b(f"{seed}/{stream}/{index}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


class TrainBatches:
    """The training batches of one seed: `batches[step]`, steps from 1, a pure function of (seed, step).

    With `sequential` one generator of this seed draws every batch in turn, as in a loop written by hand; a step is
    found by drawing those before it. Else the steps of each block have a generator of their own.
    """

    def __init__(self, task: Task, seed: int, batch_size: int, sequential: bool = False) -> None:
        self.task, self.seed, self.batch_size = task, seed, batch_size
        self.steps_per_block = 1 if sequential else BLOCK  # steps drawn together
        self._generator = torch.Generator() if sequential else None
        self._index = -1
        self._block: Batch | None = None

    @classmethod
    def of(cls, task: Task, train: TrainConfig) -> TrainBatches:
        """Return the batches of a training."""
        return cls(task, train.seed, train.batch_size, train.sequential)

    def __getitem__(self, step: int) -> Batch:
        index, rows = self.place(step)
        if self._block is None or index != self._index:
            self._block = self.block(index)
        return Batch(self._block.inputs[rows], self._block.targets[rows])

    def place(self, step: int) -> tuple[int, slice]:
        """Return the index of a step's block, and its rows there."""
        index, offset = divmod(step - 1, self.steps_per_block)
        return index, slice(offset * self.batch_size, (offset + 1) * self.batch_size)

    def block(self, index: int) -> Batch:
        """Draw the rows of a block, which are not kept."""
        block, self._block = self._draw(index), None
        self._index = index
        return block

    def _draw(self, index: int) -> Batch:
        """Draw the steps of a block."""
        if self._generator is None:
            return self._drawn(stream_generator(self.seed, "train", index))
        if index <= self._index or self._index < 0:
            self._generator.manual_seed(self.seed)
            self._index = -1
        for _ in range(self._index + 1, index):
            self.task.sample(self._generator, self.batch_size)
        return self._drawn(self._generator)

    def _drawn(self, generator: Generator) -> Batch:
        if not self.task.per_batch:
            return self.task.draw(self.steps_per_block * self.batch_size, generator)
        inputs, targets = zip(
            *(self.task.draw(self.batch_size, generator) for _ in range(self.steps_per_block)), strict=True
        )
        return Batch(torch.cat(inputs), torch.cat(targets))

    def inputs(self, steps: int) -> Iterator[Tensor]:
        """Yield the inputs of the first `steps` steps, (rows, T), in blocks."""
        for first in range(1, steps + 1, self.steps_per_block):
            _ = self[first]
            assert self._block is not None
            yield self._block.inputs[: (steps - first + 1) * self.batch_size]


def fixed_batch(task: Task, seed: int, stream: str, n: int) -> Batch:
    """Draw the n held-out rows of a stream, the same ones at every call."""
    return task.draw(n, stream_generator(seed, stream, 0), held_out=True)


def next_token_rows(rows: Tensor) -> Batch:
    """Split rows (B, T+1) into inputs and the targets one position later: target[t] = row[t+1]."""
    return Batch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())


def keys_that_hold(answers: Tensor, inputs: Tensor, answered: Tensor) -> Tensor:
    """Return the keys that hold each query's answer, (B, T, T) boolean; none where a query is not `answered` (B, T).

    Also those after the query, which only an unmasked model sees.
    """
    return (inputs.unsqueeze(1) == answers.unsqueeze(2)) & answered.unsqueeze(2)


def token_figures(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the cross-entropy (nats) of every token and whether it is correct, both 0 where nothing is scored.

    Shapes: logits (M, B, T, V), targets and results (M, B, T). An answer is correct if no other id is more likely;
    argmax differs at exact ties only, at ten times the cost.
    """
    scored = targets != IGNORE
    log_p = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    answer = log_p.gather(-1, targets.long().clamp(min=0).unsqueeze(-1)).squeeze(-1)  # (M, B, T)
    with torch.no_grad():
        correct = (answer == log_p.amax(-1)) & scored
    return -(answer * scored), correct


def sums(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum each model's cross-entropy (nats), correct answers and scored positions: logits (M, B, T, V) to (M,) each."""
    nats, correct = token_figures(logits, targets)
    return nats.flatten(1).sum(1), correct.flatten(1).sum(1), (targets != IGNORE).flatten(1).sum(1)
