"""Snapshots of every head's scores during training, always on the same rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from mhsa_cli.core.heads.capture import finite_or_none, head_weights, weights_and_logits
from mhsa_cli.core.heads.families import sees_ahead
from mhsa_cli.core.heads.own_scores import OnRows, OwnScore
from mhsa_cli.core.heads.probe import Probe, build_probe
from mhsa_cli.core.heads.scores import concat_heads, joined, lifts, of_heads, positionality, shape
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.tasks.base import IGNORE
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.records.timeline import HeadSnapshot, SnapshotRecord

ROWS = 8  # task rows, each also with its tokens shuffled
MAX_DISTANCE = 64  # up to which the lifts of all offsets are stored
MAX_KEPT = 2**24  # numbers of stored weights and of the attention weights made of them
MAX_MADE = 2**20  # attention weights made together: more do not fit in a processor's cache
EVEN = (8, 48)  # the least and the largest number of evenly spaced snapshots with maps
STEPS_EACH = 45  # training steps per evenly spaced snapshot with maps
APART, PER_DOUBLING = 4, 16  # least steps between two snapshots without maps, and their number per doubling of the step
MAP_SIZE = 32  # cells per side of a stored map; longer rows are pooled

Item = TypeVar("Item")


def map_steps(total: int) -> set[int]:
    """Choose the steps of snapshots with maps: 0, 1, 2, 4, 8, ... and evenly spaced ones, `total` included."""
    doubling = {0, *(2**i for i in range(total.bit_length()))}
    count = min(EVEN[1], max(EVEN[0], total // STEPS_EACH))
    return {step for step in doubling | {round(i * total / count) for i in range(count + 1)} if step <= total}


def snapshot_steps(total: int) -> set[int]:
    """Choose the steps of all snapshots: between those with maps, every 4 steps, later 16 per doubling of the step."""
    steps, step = map_steps(total), 0
    while (step := step + max(APART, (1 << step.bit_length() >> 1) // PER_DOUBLING)) < total:
        steps.add(step)
    return steps


class Snapshots:
    """Stores copies of the weights at chosen steps with `note`, and scores their heads in one pass with `flush`.

    One pass over many models costs little more than over one. Nothing is stored where rows are too long to measure.
    """

    def __init__(self, stack: Stack, task: Task, scores: Sequence[OwnScore] = ()) -> None:
        self.stack = stack
        self.kept: list[tuple[int, Tensor, bool]] = []  # step, weights, with maps
        custom = stack.model.custom
        seeds = stack.seeds if custom is None or custom.findings.has_weights else []
        found = [build_probe(stack.model, task, seed, ROWS) for seed in seeds]
        self.probes = [probe for probe in found if probe is not None]  # by slot
        self.own = [[OnRows(score, probe.ids, probe.visible) for score in scores] for probe in self.probes]
        if not self.probes:
            return
        self.model = copy.deepcopy(stack.model)
        self.ids = self._on_device([probe.ids for probe in self.probes])  # (M, B, T)
        self.shuffled = self._on_device([probe.shuffled for probe in self.probes])
        targets = [probe.batch.targets for probe in self.probes]
        self.targets = self._on_device([target.clamp(min=0) for target in targets])
        self.late_minus_early = self._on_device([late_minus_early(target) for target in targets])
        self.layers = [attn.n_heads for attn in self.model.mixers]
        weights = self.ids[..., 0].numel() * sum(self.layers) * self.ids.size(-1) ** 2
        self.room = max(1, MAX_KEPT // (stack.size + weights))  # steps whose weights are stored, and scored together
        self.together = max(1, MAX_MADE // weights)  # steps that run together

    def _on_device(self, rows: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(rows)).to(self.stack.device)

    def note(self, maps: bool = True) -> bool:
        """Store the current weights, to be scored with maps or without; True if `flush` is due."""
        if self.probes:
            self.kept.append((self.stack.updates, self.stack.weights.clone(), maps))
        return len(self.kept) >= (self.room if self.probes else 1)

    @torch.no_grad()
    def capture(self) -> SnapshotRecord | None:
        """Take the maps of the first model's heads as they are now, without scores; nothing of the training changes.

        None where nothing is measured, and for custom attention, whose code may draw random numbers.
        """
        if not self.probes or self.stack.model.custom is not None:
            return None
        self._load([self.stack.weights])
        weights = self._by_model(concat_heads(head_weights(self.model, self.ids[:, :1])))[0, 0, 0]
        ahead = any(sees_ahead(part.visible) for part, _ in self.probes[0].groups(self.model.heads))
        maps, pool = small_maps(weights, ahead)
        heads = [HeadSnapshot(head.layer, head.head, {}, None) for head in self.model.heads]
        rest = iter(maps)
        return SnapshotRecord(self.stack.updates, heads, [[*islice(rest, count)] for count in self.layers], pool)

    @torch.no_grad()
    def flush(self) -> list[tuple[int, SnapshotRecord]]:
        """Score every head of the stored weights: (slot, record), each slot's in order of steps."""
        if not self.kept:
            return []
        kept, self.kept = self.kept, []
        return self._score(kept)

    def _score(self, kept: Sequence[tuple[int, Tensor, bool]]) -> list[tuple[int, SnapshotRecord]]:
        M, n = self.stack.M, sum(self.layers)
        made = [self._weights_and_scores([weights for _, weights, _ in part]) for part in self._parts(kept)]
        own, scores = (joined(each, dim) for each, dim in zip(zip(*made, strict=True), (1, 0), strict=True))
        whole = [place for place, (_, _, with_maps) in enumerate(kept) if with_maps]
        on_shuffled = [self._on_shuffled_rows([kept[place][1] for place in part]) for part in self._parts(whole)]
        shuffled = joined(on_shuffled, 1) if whole else None
        in_context, steps = scores.view(-1, M).tolist(), [step for step, _, _ in kept]
        found = []
        for slot, probe in enumerate(self.probes):
            heads = self._heads(own[:, :, slot].flatten(1, 2), probe)
            records = [
                SnapshotRecord(step, heads[k * n : (k + 1) * n], in_context=finite_or_none(in_context[k][slot]))
                for k, step in enumerate(steps)
            ]
            if self.own[slot]:
                records = [self._with_own(record, own[:, k, slot], self.own[slot]) for k, record in enumerate(records)]
            if shuffled is not None:
                chosen, ours = [records[k] for k in whole], own[:, :, slot]
                ours = (ours if len(whole) == len(kept) else ours[:, whole]).flatten(1, 2)
                theirs = shuffled[:, :, slot].flatten(1, 2)
                rich = self._with_maps(chosen, ours, theirs, probe)
                records = [rich.get(record.step, record) for record in records]
            found += [(slot, record) for record in records]
        return found

    def _parts(self, kept: Sequence[Item]) -> list[Sequence[Item]]:
        return [kept[first : first + self.together] for first in range(0, len(kept), self.together)]

    def _weights_and_scores(self, kept: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Compute stored models' attention weights (B, K, M, n, T, T) and in-context scores (K * M,)."""
        self._load(kept)
        maps, logits = weights_and_logits(self.model, self.ids.repeat(len(kept), 1, 1))
        return self._by_model(concat_heads(maps)), self._in_context(logits)

    def _on_shuffled_rows(self, kept: Sequence[Tensor]) -> Tensor:
        """Compute stored models' attention weights on shuffled rows, (B, K, M, n, T, T)."""
        self._load(kept)
        return self._by_model(concat_heads(head_weights(self.model, self.shuffled.repeat(len(kept), 1, 1))))

    def _by_model(self, weights: Tensor) -> Tensor:
        """View weights (B, K * M * n, T, T) as (B, K, M, n, T, T)."""
        return weights.unflatten(1, (-1, self.stack.M, sum(self.layers)))

    def _load(self, kept: Sequence[Tensor]) -> None:
        """Make the model a stack of all stored models: K steps of M."""
        views = [self.stack.views(weights) for weights in kept]
        for name, parameter in self.model.named_parameters():
            parameter.data = torch.cat([view[name] for view in views])  # (K * M, ...)

    def _in_context(self, logits: Tensor) -> Tensor:
        """Compute each model's in-context score: logits (K * M, B, T, V) to (K * M,)."""
        log_p = logits.log_softmax(-1).unflatten(0, (-1, self.stack.M))  # (K, M, B, T, V)
        index = self.targets.unsqueeze(-1).expand(*log_p.shape[:-1], 1)
        loss = -log_p.gather(-1, index).squeeze(-1).double()
        return (loss * self.late_minus_early).sum((-2, -1)).flatten()

    def _heads(self, weights: Tensor, probe: Probe) -> list[HeadSnapshot]:
        """Score one model's heads at several steps by their lifts alone: weights (B, K * n, T, T)."""
        heads: dict[int, HeadSnapshot] = {}
        for part, index in self._groups(probe, weights.size(1)):
            heads |= zip(index, self._group(of_heads(weights, index), part, index), strict=True)
        return [heads[i] for i in range(weights.size(1))]

    def _groups(self, probe: Probe, n: int) -> list[tuple[Probe, list[int]]]:
        """Group the indices of n heads, those of several steps, by what their layers see."""
        return probe.groups(self.model.heads * (n // sum(self.layers)))

    def _group(self, weights: Tensor, probe: Probe, index: Sequence[int]) -> list[HeadSnapshot]:
        found = lifts(weights, probe)
        lift = {name: target.lift.tolist() for name, target in found.items()}
        best = found.get("offset")
        distance: list[int] | None = None if best is None or best.distance is None else best.distance.tolist()
        # Rounded, since there are many and they are only drawn and compared with thresholds.
        by_distance = {} if best is None or best.by_distance is None else best.by_distance
        offsets = {d: [round(x, 4) for x in ls.tolist()] for d, ls in by_distance.items() if abs(d) <= MAX_DISTANCE}
        heads = []
        for i, (layer, head) in enumerate(self.model.heads[one % sum(self.layers)] for one in index):
            own_lifts = {name: values[i] for name, values in lift.items()}
            near = {d: values[i] for d, values in offsets.items()}
            heads.append(HeadSnapshot(layer, head, own_lifts, None if distance is None else distance[i], offsets=near))
        return heads

    def _with_own(self, record: SnapshotRecord, weights: Tensor, scores: Sequence[OnRows]) -> SnapshotRecord:
        """Add the user's own scores: weights (B, n, T, T)."""
        layers = weights.split(self.layers, 1)
        found = {rows.score.short: rows.means_of(rows.by_row(layers)).tolist() for rows in scores}
        heads = [
            replace(head, own_scores={name: values[i] for name, values in found.items()})
            for i, head in enumerate(record.heads)
        ]
        return replace(record, heads=heads, own_uniform={rows.score.short: rows.uniform for rows in scores})

    def _with_maps(
        self, records: Sequence[SnapshotRecord], own: Tensor, shuffled: Tensor, probe: Probe
    ) -> dict[int, SnapshotRecord]:
        """Add maps and the other figures, by step: weights (B, K * n, T, T) on the task's rows and on shuffled ones."""
        columns: dict[int, tuple[float | None, ...]] = {}
        for part, index in self._groups(probe, own.size(1)):
            ours, theirs = of_heads(own, index), of_heads(shuffled, index)
            figures = [*shape(ours, part.visible).values(), positionality(ours, theirs, part)]
            rows = zip(*([finite_or_none(x) for x in values.tolist()] for values in figures), strict=True)
            columns |= zip(index, rows, strict=True)
        ahead = any(sees_ahead(part.visible) for part, _ in probe.groups(self.model.heads))
        maps, pool = small_maps(own[0], ahead)
        heads = [head for record in records for head in record.heads]
        known = [
            replace(head, entropy=entropy, uniformity=uniformity, confidence=sure, positionality=same)
            for head, (entropy, uniformity, sure, same) in zip(
                heads, [columns[i] for i in range(len(heads))], strict=True
            )
        ]
        own_heads, own_maps, n = iter(known), iter(maps), sum(self.layers)
        found = {}
        for record in records:
            by_layer = [[*islice(own_maps, count)] for count in self.layers]
            found[record.step] = replace(record, heads=[*islice(own_heads, n)], maps=by_layer, pool=pool)
        return found


def late_minus_early(targets: Tensor) -> Tensor:
    """Weight each loss of rows (B, T) so that the sum is the in-context score; NaN if no row has two scored positions.

    The score is the mean loss of the last quarter of each row's scored positions minus that of the first quarter
    (Olsson et al. 2022 take one position for each).
    """
    scored = targets != IGNORE
    place, count = scored.cumsum(-1), scored.sum(-1, keepdim=True)  # places count from 1
    quarter = (count // 4).clamp(min=1)
    counts = scored & (count >= 2)
    early, late = counts & (place <= quarter), counts & (place > count - quarter)
    return late.double() / late.sum() - early.double() / early.sum()


def small_maps(weights: Tensor, future: bool = False) -> tuple[list[list[list[int]]], int]:
    """Round one row's maps (N, T, T) to percent, with the `future` or without; max-pool them if the row is long."""
    T, pool = weights.size(-1), 1
    while math.ceil(T / pool) > MAP_SIZE:
        pool *= 2
    if pool > 1:
        weights = F.max_pool2d(weights, pool, ceil_mode=True)
    percent = (weights * 100).round().nan_to_num(0.0).int().tolist()
    return [[row if future else row[: q + 1] for q, row in enumerate(head)] for head in percent], pool
