"""A compiler of small programs to weights of our own models, in the manner of RASP (Weiss et al. 2021) and Tracr
(Lindner et al. 2023): what every head of such a model does is known, because it was written down first.

A program is a table: heads by layer, each with a job (which keys it attends to) and what it copies, and an output map
from the stream to the logits. The stream is made of blocks, each a one-hot number or a plain figure: "one" (always 1),
"token", "position", blocks of the program's own, and "answer". A job is written twice: as terms of the score, which are
compiled, and in plain Python, which says what must come out. The answer of a program is plain Python too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from mhsa_cli.config.schema import ModelConfig
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks.base import IGNORE, Batch, Task
from mhsa_cli.records.labels import Role
from tests.core.handmade import rows_of

SCALE, LOUD = 60.0, 20.0  # of a score of 1, and of the logit that a one-hot answer gives
STEEP = 10.0  # the nonlinearity is that of a ramp beyond this

Row = Sequence[int]
Table = Callable[[int, int], float]  # of the numbers of two blocks


class Term(NamedTuple):
    """A part of the score: `table` of the number in the query's block and the number in the key's."""

    query: str
    key: str
    table: Table


@dataclass(frozen=True)
class Job:
    """Which keys a head attends to: `terms` are compiled, `keys` says the same in plain Python.

    `keys(row, q)` lists the keys of query q, which share its weight equally, or gives the weight of each; none of them
    means all keys up to q.
    """

    id: str
    terms: Sequence[Term]
    keys: Callable[[Row, int], Collection[int] | Mapping[int, float]]


class Copy(NamedTuple):
    """What a head takes from the keys it attends to: the number of block `source`, by `table`, to block `target`."""

    source: str = "token"
    target: str = "answer"
    table: Table = lambda i, j: i == j


@dataclass(frozen=True)
class Head:
    """A head with its job, and what may be said of it.

    `labels` are the labels without a role ("previous", "offset:3") that name what it does: with an ideal head of that
    label in its place the program would be right on at least four answers in five. `causes` are the roles that are
    true of it; `parks` says that it attends to the first token to write nothing.
    """

    job: Job | None  # None: all weights are zero
    copies: Sequence[Copy] = (Copy(),)
    labels: Collection[str] = ()
    causes: Collection[Role] = (Role.SHOWN,)
    parks: bool = False


@dataclass(frozen=True)
class Program:
    """A program: its heads by layer, and `answer(row, q)`, None where nothing is asked.

    `rows(random, n_symbols, length)` draws a row; ids from n_symbols on are `specials`, one of which may be the
    `separator`. `blocks` gives the sizes of the program's own blocks, `output` the logits as (block, table of its
    number and the answer). With `levels` an MLP after the last layer adds to "answer" the number of the level nearest
    to the block "share". `source(row, q)` is the place of the answer, if the task is to name it. A program that is not
    `sure` gives its answers less than all probability.
    """

    name: str
    layers: Sequence[Sequence[Head]]
    answer: Callable[[Row, int], int | None]
    rows: Callable[[random.Random, int, int], list[int]] = lambda draw, n, length: draw.choices(range(n), k=length)
    n_symbols: int = 9
    specials: int = 0
    separator: int | None = None
    length: int = 14
    blocks: Mapping[str, int] = field(default_factory=dict)
    output: Sequence[tuple[str, Table]] = (("answer", lambda i, j: LOUD * (i == j)),)
    levels: Sequence[float] = ()
    source: Callable[[Row, int], int | None] | None = None
    sure: bool = True

    @property
    def vocab_size(self) -> int:
        return self.n_symbols + self.specials

    @property
    def heads(self) -> list[Head]:
        """Every head, layers filled with dead ones to the same number."""
        dead = Head(None, (), (), (Role.NO_EFFECT,))
        most = max(map(len, self.layers))
        return [head for layer in self.layers for head in (*layer, *[dead] * (most - len(layer)))]

    def sizes(self) -> dict[str, int]:
        """The sizes of the blocks of the stream, in order."""
        V = self.vocab_size
        share = {"share": 1} if self.levels else {}
        return {"one": 1, "token": V, "position": self.length, **share, **self.blocks, "answer": V}


class Stream:
    """The numbers of the stream that belong to each block."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        ends = torch.tensor([*sizes.values()]).cumsum(0).tolist()
        self.places = {name: range(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}
        self.width = ends[-1]

    def matrix(self, rows: str, columns: str, table: Table) -> tuple[slice, slice, Tensor]:
        """Return the place of two blocks in a (width, width) matrix, and the table of their numbers."""
        one, other = self.places[rows], self.places[columns]
        values = [[float(table(i, j)) for j in range(len(other))] for i in range(len(one))]
        return slice(one.start, one.stop), slice(other.start, other.stop), torch.tensor(values)


@torch.no_grad()
def compiled(program: Program) -> TransformerLM:
    """Write a program into the weights of a model: layers with residuals, no norms, learned positions."""
    stream, n_layers = Stream(program.sizes()), len(program.layers)
    n_heads, d = len(program.heads) // n_layers, stream.width
    config = ModelConfig(
        d_model=n_heads * d,
        n_heads=n_heads,
        n_layers=n_layers,
        d_mlp=2 * len(program.levels),
        positions="learned",
        residual=True,
    )
    model = TransformerLM(config, vocab_size=program.vocab_size, max_seq_len=program.length)
    for parameter in model.parameters():
        parameter.zero_()
    for table, block in ((model.tok_emb.weight, "token"), (model.positions.pos_emb.weight, "position")):
        place = stream.places[block]
        table[:, place.start : place.stop] = torch.eye(len(place))
    model.tok_emb.weight[:, 0] = 1.0  # the block "one"
    for block, values in program.output:
        rows, _, matrix = stream.matrix(block, "answer", values)
        model.lm_head.weight[:, rows] += matrix.T
    for index, head in enumerate(program.heads):
        write(model, *divmod(index, n_heads), head, stream)
    if program.levels:
        write_levels(model, program.levels, stream)
    return model.eval()


@torch.no_grad()
def write_levels(model: TransformerLM, levels: Sequence[float], stream: Stream) -> None:
    """Let the last MLP write the number of the nearest level: each limit between two is a steep step."""
    mlp, share, answer = model.blocks[-1].mlp, stream.places["share"][0], stream.places["answer"][0]
    order = sorted(range(len(levels)), key=levels.__getitem__)
    limits = [-1e3, *((levels[a] + levels[b]) / 2 for a, b in pairwise(order))]
    slope = 40 * STEEP / min(abs(levels[a] - levels[b]) for a, b in pairwise(order))
    for step, (level, limit) in enumerate(zip(order, limits, strict=True)):
        for unit, sign in ((2 * step, 1), (2 * step + 1, -1)):  # ramps that begin below and above the limit
            mlp.up.weight[unit, share] = slope
            mlp.up.bias[unit] = sign * STEEP - slope * limit
            mlp.down.weight[answer + level, unit] += sign / (2 * STEEP)
            if step:
                mlp.down.weight[answer + order[step - 1], unit] -= sign / (2 * STEEP)


def write(model: TransformerLM, layer: int, number: int, head: Head, stream: Stream) -> None:
    """Write a head: keys and values are the stream itself, as far as they are read."""
    attn, d = model.attention[layer], stream.width
    query, key, value = rows_of(attn, number)
    score = torch.zeros(d, d)  # of numbers of the query's stream and of the key's
    for term in head.job.terms if head.job else ():
        rows, columns, matrix = stream.matrix(*term)
        score[rows, columns] += SCALE * matrix
    query[:, :d] = math.sqrt(attn.d_head) * score.T
    key[:, :d] = torch.diag((score != 0).any(0).float())
    output = torch.zeros(d, d)
    for copy in head.copies:
        rows, columns, matrix = stream.matrix(*copy)
        output[rows, columns] += matrix
    value[:, :d] = torch.diag((output != 0).any(1).float())
    attn.out_proj.weight[:d, number * d : (number + 1) * d] = output.T


def attended(job: Job | None, row: Row, q: int) -> list[float]:
    """Return the weights that query q must have on all keys of a row."""
    keys = job.keys(row, q) if job else ()
    if not keys:
        keys = range(q + 1)
    weights = keys if isinstance(keys, Mapping) else dict.fromkeys(keys, 1 / len(keys))
    return [weights.get(k, 0.0) for k in range(len(row))]


class ProgramTask(Task):
    """The task of a program: its rows, and its answers by plain Python."""

    name = "program"
    summary = "test only"

    def __init__(self, program: Program) -> None:
        self.program, self.vocab_size, self.seq_len = program, program.vocab_size, program.length
        self.separator = program.separator
        answers = [a for row in self._rows(200, random.Random(0)) for a in self.answers(row) if a != IGNORE]
        shares = [answers.count(a) / len(answers) for a in set(answers)]
        self.chance_loss, self.chance_accuracy = -sum(p * math.log(p) for p in shares), max(shares)

    @property
    def n_symbols(self) -> int:
        return self.program.n_symbols

    def _rows(self, n: int, draw: random.Random) -> list[list[int]]:
        return [self.program.rows(draw, self.program.n_symbols, self.seq_len) for _ in range(n)]

    def answers(self, row: Row) -> list[int]:
        """The answer at every place of a row."""
        found = [self.program.answer(row, q) for q in range(len(row))]
        return [IGNORE if a is None else a for a in found]

    def sample(self, generator: Generator, rows: int) -> Batch:
        drawn = self._rows(rows, random.Random(int(torch.randint(2**62, (), generator=generator))))
        return Batch(torch.tensor(drawn), torch.tensor([self.answers(row) for row in drawn]))

    def source(self, inputs: Tensor) -> Tensor | None:
        if self.program.source is None:
            return None
        places = [[self.program.source(row, q) for q in range(len(row))] for row in inputs.tolist()]
        found = torch.tensor([[-1 if place is None else place for place in row] for row in places])
        return found.unsqueeze(-1) == torch.arange(inputs.size(1))
