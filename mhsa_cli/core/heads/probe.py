"""The rows on which heads are measured: task rows that training never drew, random rows, and blocks that repeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mhsa_cli.core.heads.targets import SCORES, Aim, aim, least_rows, offset_uniforms
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Batch, Task, fixed_batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.text import plural

ROWS, FEWEST = 64, 4  # rows of a probe; a model with fewer than these within the limits below is not measured
MAX_WEIGHTS = 2**24  # weights of all heads held at once
MAX_FLOPS = 2e9  # of one forward pass over the probe
CELL = 400  # multiplications in whose time one attention weight is masked, normalised and used
GAPS, GAP_ROWS = 4, 16  # distances between repeats that are tried, of each kind, and rows for each


@dataclass(frozen=True)
class Probe:
    """Task rows and random rows (B, T), what each query sees (T, T), and every target that can be measured on the rows.

    `aims` holds the targets of SCORES but for the offset's, which is
    `offsets`: the uniform head's mass by distance.
    """

    batch: Batch
    random: Tensor
    visible: Tensor
    aims: dict[str, Aim]
    offsets: dict[int, float]
    inputs: str

    @property
    def ids(self) -> Tensor:
        """The task's rows (B, T)."""
        return self.batch.inputs


def row_flops(model: TransformerLM, T: int) -> float:
    """Estimate what a forward pass over one row of T tokens costs, in multiplications and additions."""
    heads = len(model.heads)
    return float(T * (2 * sum(p.numel() for p in model.parameters()) + CELL * heads * T))


def rows_that_fit(model: TransformerLM, T: int, most: int = ROWS) -> int:
    """Count the rows of T tokens that may be looked at together; 0 if they would be too few to say anything."""
    by_memory = MAX_WEIGHTS // (len(model.heads) * T * T)
    rows = min(most, by_memory, max(FEWEST, int(MAX_FLOPS / row_flops(model, T))))
    return rows if rows >= min(FEWEST, most) else 0


def build_probe(model: TransformerLM, task: Task, seed: int, rows: int | None = None) -> Probe | None:
    """Draw the probe of a run, the same one at every call; None if rows of this length are too long to measure."""
    n = rows_that_fit(model, task.seq_len, ROWS if rows is None else rows)
    if n == 0:
        return None
    batch = fixed_batch(task, seed, "probe", n)
    generator = stream_generator(seed, "probe-random", 0)
    random = torch.randint(task.vocab_size, batch.inputs.shape, generator=generator)
    T = batch.inputs.size(1)
    visible = model.mixers[0].causal_mask[:T, :T].cpu()
    aims = {name: aim(score.target(batch.inputs), visible) for name, score in SCORES.items() if name != "offset"}
    said = f"{n} rows of {task.name}, {plural(T, 'token')} each, from a stream that training never reads"
    found = {name: one for name, one in aims.items() if one is not None}
    return Probe(batch, random, visible, found, offset_uniforms(visible), said)


def gaps_to_try(task: Task, length: int) -> tuple[list[int], list[int]]:
    """Choose distances between repeats for rows of `length`: some that training used, some that it never did.

    The latter do not divide one that it used: a head at a fixed distance would meet its target there too. Both lists
    are spread evenly over what fits: a gap leaves enough queries, and a block has no more symbols than the task.
    """
    fits = range(2, min(length - least_rows(length), task.n_symbols) + 1)
    trained = [gap for gap in task.gaps if gap in fits]
    unseen = [gap for gap in fits if gap not in task.gaps and not any(used % gap == 0 for used in task.gaps)]
    return spread(trained), spread(unseen)


def spread(values: Sequence[int]) -> list[int]:
    """Take at most GAPS of the values, evenly, with the first and the last."""
    if len(values) <= GAPS:
        return list(values)
    return [values[round(i * (len(values) - 1) / (GAPS - 1))] for i in range(GAPS)]


def repeated_blocks(task: Task, gap: int, length: int, seed: int, rows: int = GAP_ROWS) -> Tensor:
    """Draw rows (rows, length) of blocks: `gap` distinct random symbols, said again and again."""
    generator = stream_generator(seed, "probe-gap", gap)
    blocks = torch.stack([torch.randperm(task.n_symbols, generator=generator)[:gap] for _ in range(rows)])
    return blocks.repeat(1, -(-length // gap))[:, :length]
