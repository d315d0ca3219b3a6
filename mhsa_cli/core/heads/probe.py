"""The rows that heads are measured on: held-out task rows, and the same with shuffled tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mhsa_cli.core.heads.families import Distances, Tokens, distances_of, tokens_of, with_choice
from mhsa_cli.core.heads.targets import SCORES, TargetKeys, answer, target_keys, token
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import IGNORE, Batch, Task, fixed_batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.text import Head, plural

ROWS, MIN_ROWS = 64, 4  # rows of a probe; a model is not measured if fewer fit within the limits below
MAX_WEIGHTS = 2**24  # attention weights of all heads held at once
MAX_FLOPS = 2e9  # of one forward pass over the probe
WEIGHT_FLOPS = 400  # cost of masking, normalising and using one attention weight, in operations of a matrix product


@dataclass(frozen=True)
class Probe:
    """Held-out task rows and the same with shuffled tokens (B, T), the keys visible to each query (T, T), and targets.

    `targets` holds those of SCORES that are no families; `distances` and `tokens` are for the families' members. Where
    layers see different keys, `parts` holds the probe of each, by layer.
    """

    task: Task
    batch: Batch
    shuffled: Tensor
    visible: Tensor
    targets: dict[str, TargetKeys]
    distances: Distances
    tokens: Tokens
    inputs: str
    parts: Sequence[Probe] = ()

    def of(self, layer: int) -> Probe:
        """Return the probe of a layer."""
        return self.parts[layer] if self.parts else self

    def groups(self, heads: Sequence[Head]) -> list[tuple[Probe, list[int]]]:
        """Group the indices of heads by the probe of their layer."""
        found: dict[int, tuple[Probe, list[int]]] = {}
        for index, head in enumerate(heads):
            own = self.of(head.layer)
            found.setdefault(id(own), (own, []))[1].append(index)
        return list(found.values())

    def layers(self, heads: Sequence[Head]) -> list[tuple[Probe, list[int]]]:
        """Group the layers of heads by their probe."""
        return [(part, sorted({heads[i].layer for i in index})) for part, index in self.groups(heads)]

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
    order = torch.rand(batch.inputs.shape, generator=stream_generator(seed, "probe-shuffled", 0))
    if bool((batch.inputs[:, 0] == batch.inputs[0, 0]).all()):
        order[:, 0] = -1.0  # a start token stays where it is
    order = order.argsort(1)
    inputs = f"{n} rows of {task.name}, {plural(T, 'token')} each"
    shuffled = batch.inputs.gather(1, order)
    visible = [attn.visible[:T, :T].cpu() for attn in model.mixers]
    if not model.source:
        return probe_of(task, batch, shuffled, visible[0], inputs)
    by_role = {
        part.role: _with_enough_queries(probe_of(task, batch, shuffled, mask, inputs))
        for part, mask in zip(model.parts, visible, strict=True)
    }
    parts = [by_role[part.role] for part in model.parts]
    return replace(parts[-1], parts=parts)


def _with_enough_queries(probe: Probe) -> Probe:
    """Leave out positional targets that less than a quarter of the queries have: between two parts of a row few do."""
    queries = len(probe.ids) * int(with_choice(probe.visible).sum())
    targets = {name: one for name, one in probe.targets.items() if SCORES[name].content or 4 * one.n >= queries}
    return replace(probe, targets=targets)


def probe_of(task: Task, batch: Batch, shuffled: Tensor, visible: Tensor, inputs: str) -> Probe:
    """Find the targets of some rows, whose queries see the `visible` keys (T, T)."""
    ids = batch.inputs
    sets = {name: score.target(ids) for name, score in SCORES.items() if score.target is not None}
    sets["answer"] = answer(task)(ids)
    if task.separator is not None:
        sets["separator"] = token(task.separator)(ids)
    found = {name: target_keys(keys, visible) for name, keys in sets.items()}
    targets = {name: keys for name, keys in found.items() if keys is not None}
    distances = distances_of(visible, batch.targets != IGNORE)
    return Probe(task, batch, shuffled, visible, targets, distances, tokens_of(ids, visible, task.separator), inputs)
