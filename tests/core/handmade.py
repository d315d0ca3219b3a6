"""Models with weights written by hand, one per kind of head, and tasks whose answer is the token a head attends to.

The stream (..., D) is made of blocks of one-hot numbers: the token (V), the position (T), the token before (V, written
by the first layer of an induction model), and the answer (V), which the output map reads. SCALE is so large that a
softmax is 1.0 on its target to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from mhsa_cli.config.schema import ModelConfig
from mhsa_cli.core.heads.targets import SCORES, at_distance
from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks.base import IGNORE, Batch, Task

V, T = 13, 16  # symbols, tokens of a row; d_head is 3V + T = 55, so no two sizes are equal
SCALE, LOUD = 200.0, 30.0  # of a score that should win, and of the logit that a head's result gives
FAR = 5  # distance of the offset head

PLACES = {
    "previous": lambda q: max(q - 1, 0),
    "self": lambda q: q,
    "first": lambda q: 0,
    "offset": lambda q: max(q - FAR, 0),
}


class Blocks:
    """The blocks of the residual stream, for V symbols and rows of T tokens."""

    def __init__(self, vocab_size: int, seq_len: int) -> None:
        self.V, self.T = vocab_size, seq_len
        self.token, self.position = 0, vocab_size
        self.before, self.answer = vocab_size + seq_len, 2 * vocab_size + seq_len
        self.width = 3 * vocab_size + seq_len


def handmade(
    *kinds: str, vocab_size: int = V, seq_len: int = T, idle: Sequence[int] = (), loud: float = LOUD, **settings: object
) -> TransformerLM:
    """Build one layer with a head of each kind: a key of PLACES, "duplicate", "uniform", or "period P".

    Heads in `idle` have the same pattern but write nothing. All others write the token they attend to into the answer.
    """
    at = Blocks(vocab_size, seq_len)
    model = empty(at, len(kinds), 1, loud, **settings)
    for head, kind in enumerate(kinds):
        write_pattern(model.attention[0], head, kind, at)
        if head not in idle:
            write_output(model.attention[0], head, at.token, at.answer, at)
    return model


def induction(vocab_size: int = V, seq_len: int = T, loud: float = LOUD) -> TransformerLM:
    """Build two layers with residuals: a previous-token head marks every key with the token before it, and an
    induction head attends where the mark is the query's token. Position 0 is excluded: no token precedes it."""
    at = Blocks(vocab_size, seq_len)
    model = empty(at, 1, 2, loud, residual=True)
    below, above = model.attention
    write_pattern(below, 0, "previous", at)
    write_output(below, 0, at.token, at.before, at)
    with torch.no_grad():
        query, key, _ = rows_of(above, 0)
        big = SCALE * math.sqrt(above.d_head)
        for symbol in range(vocab_size):
            query[symbol, at.token + symbol] = big
            key[symbol, at.before + symbol] = 1.0
        above.qkv_proj.bias[vocab_size] = -big  # lowers every score of position 0
        key[vocab_size, at.position] = 1.0
    write_output(above, 0, at.token, at.answer, at)
    return model


@torch.no_grad()
def empty(at: Blocks, n_heads: int, n_layers: int, loud: float, **settings: object) -> TransformerLM:
    """Build a model whose heads are all zero, with its token, position and output tables written."""
    config = ModelConfig(
        d_model=n_heads * at.width, n_heads=n_heads, n_layers=n_layers, **{"positions": "learned"} | settings
    )  # type: ignore[arg-type]
    model = TransformerLM(config, vocab_size=at.V, max_seq_len=at.T)
    for parameter in model.parameters():
        parameter.zero_()
    for symbol in range(at.V):
        model.tok_emb.weight[symbol, at.token + symbol] = 1.0
        model.lm_head.weight[symbol, at.answer + symbol] = loud
    for place in range(at.T):
        model.positions.pos_emb.weight[place, at.position + place] = 1.0
    return model.eval()


def rows_of(attn: MultiHeadSelfAttention, head: int) -> list[Tensor]:
    """View a head's rows of the fused map: for queries, keys and values, each (d, D)."""
    D, d = attn.d_model, attn.d_head
    return [attn.qkv_proj.weight[n * D + head * d : n * D + (head + 1) * d] for n in range(3)]


@torch.no_grad()
def write_pattern(attn: MultiHeadSelfAttention, head: int, kind: str, at: Blocks) -> None:
    """Write a head's attention pattern; without a match it is uniform."""
    query, key, _ = rows_of(attn, head)
    big = SCALE * math.sqrt(attn.d_head)
    if kind == "uniform":
        return
    if kind == "duplicate":  # keys with the query's token, but not the query's own place
        for symbol in range(at.V):
            query[symbol, at.token + symbol] = big
            key[symbol, at.token + symbol] = 1.0
    for place in range(at.T):
        if kind == "duplicate":
            query[at.V + place, at.position + place] = -2 * big
            key[at.V + place, at.position + place] = 1.0
        else:
            query[target_place(kind, place), at.position + place] = big
            key[place, at.position + place] = 1.0


def target_place(kind: str, place: int) -> int:
    """Return the position that a positional head attends to; "period P": the one after P tokens back."""
    if kind.startswith("period"):
        return max(place - int(kind.split()[1]) + 1, 0)
    return PLACES[kind](place)


@torch.no_grad()
def write_output(attn: MultiHeadSelfAttention, head: int, source: int, target: int, at: Blocks) -> None:
    """Let a head copy the block at `source` of the token it attends to into the block at `target`."""
    _, _, value = rows_of(attn, head)
    for symbol in range(at.V):
        value[symbol, source + symbol] = 1.0
        attn.out_proj.weight[target + symbol, head * attn.d_head + symbol] = 1.0


class Attended(Task):
    """Random rows; the answer is the token that a perfect head of a kind attends to. Not scored where that is no token,
    several tokens, or the same for every head."""

    name = "attended"
    summary = "test only"

    def __init__(self, kind: str, vocab_size: int = V, seq_len: int = T) -> None:
        self.kind, self.vocab_size, self.seq_len = kind, vocab_size, seq_len
        self.chance_loss, self.chance_accuracy = math.log(vocab_size), 1 / vocab_size
        self.target = at_distance(FAR) if kind == "offset" else SCORES[kind].target

    def rows(self, n: int, generator: Generator) -> Tensor:
        return torch.randint(self.vocab_size, (n, self.seq_len), generator=generator)

    def sample(self, generator: Generator, rows: int) -> Batch:
        inputs = self.rows(rows, generator)
        keys = self.target(inputs).expand(rows, -1, -1).tril()
        keys[:, 0] = False  # query 0 has one key
        answers = inputs.unsqueeze(1).masked_fill(~keys, -1)  # (n, T, T)
        highest = answers.amax(-1)
        lowest = answers.masked_fill(~keys, self.vocab_size).amin(-1)
        return Batch(inputs, highest.masked_fill(highest != lowest, IGNORE))


class Period(Attended):
    """Repeated blocks of P distinct symbols, always the same P: a fixed distance solves it."""

    def __init__(self, period: int = 6, vocab_size: int = V, seq_len: int = T) -> None:
        super().__init__("induction", vocab_size, seq_len)
        self.period, self.gaps = period, (period,)

    def rows(self, n: int, generator: Generator) -> Tensor:
        order = torch.rand(n, self.vocab_size, generator=generator).argsort(1)[:, : self.period]
        return order.repeat(1, -(-self.seq_len // self.period))[:, : self.seq_len]


MODELS = {kind: (lambda kind=kind: handmade(kind)) for kind in (*PLACES, "duplicate")} | {"induction": induction}
