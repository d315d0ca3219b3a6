"""Snapshots of every head's scores during training, always on the same rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from mhsa_cli.core.heads.capture import head_weights
from mhsa_cli.core.heads.probe import MAX_WEIGHTS, Probe, build_probe
from mhsa_cli.core.heads.scores import concat_heads, lifts, positionality, shape
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.records.heads import HeadSnapshot, SnapshotRecord

ROWS = 8  # task rows, and as many random rows
MAX_DISTANCE = 64  # up to which the lifts of all offsets are stored
MAX_KEPT = 2**22  # numbers of stored weights
EVEN = (8, 48)  # the least and the largest number of evenly spaced snapshots
STEPS_EACH = 45  # training steps per evenly spaced snapshot
MAP_SIZE = 32  # cells per side of a stored map; longer rows are pooled


def snapshot_steps(total: int) -> set[int]:
    """Choose the steps of snapshots: 0, 1, 2, 4, 8, ... and evenly spaced ones, `total` included."""
    doubling = {0, *(2**i for i in range(total.bit_length()))}
    count = min(EVEN[1], max(EVEN[0], total // STEPS_EACH))
    return {step for step in doubling | {round(i * total / count) for i in range(count + 1)} if step <= total}


class Snapshots:
    """Stores copies of the weights at chosen steps with `note`, and scores their heads in one pass with `flush`.

    One pass over many models costs little more than over one. Nothing is stored where rows are too long to measure.
    """

    def __init__(self, stack: Stack, task: Task) -> None:
        self.stack = stack
        self.kept: list[tuple[int, Tensor]] = []
        custom = stack.model.custom
        seeds = stack.seeds if custom is None or custom.findings.has_weights else []
        found = [build_probe(stack.model, task, seed, ROWS) for seed in seeds]
        self.probes = [probe for probe in found if probe is not None]  # by slot
        if not self.probes:
            return
        self.model = copy.deepcopy(stack.model)
        self.ids = torch.stack([torch.cat([p.ids, p.random]) for p in self.probes]).to(stack.device)  # (M, 2B, T)
        self.layers = [attn.n_heads for attn in self.model.mixers]
        weights = self.ids[..., 0].numel() * sum(self.layers) * self.ids.size(-1) ** 2
        self.room = max(1, min(MAX_WEIGHTS // weights, MAX_KEPT // stack.size))  # steps scored together

    def note(self) -> bool:
        """Store the current weights; True if `flush` is due."""
        if self.probes:
            self.kept.append((self.stack.updates, self.stack.weights.clone()))
        return len(self.kept) >= (self.room if self.probes else 1)

    @torch.no_grad()
    def flush(self) -> list[tuple[int, SnapshotRecord]]:
        """Score every head of the stored weights: (slot, record), each slot's in order of steps."""
        if not self.probes or not self.kept:
            return []
        views = [self.stack.views(weights) for _, weights in self.kept]
        for name, parameter in self.model.named_parameters():
            parameter.data = torch.cat([view[name] for view in views])  # (K * M, ...)
        steps, self.kept = [step for step, _ in self.kept], []
        K, M, n = len(steps), self.stack.M, sum(self.layers)
        weights = concat_heads(head_weights(self.model, self.ids.repeat(K, 1, 1)))  # (2B, K * M * n, T, T)
        by_slot = weights.unflatten(1, (K, M, n))
        return [
            (slot, record)
            for slot, probe in enumerate(self.probes)
            for record in self._records(by_slot[:, :, slot].flatten(1, 2), probe, steps)
        ]

    def _records(self, weights: Tensor, probe: Probe, steps: Sequence[int]) -> list[SnapshotRecord]:
        """Score one model's heads at several steps: weights (2B, K * n, T, T), task rows before random rows."""
        own, random = weights.split(len(probe.ids))
        found, figures = lifts(own, probe), shape(own, probe.visible)
        columns = [values.tolist() for values in (*figures.values(), positionality(random, probe.visible))]
        lift = {name: target.lift.tolist() for name, target in found.items()}
        best = found.get("offset")
        distance = None if best is None or best.distance is None else best.distance.tolist()
        # Rounded, since there are many and they are only drawn and compared with thresholds.
        by_distance = {} if best is None or best.by_distance is None else best.by_distance
        offsets = {d: [round(x, 4) for x in ls.tolist()] for d, ls in by_distance.items() if d <= MAX_DISTANCE}
        maps, pool = small_maps(own[0])
        heads = []
        for i, (layer, head) in enumerate(self.model.heads * len(steps)):
            own_lifts = {name: values[i] for name, values in lift.items()}
            at = None if distance is None else distance[i]
            entropy, uniformity, sure, same = (None if math.isnan(values[i]) else values[i] for values in columns)
            near = {d: values[i] for d, values in offsets.items()}
            heads.append(HeadSnapshot(layer, head, own_lifts, at, entropy, uniformity, sure, same, near))
        own_heads, own_maps, n = iter(heads), iter(maps), sum(self.layers)
        return [
            SnapshotRecord(step, [*islice(own_heads, n)], [[*islice(own_maps, count)] for count in self.layers], pool)
            for step in steps
        ]


def small_maps(weights: Tensor) -> tuple[list[list[list[int]]], int]:
    """Round one row's maps (N, T, T) to percent without the masked future; max-pool them if the row is long."""
    T, pool = weights.size(-1), 1
    while math.ceil(T / pool) > MAP_SIZE:
        pool *= 2
    if pool > 1:
        weights = F.max_pool2d(weights, pool, ceil_mode=True)
    percent = (weights * 100).round().nan_to_num(0.0).int().tolist()
    return [[row[: q + 1] for q, row in enumerate(head)] for head in percent], pool
