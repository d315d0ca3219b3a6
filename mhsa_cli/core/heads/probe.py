"""The rows that heads are measured on: held-out task rows, random rows, and rows of repeated blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mhsa_cli.core.heads.targets import SCORES, TargetWeights, min_queries, offset_uniforms, target_weights
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Batch, Task, fixed_batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.text import plural

ROWS, MIN_ROWS = 64, 4  # rows of a probe; a model is not measured if fewer fit within the limits below
MAX_WEIGHTS = 2**24  # attention weights of all heads held at once
MAX_FLOPS = 2e9  # of one forward pass over the probe
WEIGHT_FLOPS = 400  # cost of masking, normalising and using one attention weight, in operations of a matrix product
GAPS, GAP_ROWS = 4, 16  # repeat distances of each kind that are tested, and rows for each


@dataclass(frozen=True)
class Probe:
    """Held-out task rows and random rows (B, T), the keys visible to each query (T, T), and the rows' targets.

    `targets` holds those of SCORES except the offset's; `offsets` the uniform head's mass by distance.
    """

    batch: Batch
    random: Tensor
    visible: Tensor
    targets: dict[str, TargetWeights]
    offsets: dict[int, float]
    inputs: str

    @property
    def ids(self) -> Tensor:
        """The task's rows (B, T)."""
        return self.batch.inputs


def row_flops(model: TransformerLM, T: int) -> float:
    """Estimate the cost of a forward pass over one row of T tokens, in multiplications and additions."""
    parameters = sum(p.numel() for p in model.parameters())
    return float(T * (2 * parameters + WEIGHT_FLOPS * len(model.heads) * T))


def rows_that_fit(model: TransformerLM, T: int, most: int = ROWS) -> int:
    """Compute the number of rows of T tokens within the limits; 0 if it is below MIN_ROWS."""
    by_memory = MAX_WEIGHTS // (len(model.heads) * T * T)
    rows = min(most, by_memory, max(MIN_ROWS, int(MAX_FLOPS / row_flops(model, T))))
    return rows if rows >= min(MIN_ROWS, most) else 0


def build_probe(model: TransformerLM, task: Task, seed: int, rows: int | None = None) -> Probe | None:
    """Draw the probe of a run, a function of the seed; None if rows of this length are too long to measure."""
    T = task.seq_len
    n = rows_that_fit(model, T, ROWS if rows is None else rows)
    if n == 0:
        return None
    batch = fixed_batch(task, seed, "probe", n)
    generator = stream_generator(seed, "probe-random", 0)
    random = torch.randint(task.vocab_size, batch.inputs.shape, generator=generator)
    visible = model.mixers[0].causal_mask[:T, :T].cpu()
    found = {n: target_weights(score.target(batch.inputs), visible) for n, score in SCORES.items() if n != "offset"}
    targets = {name: target for name, target in found.items() if target is not None}
    inputs = f"{n} held-out rows of {task.name}, {plural(T, 'token')} each"
    return Probe(batch, random, visible, targets, offset_uniforms(visible), inputs)


def gaps_to_test(task: Task, length: int) -> tuple[list[int], list[int]]:
    """Choose repeat distances for rows of `length`: some that occur in training, some that do not.

    An untrained distance divides no trained one, else a head at a fixed distance would meet its target there. Both
    lists are spread over the distances that leave enough queries and need no more symbols than the task has.
    """
    possible = range(2, min(length - min_queries(length), task.n_symbols) + 1)
    trained = [gap for gap in task.gaps if gap in possible]
    unseen = [gap for gap in possible if gap not in task.gaps and not any(used % gap == 0 for used in task.gaps)]
    return evenly_spaced(trained), evenly_spaced(unseen)


def evenly_spaced(values: Sequence[int]) -> list[int]:
    """Select at most GAPS of the values, evenly spaced, with the first and the last."""
    if len(values) <= GAPS:
        return list(values)
    return [values[round(i * (len(values) - 1) / (GAPS - 1))] for i in range(GAPS)]


def repeated_blocks(task: Task, gap: int, length: int, seed: int, rows: int = GAP_ROWS) -> Tensor:
    """Draw rows (rows, length) that repeat a block of `gap` distinct random symbols."""
    generator = stream_generator(seed, "probe-gap", gap)
    blocks = torch.stack([torch.randperm(task.n_symbols, generator=generator)[:gap] for _ in range(rows)])
    return blocks.repeat(1, -(-length // gap))[:, :length]
